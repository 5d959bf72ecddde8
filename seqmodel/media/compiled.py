"""The one way to the compiler: numba, with its cache on disk if there is a place for one."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` to machine code at its first call and cache the code on disk.

    The cache is beside the module, or in the user's cache folder if that is read-only. If neither
    can be written, each process compiles the function again: slower to start, never an error.
    """
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba: "no locator available", no folder can hold the cache
        return cast(F, numba.njit(nogil=True)(function))
