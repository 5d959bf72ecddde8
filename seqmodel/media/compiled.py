"""The one door to the compiler: numba, with its cache on disk where there is a place for one."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` to machine code at its first call and keep the code on disk.

    The cache lies beside the module, or in the user's cache folder where that is read-only.
    Where neither can be written the function is compiled anew in each process: slower to start,
    never an error.
    """
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba: "no locator available", no folder can hold the cache
        return cast(F, numba.njit(nogil=True)(function))
