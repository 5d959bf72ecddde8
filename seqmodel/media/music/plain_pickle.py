"""Pickles of plain data, read by an unpickler that can build nothing but containers and integers.

A pickle is a program that may call any function of any module. Here the only names it can look
up are those by which NumPy writes an integer, and they lead to stand-ins of our own.
"""

import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from seqmodel.errors import SourceError

INTEGER_BYTES = {"i1": 1, "i2": 2, "i4": 4, "i8": 8, "u1": 1, "u2": 2, "u4": 4, "u8": 8}


def load_plain(data: bytes) -> Any:
    """Return what a pickle holds: dicts, lists, tuples, sets, strings, numbers.

    NumPy's integers, also those written under Python 2, become plain integers.

    Raises:
        SourceError: when it asks for anything else, or is damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except SourceError:
        raise
    except Exception as error:  # damaged opcodes make the unpickler raise nearly anything
        raise SourceError("is damaged or no pickle") from error


class _IntegerType:
    """Stands for numpy.dtype of an integer, of which it keeps size, sign and byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in INTEGER_BYTES:
            raise SourceError(f"holds NumPy values of type {code!r}; only integers are read")
        self.code = code
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


def _integer(kind: _IntegerType, raw: str | bytes) -> int:
    """Stands for numpy's scalar constructor; Python 2 wrote the bytes as a string."""
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if len(data) != INTEGER_BYTES[kind.code]:
        raise SourceError("holds a damaged NumPy integer")
    return int.from_bytes(
        data, "big" if kind.order == ">" else "little", signed=kind.code.startswith("i")
    )


def _bytes(text: str, _: str) -> bytes:
    """Stands for the codec by which Python 3 writes bytes in an old pickle: always Latin-1."""
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _IntegerType,
    ("numpy.core.multiarray", "scalar"): _integer,
    ("numpy._core.multiarray", "scalar"): _integer,
    ("_codecs", "encode"): _bytes,
}


# The unpickler in Python, not the one in C, whose table of back-references takes the size that
# four bytes of the file ask for, up to 64 GB.
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    # It allocates the length it claims before it reads, and rolls have no bytearrays.
    del dispatch[pickle.BYTEARRAY8[0]]

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            stand_in = STAND_INS[module_name, global_name]
        except KeyError:
            raise SourceError(
                f"asks for {module_name}.{global_name}; only containers and integers are read"
            ) from None
        # A wrapper made anew: a pickle may set attributes of what it is given.
        return partial(stand_in)
