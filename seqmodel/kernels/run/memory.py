"""Where the compiled code's buffers come from, and that freed memory is kept for the next.

Memory fresh from the system is handed out page by page, each zeroed: at 50 MB a step that takes
a fifth of a training step. GNU's allocator gives blocks back to the system as soon as they are
freed, by thresholds that rise, up to the ones set here, with what a program happens to free: until
then a small unit's step can take a third longer. So they are set at once; what is larger still is
kept here. Other allocators are left alone.
"""

import ctypes
import threading
import weakref

import torch
from torch import Tensor

LARGE = 1 << 25
"""Bytes; GNU's allocator never comes to keep blocks of this size."""
KEEP_BYTES = 1 << 28
"""Of spare large blocks, of all sizes together."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as <malloc.h> numbers them

_spare: list[Tensor] = []  # the longest unused first
_lock = threading.RLock()  # a block may come back, by garbage collection, at any point


def _keep_freed_memory() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, LARGE)
    mallopt(_TRIM_THRESHOLD, 2 * LARGE)


_keep_freed_memory()


def buffer(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised memory; the tests put nan there, so that no reading of it goes unseen."""
    return like.new_empty(shape)


def large_buffer(like: Tensor, rows: int, columns: int) -> Tensor:
    """As `buffer`, for what may be large, in memory used before if there is any."""
    size = rows * columns * like.element_size()
    if not LARGE <= size <= KEEP_BYTES:
        return buffer(like, rows, columns)
    with _lock:
        fits = [k for k, spare in enumerate(_spare) if size <= spare.numel() <= 2 * size]
        best = min(fits, key=lambda k: _spare[k].numel(), default=None)
        block = like.new_empty(size, dtype=torch.uint8) if best is None else _spare.pop(best)
    # The array dies with the last tensor over its memory, and tells so.
    array = block[:size].numpy()
    weakref.finalize(array, _give_back, block).atexit = False
    return torch.from_numpy(array).view(like.dtype).view(rows, columns)


def _give_back(block: Tensor) -> None:
    with _lock:
        _spare.append(block)
        while sum(spare.numel() for spare in _spare) > KEEP_BYTES:
            _spare.pop(0)
