"""Locks between processes, which one that dies does not keep."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqmodel.errors import SeqmodelError
from seqmodel.files import missing_folders, remove_empty


@contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock file `path` for the length of the block; yields whether that worked.

    A process that dies holds nothing. `wait` for whoever has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield take(file, wait=wait)
    finally:
        os.close(file)


def take(file: int, *, wait: bool) -> bool:
    """Lock an open file until it is closed; False where another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(target: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from `target`, a file or folder that is to be written or replaced.

    The lock is a file beside it, so that it need not be there yet and may be replaced by another;
    it goes with the block. Where none can be made, as beside a folder that belongs to somebody
    else, the folder itself is locked; and where the file system knows no locks, nothing is.

    Raises:
        SeqmodelError: where another process has it, unless told to `wait`.
    """
    place = Path(os.path.realpath(target))  # unlike Path.resolve, also of a link to itself
    lock = place.parent / f".{place.name}.lock"
    missing = missing_folders(lock)
    file = _taken(target, place, lock, wait=wait)
    try:
        yield
    finally:
        if file is not None:
            if _is(file, lock):
                lock.unlink()
            os.close(file)
        remove_empty(missing)


def _taken(target: Path, place: Path, lock: Path, *, wait: bool) -> int | None:
    while True:
        path, file = _opened(lock, place)
        if file is None:
            return None
        try:
            free = take(file, wait=wait)
        except OSError:
            os.close(file)
            return None
        if not free:
            os.close(file)
            raise SeqmodelError(
                f"another process is writing {target}: wait until it has ended, or name another "
                "place"
            )
        if _is(file, path):
            return file
        os.close(file)  # whoever had it has removed it, or put another folder there


def _opened(lock: Path, place: Path) -> tuple[Path, int | None]:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        return lock, os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError:
        pass
    try:
        return place, os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return place, None


def _is(file: int, path: Path) -> bool:
    """Whether `path` names the open file."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
