"""Memory for kernels' buffers. Freed large blocks are kept for the next buffer.

GNU's allocator never keeps blocks of `MMAP_BYTES` or more (see `machine`), so this module does.
"""

import math
import weakref
from collections import deque
from contextlib import suppress

import torch
from torch import Tensor

from seqmodel.system.machine import MMAP_BYTES, keep_freed_memory

keep_freed_memory()  # in any program: otherwise, by chance, a small unit's step takes twice as long

MAX_SPARE_BYTES = 1 << 30
"""Limit on the total size of spare large blocks."""

_spare: deque[Tensor] = deque()  # the longest unused first; whoever takes one out owns it


def buffer(dtype: torch.dtype, *shape: int) -> Tensor:
    """Uninitialised memory. Tests fill it with nan to expose early reads."""
    size = math.prod(shape) * dtype.itemsize
    if MMAP_BYTES <= size <= MAX_SPARE_BYTES:
        return _block(size).view(dtype).view(shape)
    return torch.empty(*shape, dtype=dtype)  # a tuple takes twice as long


def _block(size: int) -> Tensor:
    """`size` bytes, from a spare block if one fits."""
    candidates = list[Tensor]()
    with suppress(IndexError):
        while True:
            candidates.append(_spare.popleft())
    fits = (spare for spare in candidates if size <= spare.numel() <= 2 * size)
    best = min(fits, key=Tensor.numel, default=None)
    _spare.extend(spare for spare in candidates if spare is not best)
    block = torch.empty(size, dtype=torch.uint8) if best is None else best
    # The array lives as long as any tensor over its memory.
    array = block[:size].numpy()
    weakref.finalize(array, _reclaim, block).atexit = False
    return torch.from_numpy(array)


def _reclaim(block: Tensor) -> None:
    """Take a block back. Garbage collection may call this anywhere, even inside `_block`."""
    _spare.append(block)
    with suppress(IndexError, RuntimeError):  # if called again meanwhile
        while sum(spare.numel() for spare in tuple(_spare)) > MAX_SPARE_BYTES:
            _spare.popleft()
