"""Pickles of plain data, read by an unpickler that builds only containers and numbers.

A pickle is a program that may call any function of any module. Here it can look up only the names
that NumPy writes for numbers and arrays, and gets our own stand-ins for them. The time of each
opcode and the size of the object it makes are of the order of its own bytes: whatever a few bytes
can nest endlessly is never hashed, compared, printed or copied.
"""

import io
import math
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError

INTEGER_BYTES = {"i1": 1, "i2": 2, "i4": 4, "i8": 8, "u1": 1, "u2": 2, "u4": 4, "u8": 8}
LONGEST_INTEGER = max(INTEGER_BYTES.values())
FLOATS, OBJECTS = ("f2", "f4", "f8"), ("O", "O4", "O8")
"""NumPy's names of the other types that arrays may have."""

LONGEST_SHOWN = 40
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """A value for a message; only its type if its text might be endless."""
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64):
        return repr(value)
    if isinstance(value, str):
        return repr(value[:LONGEST_SHOWN])
    return f"of type {type(value).__name__}"


def load_plain(data: bytes) -> Any:
    """What a pickle holds: dicts, lists, tuples, strings, numbers and `PickledArray`s.

    Keys are strings, bytes or integers. NumPy integers, also from Python 2, become plain integers.

    Raises:
        SourceError: if it asks for anything else, or is damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except SourceError:
        raise
    except Exception as error:  # damaged opcodes make the unpickler raise nearly anything
        raise SourceError("is damaged or not a pickle") from error


class _Type:
    """Stands in for a numpy.dtype: its size, sign and byte order."""

    def __init__(self, code: object, *_: object) -> None:
        if type(code) is not str or code not in (*INTEGER_BYTES, *FLOATS, *OBJECTS):
            raise SourceError(f"holds NumPy values of type {shown(code)}; only numbers are read")
        self.code = code
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


class PickledArray:
    """Stands in for a numpy.ndarray; what it claims is checked when it is read."""

    def __init__(self, *_: object) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def objects(self) -> list[Any] | None:
        """The elements of an array of Python objects in one dimension; None for any other."""
        _, _, kind, _, items = self._checked()
        return items if kind.code in OBJECTS and isinstance(items, list) else None

    def numbers(self) -> NDArray[Any] | None:
        """A matrix of numbers; None for any other array."""
        _, shape, kind, by_column, raw = self._checked()
        if kind.code in OBJECTS or not isinstance(raw, str | bytes) or len(shape) != 2:
            return None
        dtype = np.dtype((">" if kind.order == ">" else "<") + kind.code)
        size = math.prod(shape) * dtype.itemsize
        # Python 2 wrote a string.
        data = raw.encode("latin1", "ignore") if isinstance(raw, str) else raw
        if not size == len(raw) == len(data):
            return None
        return np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")

    def _checked(self) -> tuple[Any, ...]:
        if len(self._state) == 5:
            _, shape, kind, _, _ = self._state
            sizes = shape if isinstance(shape, tuple) else ("",)
            if isinstance(kind, _Type) and all(type(n) is int and n >= 0 for n in sizes):
                return self._state
        raise SourceError("holds a damaged NumPy array")


def _integer(kind: _Type, raw: str | bytes) -> int:
    """Stands in for numpy's scalar constructor; Python 2 wrote the bytes as a string."""
    if kind.code not in INTEGER_BYTES or len(raw) > LONGEST_INTEGER:
        raise SourceError("holds a NumPy scalar that is no integer")
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if len(data) != INTEGER_BYTES[kind.code]:
        raise SourceError("holds a damaged NumPy integer")
    return int.from_bytes(
        data, "big" if kind.order == ">" else "little", signed=kind.code.startswith("i")
    )


def _bytes(text: str, _: str) -> bytes:
    """Stands in for the codec by which Python 3 writes bytes in an old pickle: always Latin-1."""
    if len(text) > LONGEST_INTEGER:
        raise SourceError("holds long bytes where only integers are read")
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): PickledArray,
    **{(f"numpy.{core}.multiarray", "scalar"): _integer for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): PickledArray for core in ("core", "_core")},
    ("_codecs", "encode"): _bytes,
}


class _StandIn:
    """Calls one of `STAND_INS`, without letting a pickle set attributes on what it gets."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise SourceError("sets attributes of the objects that read it")


class _PlainDict(dict[Any, Any]):
    """A dict whose keys are cheap to hash: hashing a tuple would hash everything in it."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) not in (str, bytes, int):
            raise SourceError(f"has a key {shown(key)}; only strings and numbers are read")
        super().__setitem__(key, value)


# The Python unpickler: the one in C sizes its memo by four bytes of the file, up to 64 GB.
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    # It allocates whatever length the file claims, and rolls have no bytearrays.
    del dispatch[pickle.BYTEARRAY8[0]]
    # Members of a set are hashed, and rolls have no sets.
    for opcode in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET):
        del dispatch[opcode[0]]

    def load_empty_dict(self: Any) -> None:
        self.append(_PlainDict())

    def load_dict(self: Any) -> None:
        items = self.pop_mark()
        made = _PlainDict()
        for key, value in zip(items[::2], items[1::2], strict=True):
            made[key] = value
        self.append(made)

    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dict
    dispatch[pickle.DICT[0]] = load_dict

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            stand_in = STAND_INS[module_name, global_name]
        except KeyError:
            name = f"{module_name[:LONGEST_SHOWN]}.{global_name[:LONGEST_SHOWN]}"
            raise SourceError(f"asks for {name}; only containers and integers are read") from None
        return _StandIn(stand_in)
