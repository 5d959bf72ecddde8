"""Opens media files for `prepare` and similar commands; every failure is a reason to skip one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from seqmodel.errors import SeqmodelError, SourceError, reason
from seqmodel.files import NotAFileError, open_input

MAX_BYTES = 2**28
"""Limit for a file that is read whole, 256 MiB; anything longer is not music."""


@contextmanager
def named(name: str | Path, *, for_run: bool = False) -> Iterator[None]:
    """Where a single file is read: a SourceError becomes a SeqmodelError that names it.

    With `for_run` it says what helps where a run decides how files are read.
    """
    try:
        yield
    except SourceError as error:
        raise SeqmodelError(f"{name}: {error.for_run if for_run else error}") from error


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Yield a media file; SourceError if it cannot be opened or, within the block, read."""
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
    with opened(path) as file:
        return read_all(file)
