"""Running kernels on torch's own threads, so that two pools do not compete for the cores.

Torch computes on OpenMP's threads. If the library is GNU's (Linux), kernels run on the same
threads: GOMP_parallel starts them within microseconds, and they are still awake from torch's last
operation. Otherwise, and after a fork (which GNU's pool does not survive), kernels run on Python
threads, which start a little slower.
"""

import inspect
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from llvmlite import binding, ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.instructions import translate
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.run.signature import THREADS, Field, Layout, Signature
from seqmodel.system import native
from seqmodel.system.processes import forked

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process id: threads do not fork
_MXCSR_AS_ZERO = 1 << 15 | 1 << 6
"""Flush to zero, and denormals are zeros: bits of x86's register of control and status."""
_SHARE = ir.FunctionType(ir.VoidType(), [POINTER, INT, INT])


@dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled function (fields, thread, threads) that does one thread's share of the work."""

    signature: Signature
    layout: Layout
    """The signature's layout function, which checks fields."""
    address: int
    library: Library
    """The code, kept alive."""

    @property
    def alone(self) -> int:
        """The address of the function (fields) that does all the work."""
        return self.library.address(f"{self.signature.name}_alone")

    def job(self, fields: Mapping[str, Field]) -> "Job":
        """A job over fields given by name; an error if they are not as declared."""
        numbers, created = self.layout(**fields)
        return Job(self, numbers, fields, created)


class Job(NamedTuple):
    """A kernel to be run over its fields."""

    kernel: Kernel
    numbers: list[int]
    """The fields as the kernel reads them."""
    fields: Mapping[str, Field]
    """The fields by name; keeps the tensors alive."""
    created: Mapping[str, Tensor]
    """The arrays that were passed as `NEW`."""


@compiled_once
def compile_kernel(
    signature: Signature, itemsize: int, write: Callable[..., None], *parameters: Any
) -> Kernel:
    """The kernel whose body `write(e, fields by name, thread, threads, *parameters)` writes."""

    def body(e: Emitter, fields: Any, *share: Any) -> None:
        write(e, signature.load(e, fields), *share, *parameters)

    return _compiled(signature, itemsize, body)


@compiled_once
def compile_text(
    signature: Signature, itemsize: int, text: Callable[..., Any], *, over: str | None = None,
    lanes: int = 1, **constants: Any,
) -> Kernel:  # fmt: skip
    """Compile a text of `code.language` that computes items `first` to `last` of a size `over`.

    Its parameters are fields by name, `first`, `last`, `thread`, the number of `lanes`, the number
    of each `lane`, `inner`, where the fields of further calls begin, and `constants`; or `f`, which
    has all of them, also by name in `f.fields`.
    """

    def body(entry: Emitter, fields: Any, thread: Any, threads: Any) -> None:
        e = Emitter(entry.builder, itemsize, lanes)
        arguments = signature.arguments(e, signature.load(e, fields)) | constants
        inner = e.builder.gep(fields, [e.int(len(signature.fields))], source_etype=INT)
        arguments |= {"thread": thread, "lanes": lanes, "inner": inner}
        if over is not None:
            arguments["first"], arguments["last"] = e.share(arguments[over], thread, threads)
        arguments["lane"] = ir.Constant(ir.VectorType(INT, lanes), list(range(lanes)))
        arguments["f"] = SimpleNamespace(**arguments, fields=arguments)
        names = inspect.signature(text).parameters
        translate(e, text, **{name: arguments[name] for name in names})

    return _compiled(signature, itemsize, body)


def _compiled(signature: Signature, itemsize: int, body: Callable[..., None]) -> Kernel:
    """The kernel with this `body(e, fields, thread, threads)`, also as a function of one thread."""
    module, name = ir.Module(signature.name), signature.name
    with function(module, name, [POINTER, INT, INT], itemsize) as (e, *arguments):
        body(e, *arguments)
    with function(module, f"{name}_alone", [POINTER], itemsize) as (e, fields):
        e.builder.call(module.get_global(name), [fields, e.int(0), e.int(1)])
    library = Library(module)
    return Kernel(signature, signature.layout(itemsize), library.address(name), library)


def run(kernel: Kernel, threads: int, fields: Mapping[str, Field]) -> Mapping[str, Tensor]:
    """Run a single job; returns the arrays that were passed as `NEW`."""
    job = kernel.job(fields)
    parallel_for([job], threads)
    return job.created


def parallel_for(jobs: Sequence[Job], threads: int) -> None:
    """Run jobs one after another, each split over `threads`, and return when all are done.

    Waking the threads often costs more than the job itself: pass jobs together where possible.
    ValueError if a job's buffers are for a different number of threads.
    """
    for job in jobs:
        planned = job.fields.get(THREADS, threads)
        if planned != threads:
            name = job.kernel.signature.name
            raise ValueError(f"kernel {name} has buffers for {planned} threads, not {threads}")
    if threads > 1 and (forked() or not _openmp()):
        _on_python_threads(jobs, threads)
        return
    fields = _described(jobs, threads)
    address, _ = fields.buffer_info()
    if threads == 1:
        _sequence().run_shares(address, 0, 1)
    else:
        _sequence().on_openmp(address, threads)


