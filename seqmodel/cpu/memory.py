"""Where the compiled code's buffers come from, and that freed memory stays with the process.

GNU's allocator gives large blocks back to the system as soon as they are freed, and the next ones
come fresh, page by page, each zeroed: up to a third of a training step, depending on how the heap
happens to lie. So it is asked to keep what it has. Other allocators are left alone.
"""

import ctypes

from torch import Tensor

KEEP_BYTES = 1 << 29
"""At the heap's end; more than that goes back to the system."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as <malloc.h> numbers them


def _keep_freed_memory() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, KEEP_BYTES)  # smaller blocks lie in the heap
    mallopt(_TRIM_THRESHOLD, KEEP_BYTES)


_keep_freed_memory()


def buffer(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised memory; the tests put nan there, so that no reading of it goes unseen."""
    return like.new_empty(shape)
