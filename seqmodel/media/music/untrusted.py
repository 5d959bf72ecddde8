"""Files of other programs that hold published rolls, read without running anything in them.

A pickle is a program that can call any function of any module. Here it can name only what NumPy
writes for numbers and arrays, and each call returns a `Call`, which merely records it. The time of
each opcode and the size of the object it makes are proportional to its own bytes: whatever a few
bytes can nest endlessly is never hashed, compared, printed or copied.

Of MATLAB's .mat files, versions 5 to 7, only what published rolls consist of is read: named cell
arrays of real, dense matrices. Source: MathWorks, "MAT-File Format", chapter 1, level 5.
"""

import io
import math
import pickle
import struct
import zlib
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError

# ---- plain pickle --------------------------------------------------------------------------------

NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
OBJECTS = ("O", "O4", "O8")
"""NumPy's names of the object types that arrays can have."""

ALLOWED_NAMES = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("_codecs", "encode"),  # how Python 3 writes bytes in old pickle protocols
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
}
"""Everything that a pickle may name."""

REFUSED_OPCODES = (pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
"""Opcodes that no writer of rolls needs: the first allocates whatever length it claims, the others
hash what they are given."""

MAX_ARGUMENTS = 3
"""The maximum in calls that NumPy writes: a long tuple would be copied by each of many calls."""

MAX_SHOWN = 40
"""Characters of a value in a message."""


def quoted(value: object) -> str:
    """A value for a message; only its type if its string might be endless."""
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64):
        return repr(value)
    if isinstance(value, str):
        return repr(value[:MAX_SHOWN])
    return f"of type {type(value).__name__}"


class Call:
    """What a call in a pickle would have made: the function, its arguments and the state."""

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = ()

    def __call__(self, *arguments: Any) -> "Call":
        if len(arguments) > MAX_ARGUMENTS:
            raise SourceError("holds a damaged NumPy array")
        return Call(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self) -> Any:
        """The numbers of an array, or of a scalar with shape (); a list if it holds objects.

        SourceError if it is anything else, or damaged.
        """
        try:
            if self.name == "scalar":
                (kind, raw), shape, by_column = self.arguments, (), False
            else:
                _, shape, kind, by_column, raw = self.state
            code, order = kind.arguments[0], kind.state[1] if kind.state else "<"
            if type(code) is not str or code not in NUMBERS + OBJECTS:
                raise SourceError(
                    f"holds NumPy values of type {quoted(code)}; only numbers are read"
                )
            if code in OBJECTS and isinstance(raw, list):
                return raw
            if isinstance(raw, Call):
                raw = raw.arguments[0]
            data = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 wrote strings
            numbers = np.frombuffer(data, (">" if order == ">" else "<") + code)
            return numbers.reshape(shape, order="F" if by_column else "C")
        except (AttributeError, LookupError, ValueError, TypeError, OverflowError) as error:
            raise SourceError("holds a damaged NumPy array") from error


class Items:
    """A pickled dict as (key, value) pairs in order: hashing a nested key might never end."""

    def __init__(self, items: Iterable[tuple[Any, Any]] = ()) -> None:
        self._items = list(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items.append((key, value))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._items)


# The Python unpickler, because the one in C sizes its memo by four bytes of the file, up to 64 GB.
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    for opcode in REFUSED_OPCODES:
        del dispatch[opcode[0]]

    def load_empty_dict(self: Any) -> None:
        self.append(Items())

    def load_dict(self: Any) -> None:
        items = self.pop_mark()
        self.append(Items(zip(items[::2], items[1::2], strict=True)))

    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dict
    dispatch[pickle.DICT[0]] = load_dict

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in ALLOWED_NAMES:
            name = f"{module_name[:MAX_SHOWN]}.{global_name[:MAX_SHOWN]}"
            raise SourceError(f"asks for {name}; only containers and numbers are read")
        return Call(global_name)


