"""Inter-process locks, released when the process dies."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqmodel.errors import SeqmodelError, reason
from seqmodel.files import disk_errors, no_empty_parents, sibling
from seqmodel.system.files import DIRECTORY, NOFOLLOW, NONBLOCK

POLL_SECONDS = 0.005
"""Seconds between attempts at a lock that another process holds."""


@contextmanager
def held_lock(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock file `path` for the block, and yield whether it is held.

    It is not if another process holds it, unless `wait` is set, which waits until it is free.

    SeqmodelError if the file cannot be created, or the file system has no locks.
    """
    with disk_errors("lock", path):
        file = _open(path)
    if file is None:
        raise SeqmodelError(f"{path} is not a file: remove it")
    try:
        yield acquire(file, path, wait=wait)
    finally:
        os.close(file)


def _open(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | NOFOLLOW | NONBLOCK, 0o666)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def acquire(file: int, path: Path, *, wait: bool) -> bool:
    """Lock an open file until it is closed; False if another process holds the lock.

    SeqmodelError if the file system of its `path` has no locks, like some network file systems.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(file, blocking=wait, poll_interval=POLL_SECONDS)
    except OSError as error:
        raise SeqmodelError(
            f"cannot lock files in {path.parent} ({reason(error)}): choose a folder on a disk of "
            "this machine"
        ) from error


@contextmanager
def locked(target: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from `target`, a file or folder to be written or replaced.

    The lock is an empty file next to it, removed when the block ends, or the folder itself if no
    file can be created; nothing if that fails too, or if there are no locks. SeqmodelError if
    another process holds it, unless `wait` is set.
    """
    real_path = Path(os.path.realpath(target))  # unlike Path.resolve, accepts a link to itself
    lock = sibling(real_path, "lock")
    with no_empty_parents(real_path):
        file = _acquire_lock(target, real_path, lock, wait=wait)
        try:
            yield
        finally:
            if file is not None:
                _release(file, lock)


def _release(file: int, lock: Path) -> None:
    is_ours = _same_file(file, lock) and not os.fstat(file).st_size  # with content it is not ours
    try:
        if is_ours:
            lock.unlink(missing_ok=True)
        os.close(file)
    except PermissionError:  # on Windows, while it is open
        os.close(file)
        with suppress(PermissionError):  # a waiting process has it open
            lock.unlink(missing_ok=True)


def _acquire_lock(target: Path, real_path: Path, lock: Path, *, wait: bool) -> int | None:
    while True:
        path, file = _open_lock(lock, real_path)
        if file is None:
            return None
        try:
            free = acquire(file, path, wait=wait)
        except SeqmodelError:
            _release(file, lock)
            return None
        if not free:
            os.close(file)
            raise SeqmodelError(
                f"another process is writing {target}: wait for it to finish, or choose another "
                "path"
            )
        if _same_file(file, path):
            return file
        os.close(file)  # the previous holder removed it, or put another folder there


def _open_lock(lock: Path, real_path: Path) -> tuple[Path, int | None]:
    with suppress(OSError):
        if (file := _open(lock)) is not None:
            return lock, file
    with suppress(OSError):
        return real_path, os.open(real_path, os.O_RDONLY | DIRECTORY)
    return real_path, None


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
