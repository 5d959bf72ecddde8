"""Safe reading of media files; no NumPy at import."""

import io
import math
import os
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from seqmodel.errors import SeqmodelError, SourceError, reason
from seqmodel.files import NotAFileError, open_input

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 2**28
"""Limit for a file read whole, 256 MiB; anything longer is not music."""

_FFMPEG = ".m4a .m4b .m4r .mp4 .m4v .mov .3gp .aac .ac3 .eac3 .dts .wma .wmv .asf .avi .mkv .mka"
_FFMPEG += " .webm .weba .flv .amr .ape .wv .mpc .tta .tak .shn .spx .ra .rm .dsf .dff"
_MUSESCORE = ".musicxml .mxl .mscz .mscx .gp .gp3 .gp4 .gp5 .gpx .capx"
CONVERTERS = {
    **dict.fromkeys(_FFMPEG.split(), ("ffmpeg -i {file} {target}", ".flac")),
    **dict.fromkeys(_MUSESCORE.split(), ("mscore -o {target} {file}", ".mid")),
    ".abc": ("abc2midi {file} -o {target}", ".mid"),
}
"""Suffix of sound or music that no medium reads -> the command to convert it, and to what."""


@contextmanager
def naming(name: str | Path, *, for_run: bool = False) -> Iterator[None]:
    """Turn a SourceError into a SeqmodelError that names the file.

    With `for_run`, its advice fits files that are read as a run requires.
    """
    try:
        yield
    except SourceError as error:
        raise SeqmodelError(f"{name}: {error.for_run if for_run else error}") from error


def rejection(path: Path) -> str | None:
    """Why no medium reads a file of this name, and what to do; None if one might."""
    if path.suffix.lower() not in CONVERTERS:
        return None
    command, suffix = CONVERTERS[path.suffix.lower()]
    file, target = (shlex.quote(str(name)) for name in (path, path.with_suffix(suffix)))
    return f"cannot be read; convert it first: {command.format(file=file, target=target)}"


@contextmanager
def open_media(path: Path) -> Iterator[BufferedReader]:
    """Yield a media file; SourceError if it cannot be opened or, within the block, read."""
    if why := rejection(path):
        raise SourceError(why)
    try:
        with open_input(path) as file:
            yield file
    except NotAFileError as error:
        raise SourceError("is not a file") from error
    except OSError as error:
        raise SourceError(reason(error)) from error


def read_all(file: BufferedReader) -> bytes:
    """The bytes of a media file; SourceError if there are none or too many."""
    size = os.fstat(file.fileno()).st_size
    if size > MAX_BYTES:
        raise SourceError(f"is longer than {MAX_BYTES // 2**20} MiB")
    data = file.read(size)
    if not data:
        raise SourceError("is empty")
    return data


def read_whole(path: Path) -> bytes:
    """`read_all` of the file at `path`; SourceError also if it cannot be opened."""
    with open_media(path) as file:
        return read_all(file)


# ---- .npy ----------------------------------------------------------------------------------------

MAX_HEADER_BYTES = 10_000
"""Bytes of the longest header that NumPy parses, after reading up to 4 GB if it claims so."""


class Header(NamedTuple):
    """The header of a .npy, whose array begins at `offset` in the file.

    The comment follows "#", as `with_comment` writes it; NumPy ignores it.
    """

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: "np.dtype[Any]"
    offset: int
    comment: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: BinaryIO) -> Header:
    """Read the header of a .npy, up to where the array begins; ValueError if it is damaged."""
    import numpy as np

    start = stream.read(8)
    start += stream.read(2 if start[6:7] == b"\x01" else 4)
    size = int.from_bytes(start[8:], "little")
    if size > MAX_HEADER_BYTES:
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
    if any(type(size) is not int or size < 0 for size in shape):  # NumPy accepts True as 1
        raise ValueError(f"a shape of {shape}")
    comment = header.getvalue().decode("latin1").partition("#")[2].strip()
    return Header(shape, fortran_order, dtype, header.tell(), comment)


def with_comment(data: bytes, comment: str) -> bytes:
    """A .npy as written by `np.save`, with a short comment in place of some padding."""
    text = f"# {comment}".encode()
    return data.replace(b" " * len(text) + b"\n", text + b"\n", 1)
