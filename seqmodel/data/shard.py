"""The rows of a split on disk, read on demand.

They are not memory-mapped: if a mapped file is truncated, or its disk fails, the process is killed
by a bus error before it can save anything.
"""

import math
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, reason
from seqmodel.files import open_input
from seqmodel.media.npy import read_header


class LostError(SeqmodelError):
    """A dataset that could be opened turns out to be gone or changed."""


class Shard:
    """A .npy opened for reading; `shard[a:b]` reads its rows a to b into a new array.

    The file stays open as long as the object lives, so that all reads are from the same file.

    Attributes:
        path: the file.
        shape, dtype: of the whole array.

    Raises:
        ValueError: if the file is not a .npy of numbers, or longer or shorter than its header says.
        OSError: if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_input(path) as file:
            self.shape, fortran_order, self.dtype, self._offset, _ = header = read_header(file)
            if fortran_order or self.dtype.hasobject or not self.shape:
                raise ValueError("not an array of rows")
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        self._opened = os.fstat(self._descriptor)
        self._changed = self._opened.st_mtime_ns
        if self._opened.st_size != self._offset + header.nbytes:
            raise ValueError("longer or shorter than it says")

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """The rows of a slice without a step; LostError if they can no longer be read."""
        start, stop, _ = rows.indices(self.shape[0])
        count = max(0, stop - start)
        left, place, parts = count * self._row_bytes, self._offset + start * self._row_bytes, []
        while left:
            try:
                parts.append(os.pread(self._descriptor, left, place))
            except OSError as error:
                raise self._lost(f"cannot be read ({reason(error)})") from error
            if not parts[-1]:
                raise self._lost("has been cut short")
            left, place = left - len(parts[-1]), place + len(parts[-1])
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])

    def changed(self) -> bool:
        """Whether the file was written to since the last call, or since it was opened.

        LostError if it was removed, replaced, cut short or added to.
        """
        try:
            now = self.path.stat()
        except OSError as error:
            raise self._lost("has gone") from error
        if not os.path.samestat(now, self._opened):
            raise self._lost("has been replaced")
        if now.st_size != self._opened.st_size:
            raise self._lost("has been cut short or added to")
        before, self._changed = self._changed, now.st_mtime_ns
        return now.st_mtime_ns != before

    def _lost(self, how: str) -> LostError:
        return LostError(f"{self.path} {how} since it was opened")
