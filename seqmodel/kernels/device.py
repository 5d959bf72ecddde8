"""Code made for this processor at first use, and the threads and memory that it runs on.

`emit` and `vectors` write instructions from Python, `jit` compiles them, `team` shares them out
among threads, `calls` lets many users run them over memory of their own. `product`, `outer` and
`notes` are the matrix products, `packing` and `folding` what goes before and after them. All but
this file loads the compiler, so it is imported where something first runs.
"""

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_process = {"forked": False}


def watch_forks() -> None:
    """Note from now on whether this process is a fork: it lacks its parent's threads then."""
    if hasattr(os, "register_at_fork") and "watching" not in _process:
        _process["watching"] = True
        os.register_at_fork(after_in_child=lambda: _process.update(forked=True))
    # Who is imported in a child only has missed its fork.
    if multiprocessing.parent_process() is not None:
        method = multiprocessing.get_start_method(allow_none=True)
        _process["forked"] = _process["forked"] or method in (None, "fork")


def forked() -> bool:
    """Whether this process is a fork of another."""
    return _process["forked"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block torch computes on one thread.

    For passes over the weights or a batch of music: torch shares out even a handful of numbers, and
    waking a thread that sleeps takes longer than the arithmetic.
    """
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def why_not(tensors: Iterable[Tensor | None]) -> str | None:
    """Why compiled code cannot run over these tensors (None: there is none); None where it can."""
    dtype = None
    for tensor in tensors:
        if tensor is None:
            continue
        if not tensor.is_cpu:
            return f"a tensor lies on {tensor.device}"
        if tensor.dtype not in (torch.float32, torch.float64):
            return f"it computes in float32 and float64, not in {tensor.dtype}"
        if dtype not in (None, tensor.dtype):
            return f"it needs one type throughout, not {dtype} and {tensor.dtype}"
        dtype = tensor.dtype
    return None
