"""What was read of files, kept in a folder that any number of processes and hosts may share.

An entry is named by the hash of all that it depends on: the file's bytes, the settings that count,
this program's source and NumPy's version. So none is ever stale, and no byte of a dataset depends
on the cache. An entry that is damaged, or another's, is made again: its compressed pickle holds its
name and ends with a checksum. Unpickling makes nothing but what the corpus and NumPy's arrays
consist of: who can write to the folder can falsify datasets, but not run code.
"""

import io
import pickle
import zlib
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from seqmodel.errors import SeqmodelError
from seqmodel.files import TEMPORARY, program_hash, read_bytes, write_file
from seqmodel.media.definitions import Corpus
from seqmodel.media.input import read_whole

TAG = "CACHEDIR.TAG"
"""Tells backup programs that a folder is a cache: https://bford.info/cachedir/."""
TAG_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# Files read by seqmodel prepare.\n"

GZIP = 31
"""zlib's name of the format, which ends with a CRC-32."""


def open_cache(folder: Path) -> None:
    """Make `folder` a cache if it is new or empty; SeqmodelError if it is anything else."""
    if _is_cache(folder):  # which may be one that can only be read
        return
    # Another process may be making the cache, or one was killed as it wrote the tag.
    if not folder.exists() or (
        folder.is_dir() and all(TEMPORARY.fullmatch(path.name) for path in folder.iterdir())
    ):
        write_file(folder / TAG, TAG_TEXT)
    elif not _is_cache(folder):
        raise SeqmodelError(f"{folder} is not a cache of prepare; choose another path")


def _is_cache(folder: Path) -> bool:
    with suppress(SeqmodelError):
        return read_bytes(folder / TAG) == TAG_TEXT
    return False


class CachedRead:
    """`corpus.read` by way of a cache; SourceErrors are not kept."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self._folder, self._read, self._kind = folder, corpus.read, corpus.read_types[0]
        made_by: Any = np.zeros(0).__reduce_ex__(pickle.HIGHEST_PROTOCOL)[0]
        types = (*corpus.read_types, np.dtype, made_by)
        self._allowed = {(each.__module__, each.__qualname__): each for each in types}
        self._shared_key = f"{program_hash()} {np.__version__} {corpus.read_by}"

    def __call__(self, path: Path) -> Any:
        data = read_whole(path)
        key = sha256(f"{self._shared_key}\0".encode() + data).hexdigest()
        entry = self._folder / key
        with suppress(Exception):  # a pickle of somebody else's can raise any
            content = zlib.decompress(read_bytes(entry), GZIP)
            name, kept = _Unpickler(io.BytesIO(content), self._allowed).load()
            if name == key and isinstance(kept, self._kind):
                return kept
        found = self._read(path)
        if read_whole(path) == data:  # otherwise it may be neither's
            content = pickle.dumps((key, found), pickle.HIGHEST_PROTOCOL)
            with suppress(SeqmodelError):  # a full disk
                write_file(entry, zlib.compress(content, 1, GZIP), flush=False)
        return found


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, allowed: dict[tuple[str, str], Any]) -> None:
        super().__init__(file)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._allowed:
            return self._allowed[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} is not kept")
