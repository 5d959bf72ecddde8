"""Files of other programs that hold published rolls, read without running anything in them.

A pickle is a program that may call any function of any module. Here it can look up only the names
that NumPy writes for numbers and arrays, and gets our own stand-ins for them. The time of each
opcode and the size of the object it makes are of the order of its own bytes: whatever a few bytes
can nest endlessly is never hashed, compared, printed or copied.

Of MATLAB's .mat files, versions 5 to 7, only what published rolls consist of is read, as a stream:
named cell arrays of real, dense matrices. Memory is bounded by what the caller reads of each
matrix; nothing is allocated based on a header's claims. Source: MathWorks, "MAT-File Format",
chapter 1, level 5.
"""

import io
import math
import pickle
import struct
import zlib
from collections.abc import Callable, Container, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError

# ---- plain pickle --------------------------------------------------------------------------------

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


# ---- matlab --------------------------------------------------------------------------------------

HEADER_BYTES = 128
HDF5_VERSION = 0x0200
"""Version 7.3, a different format under the same header."""

MATRIX, COMPRESSED = 14, 15
NUMBERS = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"
}  # fmt: skip
"""Type of a data element -> NumPy's type code."""

CLASS, COMPLEX = 0x00FF, 0x0800
"""Masks for an array's flags."""
CELL, NUMERIC = 1, range(6, 16)
"""Array classes."""

LONGEST_NAME = 255
MOST_DIMENSIONS = 32
ALIGNMENT = 8
READ_AT_ONCE = 2**16


class Stream(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, fewer only at the end."""


class Matrix(NamedTuple):
    """A matrix in a cell, in column-major order; `stream` is positioned at its first number."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    stream: Stream


class Cell(NamedTuple):
    """A cell of a variable."""

    variable: str
    number: int
    """Its index in row-major order."""
    matrix: Matrix | None
    """None if it holds no real numbers."""


def read_cells(file: Stream, variables: Container[str]) -> Iterator[str | Cell]:
    """Yield the cells of `variables` in file order, each variable's name before its cells.

    A matrix must be read before the next cell is requested.

    Raises:
        ValueError, struct.error or zlib.error: if the file is damaged or not a .mat file.
        SourceError: if it is of version 7.3, or one of the variables is not a cell array.
    """
    header = file.read(HEADER_BYTES)
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    if order is None:
        raise ValueError("not a .mat file of version 5 to 7")
    if struct.unpack(order + "H", header[124:126])[0] == HDF5_VERSION:
        raise SourceError("is a .mat file of version 7.3; save it with -v7")
    elements = _Elements(file, order)
    while (element := elements.next()) is not None:
        if element.kind == COMPRESSED:
            element = _Elements(_Inflating(element.data), order).next() or element
        if element.kind == MATRIX and element.size:
            yield from _cells(_Elements(element.data, order), variables)


def _cells(elements: "_Elements", variables: Container[str]) -> Iterator[str | Cell]:
    flags, shape, name = elements.array_header()
    if name not in variables:
        return
    count = math.prod(shape)
    if flags & CLASS != CELL and count:
        raise SourceError(f"holds no cell array in {name}")
    yield name
    for k in range(count):
        element = elements.next()
        if element is None or element.kind != MATRIX:
            raise ValueError(f"cell {k} of {name} is not there")
        number = int(np.ravel_multi_index(np.unravel_index(k, shape, "F"), shape))
        yield Cell(name, number, _matrix(element, elements.order))
        if element.data.left >= ALIGNMENT:
            raise ValueError(f"cell {k} of {name} is longer than its matrix")


def _matrix(element: "_Element", order: str) -> Matrix | None:
    if not element.size:  # an empty cell
        return Matrix((0, 0), np.dtype("u1"), element.data)
    elements = _Elements(element.data, order)
    flags, shape, _ = elements.array_header()
    if flags & CLASS not in NUMERIC or flags & COMPLEX:
        return None
    numbers = elements.next()
    if numbers is None or numbers.kind not in NUMBERS:
        raise ValueError("a matrix without numbers")
    dtype = np.dtype(order + NUMBERS[numbers.kind])
    if math.prod(shape) * dtype.itemsize != numbers.size:
        raise ValueError(f"{numbers.size} bytes for a matrix {shape}")
    return Matrix(shape, dtype, numbers.data)


class _Bounded:
    """The next bytes of a stream, at most `left`."""

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream, self.left = stream, size

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self.left))
        self.left -= len(data)
        return data


class _Element(NamedTuple):
    kind: int
    size: int
    data: _Bounded


class _Elements:
    """The tagged data elements of a stream."""

    def __init__(self, stream: Stream, order: str) -> None:
        self._stream = stream
        self.order = order
        self._rest: _Bounded | None = None
        """What is left of the last element, including its padding."""

    def next(self) -> _Element | None:
        """The next element, or None at the end; its data must be read before the next call."""
        while self._rest is not None and self._rest.read(READ_AT_ONCE):
            pass
        tag = self._stream.read(4)
        if not tag:
            return None
        (word,) = struct.unpack(self.order + "I", tag)
        if word >> 16:  # at most four bytes, within the tag
            kind, size, room = word & 0xFFFF, word >> 16, 4
            if size > room:
                raise ValueError(f"{size} bytes within a tag")
        else:
            kind = word
            (size,) = struct.unpack(self.order + "I", self._stream.read(4))
            room = size if kind == COMPRESSED else -(-size // ALIGNMENT) * ALIGNMENT
        self._rest = _Bounded(self._stream, room)
        return _Element(kind, size, _Bounded(self._rest, size))

    def array_header(self) -> tuple[int, tuple[int, ...], str]:
        """An array's flags, dimensions and name."""
        flags = self._integers("I", 2)
        shape = self._integers("i", MOST_DIMENSIONS)
        if not flags or len(shape) < 2 or min(shape) < 0:
            raise ValueError(f"flags {flags}, dimensions {shape}")
        return flags[0], shape, bytes(self._integers("B", LONGEST_NAME)).decode("latin1")

    def _integers(self, code: str, most: int) -> tuple[int, ...]:
        """The next element as integers of one size, at most `most` of them."""
        element = self.next()
        count, rest = divmod(element.size if element else 0, struct.calcsize("=" + code))
        if element is None or rest or count > most:
            raise ValueError("an impossible element")
        return struct.unpack(f"{self.order}{count}{code}", element.data.read(element.size))


class _Inflating:
    """Compressed bytes, decompressed only as far as they are read."""

    def __init__(self, packed: Stream) -> None:
        self._packed = packed
        self._inflate = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        parts = []
        while size:
            packed = self._inflate.unconsumed_tail or self._packed.read(READ_AT_ONCE)
            part = self._inflate.decompress(packed, size)
            if not part and not packed:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
