"""The only entry point to the compiler: numba, cached on disk where possible."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` to machine code on its first call and cache the code on disk.

    The cache is next to the module, or in the user's cache folder if the module's is read-only. If
    neither is writable, each process recompiles the function: slower to start, never an error.
    """
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba's "no locator available": no folder can hold the cache
        return cast(F, numba.njit(nogil=True)(function))
