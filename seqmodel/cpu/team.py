"""Threads for the compiled loops: torch's own, so that two pools never fight over the cores.

Torch computes on the threads of an OpenMP library. Where that is GNU's (Linux), the loops run on
the very same threads: GOMP_parallel starts them within microseconds, and they are awake already
from the matrix product before. Elsewhere, and in a forked process (GNU's pool does not survive a
fork), Python threads take the shares, a little slower to start.
"""

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from llvmlite import binding, ir

from seqmodel import cpu
from seqmodel.cpu.emit import INT, POINTER
from seqmodel.cpu.jit import Library, function

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process, for threads do not fork


@dataclass(frozen=True)
class Kernel:
    """A compiled function: one thread's share, and the whole on OpenMP's threads (if there)."""

    name: str
    share: Any
    """share(fields, thread, threads)"""
    team: int
    """The address of a function of the fields that asks OpenMP which thread it is; or 0."""
    library: Library
    """The code, kept alive."""


@lru_cache(maxsize=1)
def _openmp() -> dict[str, int]:
    """The addresses of what is used of GNU's OpenMP library, none where torch has another."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    try:
        library = ctypes.CDLL(None)
        found = {n: ctypes.cast(getattr(library, n), ctypes.c_void_p).value for n in names}
    except (OSError, TypeError, AttributeError):
        return {}
    return {name: address for name, address in found.items() if address}


def compile_kernels(module: Any, names: Sequence[str]) -> dict[str, Kernel]:
    """Compile a module whose functions `names` take (fields, thread, threads)."""
    teams = bool(_openmp())
    for name in names if teams else ():
        with function(module, f"{name}_team", [POINTER], 4) as (e, fields):
            answers = [
                e.builder.sext(e.builder.call(_question(module, question), []), INT)
                for question in ("omp_get_thread_num", "omp_get_num_threads")
            ]
            e.builder.call(module.get_global(name), [fields, *answers])
    library = Library(module)
    share = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kernels = {}
    for name in names:
        on_team = library.address(f"{name}_team") if teams else 0
        kernels[name] = Kernel(name, share(library.address(name)), on_team, library)
    return kernels


def _question(module: Any, name: str) -> Any:
    """A function of the OpenMP library without arguments."""
    if name in module.globals:
        return module.globals[name]
    binding.add_symbol(name, _openmp()[name])
    return ir.Function(module, ir.FunctionType(ir.IntType(32), []), name)


@lru_cache(maxsize=1)
def _parallel() -> Any:
    kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return ctypes.CFUNCTYPE(None, *kinds)(_openmp()["GOMP_parallel"])


def share_out(kernel: Kernel, numbers: Sequence[int], threads: int) -> None:
    """Run a kernel on so many threads, each computing its share, and return when all are done."""
    fields = (ctypes.c_int64 * len(numbers))(*numbers)
    address = ctypes.addressof(fields)
    if threads == 1:
        kernel.share(address, 0, 1)
    elif kernel.team and not cpu.forked():
        _parallel()(kernel.team, address, threads, 0)
    else:
        key = os.getpid(), threads
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = ThreadPoolExecutor(threads - 1, "seqmodel-cpu")
        others = [pool.submit(kernel.share, address, k, threads) for k in range(1, threads)]
        kernel.share(address, 0, threads)
        for other in others:
            other.result()


def thread_count(rows: int) -> int:
    """As many threads as torch uses, but no more than there are rows."""
    return max(1, min(torch.get_num_threads(), rows))
