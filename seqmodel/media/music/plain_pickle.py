"""Pickles of plain data, read by an unpickler that builds only containers and integers.

A pickle is a program that may call any function of any module. Here it can look up only the names
by which NumPy writes integers, and gets stand-ins of our own for them.
"""

import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from seqmodel.errors import SourceError

INTEGER_BYTES = {"i1": 1, "i2": 2, "i4": 4, "i8": 8, "u1": 1, "u2": 2, "u4": 4, "u8": 8}


def load_plain(data: bytes) -> Any:
    """What a pickle holds: dicts, lists, tuples, sets, strings, numbers.

    NumPy integers, also from Python 2, become plain integers.

    Raises:
        SourceError: if it asks for anything else, or is damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except SourceError:
        raise
    except Exception as error:  # damaged opcodes make the unpickler raise nearly anything
        raise SourceError("is damaged or no pickle") from error


class _IntegerType:
    """Stands in for an integer numpy.dtype: its size, sign and byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in INTEGER_BYTES:
            raise SourceError(f"holds NumPy values of type {code!r}; only integers are read")
        self.code = code
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


def _integer(kind: _IntegerType, raw: str | bytes) -> int:
    """Stands in for numpy's scalar constructor; Python 2 wrote the bytes as a string."""
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if len(data) != INTEGER_BYTES[kind.code]:
        raise SourceError("holds a damaged NumPy integer")
    return int.from_bytes(
        data, "big" if kind.order == ">" else "little", signed=kind.code.startswith("i")
    )


def _bytes(text: str, _: str) -> bytes:
    """Stands in for the codec by which Python 3 writes bytes in an old pickle: always Latin-1."""
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _IntegerType,
    ("numpy.core.multiarray", "scalar"): _integer,
    ("numpy._core.multiarray", "scalar"): _integer,
    ("_codecs", "encode"): _bytes,
}


# The Python unpickler: the one in C sizes its memo by four bytes of the file, up to 64 GB.
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    # It allocates whatever length the file claims, and rolls have no bytearrays.
    del dispatch[pickle.BYTEARRAY8[0]]

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            stand_in = STAND_INS[module_name, global_name]
        except KeyError:
            raise SourceError(
                f"asks for {module_name}.{global_name}; only containers and integers are read"
            ) from None
        # A fresh wrapper each time: a pickle may set attributes on what it gets.
        return partial(stand_in)
