"""A streaming reader of cell arrays in MATLAB's .mat files, versions 5 to 7.

It reads only what published rolls consist of: named cell arrays of real, dense matrices. Memory is
bounded by what the caller reads of each matrix; nothing is allocated based on a header's claims.

Source: MathWorks, "MAT-File Format", chapter 1, level 5.
"""

import math
import struct
import zlib
from collections.abc import Container, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from seqmodel.errors import SourceError

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
