"""A disk cache of compiled modules and other results: only a user's first process waits for them.

A key is the digest of everything a result depends on (for a module its IR, the processor, and the
compiler's version and options), so no entry is ever stale. The folder belongs to the user, like
Python's __pycache__. A folder or file that others can write to is not used, since code is executed.
Without a folder, or on a full disk, everything is made as if there were no cache.

Set SEQMODEL_CACHE to another folder, or to an empty value to disable the cache.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_cache_path

from seqmodel.errors import SeqmodelError
from seqmodel.files import TEMPORARY, open_input, write_file
from seqmodel.system.files import is_private

_FOLDER_VARIABLE = "SEQMODEL_CACHE"
_MAX_AGE_DAYS = 30  # since last use
_DIGEST_SIZE = 32
_CACHE_FILE = re.compile(r"[0-9a-f]{64}\.(o|figures)")
"""Names of cache files."""


def digest(*parts: str) -> str:
    """A key: 64 hexadecimal digits."""
    text = "\0".join(parts).encode()
    return blake2b(text, digest_size=_DIGEST_SIZE).hexdigest()


def cached(name: str, make: Callable[[], bytes], kind: str = "o") -> bytes:
    """The bytes cached under `name`, a digest; made and cached if missing or damaged.

    `kind` is the file's suffix: "o" for code, or "figures".
    """
    folder = _folder()
    if folder is None:
        return make()
    path = folder / f"{name}.{kind}"
    code = _read(path)
    if code is None:
        code = make()
        with suppress(SeqmodelError):  # a full disk: the next process compiles again
            write_file(path, _checksum(code) + code, 0o600)
            _sweep(folder)
    return code


def _folder() -> Path | None:
    """The cache folder, created if needed; None unless only this user may write to it."""
    variable = os.environ.get(_FOLDER_VARIABLE)
    if variable == "":
        return None
    try:
        folder = Path(variable).absolute() if variable else user_cache_path("seqmodel") / "kernels"
        if not folder.is_absolute():  # from older versions of platformdirs if there is no home
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if is_private(folder.stat()) else None
    except (OSError, RuntimeError):  # nowhere to write; a user without a home, as in containers
        return None


def _read(path: Path) -> bytes | None:
    try:
        with open_input(path) as file:
            if not is_private(os.fstat(file.fileno())):
                return None
            content = file.read()
    except OSError:
        return None
    with suppress(OSError):  # a read-only cache
        os.utime(path)  # so that it is not swept
    checksum, code = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return code if checksum == _checksum(code) else None


def _checksum(code: bytes) -> bytes:
    return blake2b(code, digest_size=_DIGEST_SIZE).digest()


@cache
def _sweep(folder: Path) -> None:
    """Remove files long unused: code of other versions, and leftovers of killed processes.

    Runs once per process. Nothing else is removed: the folder may hold unrelated files.
    """
    oldest = time.time() - _MAX_AGE_DAYS * 24 * 60 * 60
    with suppress(OSError):  # another process may be sweeping too
        for path in folder.iterdir():
            temporary = TEMPORARY.fullmatch(path.name)
            name = temporary[1] if temporary else path.name
            if _CACHE_FILE.fullmatch(name) and path.stat().st_mtime < oldest:
                path.unlink()
