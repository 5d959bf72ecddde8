"""Where the compiled code's buffers come from.

Large buffers are given back to the system when freed, and fresh memory is handed out page by page,
each page zeroed: at 50 MB a step that took a fifth of a training step. So the largest, the loops'
slots, are kept for the next step.
"""

import threading
import weakref

import torch
from torch import Tensor

KEEP_BYTES = 1 << 28  # of spare blocks, of all sizes together
_WORTH_KEEPING = 1 << 18

_spare: list[Tensor] = []  # the longest unused first
_lock = threading.RLock()  # a block may come back, by garbage collection, at any point


def buffer(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised memory; the tests put nan there, so that no reading of it goes unseen."""
    return like.new_empty(shape)


def recycled(like: Tensor, rows: int, columns: int) -> Tensor:
    """As `buffer`, in memory used before if there is any; it comes back when the tensor dies."""
    size = rows * columns * like.element_size()
    if size < _WORTH_KEEPING or size > KEEP_BYTES:
        return buffer(like, rows, columns)
    with _lock:
        fits = [k for k, spare in enumerate(_spare) if size <= spare.numel() <= 2 * size]
        best = min(fits, key=lambda k: _spare[k].numel(), default=None)
        block = None if best is None else _spare.pop(best)
    if block is None:
        block = buffer(like, rows, columns).view(-1).view(torch.uint8)
    # The array dies with the last tensor over its memory, and tells so.
    array = block[:size].numpy()
    weakref.finalize(array, _give_back, block).atexit = False
    return torch.from_numpy(array).view(like.dtype).view(rows, columns)


def _give_back(block: Tensor) -> None:
    with _lock:
        _spare.append(block)
        while sum(spare.numel() for spare in _spare) > KEEP_BYTES:
            _spare.pop(0)