def load_plain(data: bytes) -> Any:
    """What a pickle holds: `Items` for dicts, lists, tuples, strings, numbers, `Call` for NumPy.

    SourceError if it asks for anything else, or is damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except SourceError:
        raise
    except Exception as error:  # damaged opcodes make the unpickler raise nearly anything
        raise SourceError("is damaged or not a pickle") from error


# ---- matlab --------------------------------------------------------------------------------------

HEADER_BYTES = 128
HDF5_VERSION = 0x0200
"""Version 7.3, a different format under the same header."""

MATRIX, COMPRESSED = 14, 15
TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"
}  # fmt: skip
"""Type of a data element -> NumPy's type code."""

CLASS, COMPLEX = 0x00FF, 0x0800
"""Masks for an array's flags."""
CELL, NUMERIC = 1, range(6, 16)
"""Array classes."""

MAX_CELLS = 2**16
"""Pieces of a split: an empty cell of eight bytes takes hundreds once read."""

MAX_UNPACKED = 2**29
"""Bytes of a variable: three times those of the largest published set in numbers of eight bytes."""


def read_cells(
    data: bytes, variables: Container[str]
) -> Iterator[tuple[str, list[NDArray[Any] | None]]]:
    """Yield the cell arrays among `variables`: name and cells in row-major order.

    A cell is a matrix, or None if it holds no real numbers. ValueError, struct.error or zlib.error
    if the file is damaged; SourceError if it is of version 7.3, or a variable is not a cell array.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise ValueError("not a .mat file of version 5 to 7")
    if struct.unpack_from(order + "H", data, 124)[0] == HDF5_VERSION:
        raise SourceError("is a .mat file of version 7.3; save it with -v7")
    for element in _elements(memoryview(data)[HEADER_BYTES:], order):
        kind, content = element
        if kind == COMPRESSED:
            kind, content = next(_elements(_unpacked(content), order), element)
        if kind != MATRIX or not content:
            continue
        flags, shape, name, elements = _array(content, order)
        if name not in variables:
            continue
        count = math.prod(shape)
        if flags & CLASS != CELL and count:
            raise SourceError(f"holds no cell array in {name}")
        if count > MAX_CELLS:
            raise SourceError(f"holds {count:,} cells in {name}; at most {MAX_CELLS:,} are read")
        cells = [_matrix(kind, cell, order) for kind, cell in islice(elements, count + 1)]
        if len(cells) != count:
            raise ValueError(f"other than {count} cells in {name}")
        by_row = np.arange(count).reshape(shape, order="F").ravel()
        yield name, [cells[k] for k in by_row]


def _unpacked(content: memoryview) -> memoryview:
    inflate = zlib.decompressobj()
    data = inflate.decompress(content, MAX_UNPACKED)
    if inflate.unconsumed_tail:
        raise SourceError(f"unpacks to more than {MAX_UNPACKED // 2**20} MiB; save it with -v6")
    return memoryview(data)


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(data):
        (word,) = struct.unpack_from(order + "I", data, at)
        if word >> 16:  # at most four bytes, within the tag
            kind, size, begin = word & 0xFFFF, word >> 16, at + 4
            at += 8
        else:
            kind, begin = word, at + 8
            (size,) = struct.unpack_from(order + "I", data, at + 4)
            at = begin + size + (-size % 8) * (kind != COMPRESSED)
        content = data[begin : begin + size]
        if len(content) < size:
            raise ValueError("an element that is cut short")
        yield kind, content


def _array(
    content: memoryview, order: str
) -> tuple[int, tuple[int, ...], str, Iterator[tuple[int, memoryview]]]:
    elements = _elements(content, order)
    (_, flags), (_, shape), (_, name) = islice(elements, 3)
    sizes = struct.unpack(f"{order}{len(shape) // 4}i", shape)
    return struct.unpack(order + "2I", flags)[0], sizes, bytes(name).decode("latin1"), elements


def _matrix(kind: int, content: memoryview, order: str) -> NDArray[Any] | None:
    if kind != MATRIX:
        raise ValueError(f"a cell of type {kind}")
    if not content:  # an empty cell
        return np.empty((0, 0))
    flags, shape, _, elements = _array(content, order)
    if flags & CLASS not in NUMERIC or flags & COMPLEX:
        return None
    kind, numbers = next(elements, (0, content))
    if kind not in TYPES:
        raise ValueError("a matrix without numbers")
    return np.frombuffer(numbers, order + TYPES[kind]).reshape(shape, order="F")
