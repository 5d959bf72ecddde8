"""File operations that differ by system: opening, reading, flushing, exchanging, ownership."""

import errno
import os
import stat
import threading
from pathlib import Path

from seqmodel.system import native

FD_PATHS = ("/", "dev"), ("/", "proc")
"""How the paths of open files begin. Other pipes may have no writer, and would block forever."""
NONBLOCK = getattr(os, "O_NONBLOCK", 0)
"""Without it, opening a pipe can block; it has no effect on regular files."""
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)

_FLUSH_MODE = os.O_RDONLY if NONBLOCK else os.O_RDWR  # Windows flushes only writable files
_CANNOT_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}
"""How file systems refuse to flush a folder: CIFS, an unlistable one, all of Windows."""
_CWD, _EXCHANGE = -100, 2  # as numbered in Linux's headers, the second also in those of macOS
_seek_lock = threading.Lock()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """At most `size` bytes of an open file from offset `offset`; OSError if it cannot be read."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    with _seek_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


def flush(path: Path) -> None:
    """Flush a file to disk, or a folder if the system can."""
    try:
        descriptor = os.open(path, _FLUSH_MODE)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH or not path.is_dir():
            raise


def exchange(one: Path, other: Path) -> bool:
    """Exchange two paths atomically; False if it cannot be done."""
    path, number = native.BYTES, native.INT32
    if address := native.address_of("renameat2"):
        rename = native.function(address, [number, path, number, path, number], number)
        return bool(rename(_CWD, bytes(one), _CWD, bytes(other), _EXCHANGE) == 0)
    if address := native.address_of("renamex_np"):  # macOS
        rename = native.function(address, [path, path, number], number)
        return bool(rename(bytes(one), bytes(other), _EXCHANGE) == 0)
    return False


def is_private(info: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, and nobody else may write to it.

    On Windows, where modes do not show this, assume so: the folders of a user's profile are.
    """
    user = getattr(os, "getuid", None)
    others = stat.S_IWGRP | stat.S_IWOTH
    return user is None or (info.st_uid == user() and not info.st_mode & others)
