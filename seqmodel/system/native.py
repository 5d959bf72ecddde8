"""Foreign functions, with fixed-width types: `long` has 32 bits on Windows, 64 elsewhere."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

ADDRESS, INT, INT32, BYTES = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_char_p


def function(address: int, types: Sequence[Any], returns: Any = None) -> Callable[..., Any]:
    """A Python function that calls the function at an address."""
    return ctypes.CFUNCTYPE(returns, *types)(address)


def callback(called: Callable[[int], object]) -> tuple[int, object]:
    """The address of a function that takes an address and calls Python, and what keeps it alive."""
    thunk = ctypes.CFUNCTYPE(None, ADDRESS)(called)
    address = ctypes.cast(thunk, ADDRESS).value
    assert address is not None
    return address, thunk


def memory_at(address: int, size: int) -> Any:
    """A buffer of the `size` bytes at an address."""
    return (ctypes.c_uint8 * size).from_address(address)


@cache
def address_of(name: str) -> int | None:
    """The address of a function of this name in a loaded library, if any.

    Windows cannot search libraries without their names.
    """
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ADDRESS).value
    except (OSError, TypeError, AttributeError):
        return None
