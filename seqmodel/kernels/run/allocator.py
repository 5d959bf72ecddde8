"""The C allocator's thresholds: process-wide, so the command line sets them, not an import."""

import ctypes

LARGE = 1 << 25
"""Bytes; the highest threshold GNU's allocator accepts for serving a block from the heap."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as numbered in <malloc.h>


def keep_freed_memory() -> None:
    """Keep freed memory in the process; does nothing under allocators other than GNU's.

    Fresh pages are zeroed one by one, which at 50 MB per step takes a fifth of a training step.
    GNU's allocator returns blocks above a threshold that rises only as the program frees larger
    ones, so at first a small model's step takes a third longer.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, LARGE)
    mallopt(_TRIM_THRESHOLD, 2 * LARGE)
