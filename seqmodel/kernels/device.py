"""Whether compiled code can run here: the tensors' device and type, and one thread for torch.

Most other modules of `kernels` load the compiler, so they are imported only where first needed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from torch.autograd import forward_ad

from seqmodel.system import native


def transformed() -> bool:
    """Whether torch.func, forward-mode differentiation or tracing intercepts torch's operations.

    Only torch may then compute on tensors, which may have no memory.
    """
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run this thread's torch operations on one thread within the block.

    For passes over the weights or a batch of music: torch splits even a handful of numbers between
    threads, and waking a sleeping thread takes longer than the arithmetic.
    """
    set_threads = _set_threads()
    former = torch.get_num_threads()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(former)


@cache
def _set_threads() -> Callable[[int], object]:
    """The function that sets the number of threads torch uses on the calling thread.

    This is OpenMP's own function: torch.set_num_threads also sets the number for every Python
    thread that has not yet run a torch operation, and such a thread keeps it. If torch does not use
    the OpenMP library found here, the fallback is torch's function.
    """
    if address := native.address_of("omp_set_num_threads"):
        former, set_threads = torch.get_num_threads(), native.function(address, [native.INT32])
        set_threads(former + 1)
        effective = torch.get_num_threads() == former + 1
        set_threads(former)
        if effective:
            return set_threads
    return torch.set_num_threads


def for_kernels(tensor: Tensor) -> Tensor:
    """Data on the CPU, in a type that kernels compute in; without gradients."""
    return tensor.to("cpu", torch.float64 if tensor.dtype == torch.float64 else torch.float32)


def unsupported_reason(tensors: Iterable[Tensor | None]) -> str | None:
    """Why compiled code cannot run on these tensors; None if it can. Skips None."""
    dtype = None
    for tensor in tensors:
        if tensor is None:
            continue
        if not tensor.is_cpu:
            return f"a tensor is on {tensor.device}"
        if tensor.dtype not in (torch.float32, torch.float64):
            return f"it computes in float32 and float64, not in {tensor.dtype}"
        if dtype not in (None, tensor.dtype):
            return f"it needs one type throughout, not {dtype} and {tensor.dtype}"
        dtype = tensor.dtype
    return None
