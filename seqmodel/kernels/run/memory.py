"""Where kernels' buffers come from. Freed large blocks are kept for the next buffer.

GNU's allocator never keeps blocks of `LARGE` bytes or more (see `machine`), so we do.
"""

import math
import threading
import weakref
from collections import deque

import torch
from torch import Tensor

from seqmodel.kernels.run.machine import LARGE

KEEP_BYTES = 1 << 30
"""Limit on the total size of spare large blocks."""

_spare: list[Tensor] = []  # the longest unused first
_returned: deque[Tensor] = deque()  # blocks on their way into `_spare`
_lock = threading.Lock()  # guards `_spare`


def buffer(dtype: torch.dtype, *shape: int) -> Tensor:
    """Uninitialised memory. Tests fill it with nan to expose early reads."""
    size = math.prod(shape) * dtype.itemsize
    if LARGE <= size <= KEEP_BYTES:
        return _block(size).view(dtype).view(shape)
    return torch.empty(*shape, dtype=dtype)  # a tuple takes twice as long


def _block(size: int) -> Tensor:
    """`size` bytes, from a spare block if one fits."""
    with _lock:
        _collect()
        fits = [k for k, spare in enumerate(_spare) if size <= spare.numel() <= 2 * size]
        best = min(fits, key=lambda k: _spare[k].numel(), default=None)
        block = None if best is None else _spare.pop(best)
    if block is None:
        block = torch.empty(size, dtype=torch.uint8)
    # The array lives as long as any tensor over its memory.
    array = block[:size].numpy()
    weakref.finalize(array, _give_back, block).atexit = False
    return torch.from_numpy(array)


def _give_back(block: Tensor) -> None:
    """Take a block back. Garbage collection may call this anywhere, even inside `_collect`."""
    _returned.append(block)
    if _lock.acquire(blocking=False):  # otherwise its current or next holder collects
        try:
            _collect()
        finally:
            _lock.release()


def _collect() -> None:
    while _returned:
        _spare.append(_returned.popleft())
    while sum(spare.numel() for spare in _spare) > KEEP_BYTES:
        _spare.pop(0)
