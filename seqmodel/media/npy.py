"""Untrusted .npy files as streams: nothing is allocated before the header is validated."""

import io
import math
import warnings
from typing import Any, BinaryIO, NamedTuple

import numpy as np

LONGEST_HEADER = 10_000
"""Bytes of the longest header that NumPy parses, having read up to 4 GB that its length claims."""


class Header(NamedTuple):
    """What a .npy states about its array."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    offset: int
    """Where the array begins in the file."""
    comment: str
    """What follows "#" in the header, as `with_comment` writes it; NumPy skips it."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: BinaryIO) -> Header:
    """Read the header of a .npy, up to where the array begins; ValueError if it is damaged."""
    start = stream.read(8)
    start += stream.read(2 if start[6:7] == b"\x01" else 4)
    size = int.from_bytes(start[8:], "little")
    if size > LONGEST_HEADER:
        raise ValueError(f"a header of {size} bytes")
    header = io.BytesIO(start + stream.read(size))
    try:
        newer = np.lib.format.read_array_header_2_0
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): newer, (3, 0): newer}
        read = readers[np.lib.format.read_magic(header)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as that it was written by Python 2
            shape, fortran_order, dtype = read(header)
    except Exception as error:  # its text is parsed as Python, which can raise nearly anything
        raise ValueError("a damaged header") from error
    if any(type(size) is not int or size < 0 for size in shape):  # NumPy takes True for one
        raise ValueError(f"a shape of {shape}")
    comment = header.getvalue().decode("latin1").partition("#")[2].strip()
    return Header(shape, fortran_order, dtype, header.tell(), comment)


def with_comment(data: bytes, comment: str) -> bytes:
    """A .npy as `np.save` writes it, with a comment of a few words in place of some padding."""
    text = f"# {comment}".encode()
    return data.replace(b" " * len(text) + b"\n", text + b"\n", 1)
