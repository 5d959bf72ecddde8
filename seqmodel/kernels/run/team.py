"""Threads for the compiled loops: torch's own, so that two pools never fight over the cores.

Torch computes on the threads of an OpenMP library. Where that is GNU's (Linux), the loops run on
the very same threads: GOMP_parallel starts them within microseconds, and they are awake already
from the matrix product before. Elsewhere, and in a forked process (GNU's pool does not survive a
fork), Python threads take the shares, a little slower to start.
"""

import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from llvmlite import binding, ir
from torch import Tensor

from seqmodel.kernels import device as cpu
from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, compiled_once, function

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process, for threads do not fork
_share_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_SHARE = ir.FunctionType(ir.VoidType(), [POINTER, INT, INT])


@dataclass(frozen=True)
class Kernel:
    """A compiled function (fields, thread, threads): one thread's share of the work."""

    name: str
    address: int
    library: Library
    """The code, kept alive."""


class Job(NamedTuple):
    """A kernel and the fields it takes: numbers, and tensors, of which it takes the address."""

    kernel: Kernel
    fields: Sequence[int | Tensor]

    def numbers(self) -> list[int]:
        """The fields as the kernel sees them."""
        return [f if isinstance(f, int) else f.data_ptr() for f in self.fields]


def compile_kernels(module: Any, names: Sequence[str]) -> dict[str, Kernel]:
    """Compile a module whose functions `names` take (fields, thread, threads)."""
    library = Library(module)
    return {name: Kernel(name, library.address(name), library) for name in names}


def share_out(jobs: Sequence[Job], threads: int) -> None:
    """Run jobs in a row on so many threads, and return when all are done.

    Each thread computes its share of a job; the next job begins when all have. Waking the threads
    costs more than many a job does, so that what can run in a row should.
    """
    head, numbers = [threads, len(jobs)], list[int]()
    for job in jobs:
        head += job.kernel.address, 2 + 2 * len(jobs) + len(numbers)
        numbers += job.numbers()
    fields = array("q", head + numbers)
    address, _ = fields.buffer_info()
    if threads == 1:
        _in_a_row().alone(address)
    elif _openmp() and not cpu.forked():
        _in_a_row().together(address, threads)
    else:
        _on_python_threads(jobs, threads)


@lru_cache(maxsize=1)
def _openmp() -> dict[str, int]:
    """The addresses of what is used of GNU's OpenMP library, none where torch has another."""
    names = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
    try:
        library = ctypes.CDLL(None)
        found = {n: ctypes.cast(getattr(library, n), ctypes.c_void_p).value for n in names}
    except (OSError, TypeError, AttributeError):
        return {}
    return {name: address for name, address in found.items() if address}


class _InARow:
    """The compiled loop over jobs: see `_write_in_a_row` for how they are given.

    `alone` runs them on this thread. `together` runs them on OpenMP's threads, which wait for each
    other between two jobs.
    """

    def __init__(self) -> None:
        module = ir.Module("in_a_row")
        with function(module, "alone", [POINTER], 4) as (e, jobs):
            _write_in_a_row(e, jobs, e.int(0), e.int(1), lambda: None)
        if _openmp():
            with function(module, "team", [POINTER], 4) as (e, jobs):
                b = e.builder
                thread, awake = (
                    b.sext(b.call(_declare(module, name, ir.IntType(32)), []), INT)
                    for name in ("omp_get_thread_num", "omp_get_num_threads")
                )
                barrier = _declare(module, "GOMP_barrier", ir.VoidType())
                _write_in_a_row(e, jobs, thread, awake, lambda: b.call(barrier, []))
        self._library = Library(module)
        self.alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.address("alone"))
        if _openmp():
            kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            self._parallel = ctypes.CFUNCTYPE(None, *kinds)(_openmp()["GOMP_parallel"])
            self._team = self._library.address("team")

    def together(self, jobs: int, threads: int) -> None:
        """Run the jobs on so many threads."""
        self._parallel(self._team, jobs, threads, 0)


@compiled_once
def _in_a_row() -> _InARow:
    return _InARow()


def _write_in_a_row(
    e: Emitter, jobs: Any, thread: Any, awake: Any, wait: Callable[[], object]
) -> None:
    """Jobs are given as integers: how many shares each has, how many jobs there are, then of each
    the kernel's address and the place of its fields among these integers.

    OpenMP may wake fewer threads than there are shares; each takes its own and every further one.
    """
    b = e.builder

    def number(k: Any) -> Any:
        return b.load(b.gep(jobs, [e.int(k)], source_etype=INT), typ=INT)

    shares = number(0)
    with e.loop(0, number(1)) as n:
        with b.if_then(b.icmp_signed(">", n, e.int(0))):
            wait()
        kernel = b.inttoptr(number(e.add(e.mul(n, 2), 2)), _SHARE.as_pointer())
        fields = b.gep(jobs, [number(e.add(e.mul(n, 2), 3))], source_etype=INT)
        with e.loop(thread, shares, awake) as share:
            b.call(kernel, [fields, share, shares])


def _declare(module: Any, name: str, returns: Any) -> Any:
    """A function of the OpenMP library without arguments."""
    binding.add_symbol(name, _openmp()[name])
    return ir.Function(module, ir.FunctionType(returns, []), name)


def _on_python_threads(jobs: Sequence[Job], threads: int) -> None:
    key = os.getpid(), threads
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = ThreadPoolExecutor(threads - 1, "seqmodel-cpu")
    for job in jobs:
        fields = array("q", job.numbers())
        share = partial(_share_type(job.kernel.address), fields.buffer_info()[0])
        others = [pool.submit(share, k, threads) for k in range(1, threads)]
        share(0, threads)
        for other in others:
            other.result()


def thread_count(rows: int) -> int:
    """As many threads as torch uses, but no more than there are rows."""
    return max(1, min(torch.get_num_threads(), rows))