def _described(jobs: Sequence[Job], threads: int) -> "array[int]":
    """The array that `_write_sequence` reads."""
    header, numbers = [threads, len(jobs)], list[int]()
    for job in jobs:
        header += job.kernel.address, 2 + 2 * len(jobs) + len(numbers)
        numbers += job.numbers
    return array("q", header + numbers)


@lru_cache(maxsize=1)
def _openmp() -> dict[str, int]:
    """Addresses of the functions used from GNU's OpenMP; empty if torch uses another library."""
    names = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
    found = {name: address for name in names if (address := native.address_of(name))}
    return found if len(found) == len(names) else {}


class _Sequence:
    """The compiled loop over jobs; see `_write_sequence` for their layout."""

    def __init__(self) -> None:
        module = ir.Module("sequence")
        kinds: list[Any] = [POINTER, INT, INT]
        with function(module, "run_shares", kinds, 4) as (e, jobs, thread, team_size):
            _write_sequence(e, jobs, thread, team_size, lambda: None)
        if _openmp():
            with function(module, "openmp", [POINTER], 4) as (e, jobs):
                b = e.builder
                thread, team_size = (
                    b.sext(b.call(_declare(module, name, ir.IntType(32)), []), INT)
                    for name in ("omp_get_thread_num", "omp_get_num_threads")
                )
                barrier = _declare(module, "GOMP_barrier", ir.VoidType())
                _write_sequence(e, jobs, thread, team_size, lambda: b.call(barrier, []))
        self._library = Library(module)
        self.run_shares = self._library.function("run_shares", kinds)
        """(jobs, thread, team_size): run a thread's shares of jobs, without a barrier."""
        if _openmp():
            types = [native.ADDRESS, native.ADDRESS, native.INT32, native.INT32]
            self._parallel = native.function(_openmp()["GOMP_parallel"], types)
            self._all_shares = self._library.address("openmp")

    def on_openmp(self, jobs: int, threads: int) -> None:
        """Run the jobs on OpenMP's threads, with a barrier between jobs."""
        self._parallel(self._all_shares, jobs, threads, 0)


_sequence = compiled_once(_Sequence)


def _write_sequence(
    e: Emitter, jobs: Any, thread: Any, team_size: Any, barrier_call: Callable[[], object]
) -> None:
    """Write the loop over jobs, which one array of integers describes.

    The array holds the number of shares and of jobs; for each job, the kernel's address and the
    index of its fields in the array; then all fields.

    OpenMP may provide fewer threads than there are shares: thread n of m takes shares n, n + m, ...
    """
    b = e.builder

    def number(k: Any) -> Any:
        return b.load(b.gep(jobs, [e.int(k)], source_etype=INT), typ=INT)

    shares = number(0)
    with _subnormals_as_zero(b), e.loop(0, number(1)) as n:
        with b.if_then(b.icmp_signed(">", n, e.int(0))):
            barrier_call()
        kernel = b.inttoptr(number(e.add(e.mul(n, 2), 2)), _SHARE.as_pointer())
        fields = b.gep(jobs, [number(e.add(e.mul(n, 2), 3))], source_etype=INT)
        with e.loop(thread, shares, team_size) as share:
            b.call(kernel, [fields, share, shares])


@contextmanager
def _subnormals_as_zero(b: Any) -> Iterator[None]:
    """Within this context, code reads subnormal numbers as 0 and writes 0 for them, on x86.

    Gradients of saturated gates are such numbers, below 1.2e-38, of which Intel's processors take
    over 100 cycles for each sum or product: late epochs of sound took up to ten times as long.
    """
    if not binding.get_host_cpu_features().get("sse"):
        yield
        return
    kind = ir.FunctionType(ir.VoidType(), [POINTER])
    load, store = (
        b.module.declare_intrinsic(f"llvm.x86.sse.{name}mxcsr", (), kind) for name in ("ld", "st")
    )
    before, within = (b.alloca(ir.IntType(32)) for _ in range(2))
    b.call(store, [before])
    b.store(b.or_(b.load(before), ir.Constant(ir.IntType(32), _MXCSR_AS_ZERO)), within)
    b.call(load, [within])
    yield
    b.call(load, [before])


def _declare(module: Any, name: str, returns: Any) -> Any:
    """A function of the OpenMP library that takes no arguments."""
    binding.add_symbol(name, _openmp()[name])
    return ir.Function(module, ir.FunctionType(returns, []), name)


def _on_python_threads(jobs: Sequence[Job], threads: int) -> None:
    key = os.getpid(), threads
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = ThreadPoolExecutor(threads - 1, "seqmodel-cpu")
    for job in jobs:
        fields = _described([job], threads)
        share = partial(_sequence().run_shares, fields.buffer_info()[0])
        others = [pool.submit(share, k, threads) for k in range(1, threads)]
        share(0, threads)
        for other in others:
            other.result()


def thread_count(rows: int) -> int:
    """The number of threads torch uses, at most one per row."""
    return max(1, min(torch.get_num_threads(), rows))
