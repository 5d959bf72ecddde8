"""Reads that never block on non-files, unless a pipe is allowed; writes that are atomic; locks.

Everything is written next to its target under a temporary name, flushed to disk and renamed.
Nothing is replaced unless the caller allows it. A link to a file or a folder is followed: the link
stays, and its target is created or replaced. Locks are released when their process dies.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b, sha256
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from seqmodel.errors import SeqmodelError, reason
from seqmodel.system import files as system

SYSTEM_FILES = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini")
"""Names of files that desktops leave in any folder they display; safe to delete."""


@contextmanager
def disk_errors(doing: str, path: Path) -> Iterator[None]:
    """An OSError in the block becomes a SeqmodelError: what was being done, to which path, and why.

    It stays one if no file is at fault, such as a library that cannot be loaded.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        from_mkdir = isinstance(error, FileExistsError)
        why = f"{error.filename} is a file, not a folder" if from_mkdir else reason(error)
        raise SeqmodelError(f"cannot {doing} {path}: {why}") from error


@contextmanager
def renamed_in_errors(inner: Path, name: Path) -> Iterator[None]:
    """Errors in the block name `name` instead of a temporary folder that the user never sees."""
    try:
        yield
    except SeqmodelError as error:
        error.args = (str(error).replace(str(inner), str(name)),)
        raise


@cache
def program_hash() -> str:
    """The hash of this program's source, any part of which might change a result."""
    content = sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        content.update(file.read_bytes())
    return content.hexdigest()


POLL_SECONDS = 0.005
"""Seconds between attempts at a lock that another process holds."""

MAX_NAME_BYTES = 100
"""Maximum bytes of a name; our names next to longer ones contain its digest instead."""

TEMPORARY = re.compile(r"\.(.+)\.seqmodel-[0-9a-f]{12}", re.DOTALL)
"""A temporary name that only we use; the group is the final name, or its digest."""


class NotAFileError(OSError):
    """A pipe or a device where a regular file is expected."""


def open_input(path: Path) -> BufferedReader:
    """Open a file for reading; used for every file that others may have put there.

    NotAFileError for a pipe or a device, which may never end; OSError if it cannot be opened.
    """
    # The file owns its descriptor from the start, so that a signal cannot leave two owners.
    opener = partial(_open_with, mode=0, extra=system.NONBLOCK)
    file = open(path, "rb", opener=opener)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotAFileError(errno.EINVAL, "not a file", str(path))
    return file


def _open_with(path: str, flags: int, mode: int, extra: int = 0) -> int:
    return os.open(path, flags | extra, mode)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file; SeqmodelError if it cannot be read, or holds more than `most`.

    With `most`, it can also be a pipe that the shell has opened for us, as for <(...).
    """
    with disk_errors("read", path):
        bounded_pipe = most is not None and path.is_fifo() and path.parts[:2] in system.FD_PATHS
        with path.open("rb") if bounded_pipe else open_input(path) as file:
            content = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise SeqmodelError(f"{path} is larger than {most:,} bytes, too large to be valid")
    return content


def refuse_existing(path: Path, *, force: bool) -> None:
    """SeqmodelError if `path` exists and may not be replaced; call it before the work."""
    if not force and (path.exists() or path.is_symlink()):
        raise SeqmodelError(f"{path} already exists; add --force to replace it")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise SeqmodelError(f"{path} is a device or a pipe, which would be replaced; choose a file")


def check_writable(path: Path, try_it: Callable[[int], object] = lambda file: None) -> None:
    """SeqmodelError unless a file can be created at `path`; call it before the work.

    Leaves nothing behind. `try_it` tries whatever else the open file must support.
    """
    with _temporary_file(path, 0o666) as (file, _, target):
        with suppress(FileNotFoundError):
            target.lstat()  # fails if the name is too long, though the temporary one is not
        try_it(file.fileno())


def link_target(path: Path) -> Path:
    """What a write to `path` creates or replaces: the target of a link, or `path` itself."""
    if not path.is_symlink():
        return path
    end = Path(os.path.realpath(path))
    if end.is_symlink():
        raise SeqmodelError(f"{path} is a link that leads to itself; choose another path")
    return end


@contextmanager
def no_empty_parents(path: Path) -> Iterator[None]:
    """Parent folders of `path` that the block creates are removed at its end if they are empty."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        yield
    finally:
        remove_empty(missing)


def remove_empty(folders: list[Path]) -> None:
    """Remove each of `folders` that exists and is empty, in this order."""
    for folder in folders:
        with suppress(OSError):  # no longer empty
            folder.rmdir()


def write_file(path: Path, data: bytes, mode: int = 0o666, *, flush: bool = True) -> None:
    """Write `data` to `path` atomically, replacing what is there; see `new_file`."""
    with new_file(path, mode, flush=flush) as file:
        file.write(data)


@contextmanager
def new_file(path: Path, mode: int = 0o666, *, flush: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when the block ends without an exception.

    Its permissions are `mode`, less what the umask takes away. Without `flush`, which takes
    milliseconds, a power cut may leave it damaged.
    """
    with _temporary_file(path, mode) as (file, temporary, target):
        yield file
        file.flush()
        if flush:
            os.fsync(file.fileno())
        file.close()  # Windows cannot rename an open file
        temporary.replace(target)


@contextmanager
def _temporary_file(path: Path, mode: int) -> Iterator[tuple[BinaryIO, Path, Path]]:
    """Yield a new file, its path, and its final path; the file, if left, is removed at the end.

    OSErrors become SeqmodelErrors, including those in the block.
    """
    target = link_target(path)
    temporary = _temporary(target)
    with disk_errors("write", path), no_empty_parents(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Not with tempfile, whose files are private whatever the umask.
            with open(temporary, "xb", opener=partial(_open_with, mode=mode)) as opened:
                yield opened, temporary, target
        finally:
            with suppress(OSError):
                temporary.unlink()


def sibling(path: Path, ending: str) -> Path:
    """A hidden name for our files next to `path`, short enough for file systems."""
    name = os.fsencode(path.name)
    stem = path.name if len(name) <= MAX_NAME_BYTES else blake2b(name, digest_size=16).hexdigest()
    return path.parent / f".{stem}.seqmodel-{ending}"


def _temporary(path: Path) -> Path:
    return sibling(path, os.urandom(6).hex())


@dataclass(frozen=True)
class FolderFormat:
    """A kind of folder that seqmodel writes, and that `--force` may therefore replace."""

    name: str
    """The format's name in messages, such as "prepared dataset"."""
    is_marked: Callable[[Path], bool]
    """Whether a folder carries the format's own mark."""
    files: re.Pattern[str]
    """Matches the relative paths of all files that the folder may hold."""

    def check_target(self, folder: Path, *, force: bool) -> None:
        """SeqmodelError unless `folder` may be written; call it before the work.

        With `force` it may exist, if it is empty or of this format with no other files in it.
        """
        new = not folder.exists() or (folder.is_dir() and self._is_unwritten(folder))
        if not new and not (folder.is_dir() and self.is_marked(folder)):
            raise SeqmodelError(
                f"{folder} is not a {self.name}, so it is never replaced; choose another path"
            )
        refuse_existing(folder, force=force)
        foreign = () if new else (path for path in _files_in(folder) if not self.owns(path))
        for path in sorted(foreign)[:1]:
            raise SeqmodelError(
                f"{folder} holds {path}, which is not part of a {self.name}; move it elsewhere or "
                "choose another path"
            )
        check_writable(folder)

    def owns(self, path: Path) -> bool:
        """Whether a path within a folder counts as part of this format."""
        if SYSTEM_FILES.fullmatch(path.name):
            return True
        # A process killed while writing leaves its temporary file; see `new_file`.
        temporary = TEMPORARY.fullmatch(path.name)
        written = path.with_name(temporary[1]) if temporary else path
        return bool(self.files.fullmatch(written.as_posix()))

    def _is_unwritten(self, folder: Path) -> bool:
        """Whether a folder is empty apart from temporary files that a killed process left."""
        return all(
            self.owns(path.relative_to(folder)) and TEMPORARY.fullmatch(path.name)
            for path in folder.iterdir()
        )


def _files_in(folder: Path) -> Iterator[Path]:
    """All files below `folder`, and links to folders, relative to it."""

    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in [*files, *links]:
            yield Path(parent, name).relative_to(folder)


@contextmanager
def new_folder(path: Path, format: FolderFormat, *, force: bool) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an exception.

    With `force`, a folder at `path` is replaced if it is of `format` and holds nothing else;
    SeqmodelError otherwise. Leftovers of a killed process are removed by the next one that locks
    `path`, as callers do if others may write it too.
    """
    format.check_target(path, force=force)
    path = link_target(path)
    temporary = _temporary(path)
    with disk_errors("write", path), no_empty_parents(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path, format)
        try:
            temporary.mkdir()
            with renamed_in_errors(temporary, path):
                yield temporary
            for file in (*temporary.rglob("*"), temporary):
                system.flush(file)
            if path.exists():
                format.check_target(path, force=force)  # again: the block may have taken hours
                _replace_folder(path, temporary)
            else:
                temporary.replace(path)
            system.flush(path.parent)
            _sweep(path, format)  # again: one that was complete was kept as the only one
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _sweep(path: Path, format: FolderFormat) -> None:
    """Remove what killed processes left next to `path`: folders, and files of `check_writable`.

    Only if `path` is locked (see `locked`): otherwise they may belong to a working process.
    """
    siblings: list[Path] = []
    with suppress(OSError):  # a folder that can be written but not listed
        siblings += path.parent.iterdir() if sibling(path, "lock").exists() else ()
    for folder in siblings:
        if TEMPORARY.fullmatch(folder.name) and folder == sibling(path, folder.name[-12:]):
            # A complete one may be the only copy: it was being moved to `path`, or from it.
            with suppress(OSError):
                if folder.is_file() and not folder.lstat().st_size:
                    folder.unlink()
                elif (
                    not folder.is_symlink()
                    and all(map(format.owns, _files_in(folder)))
                    and (path.exists() or not format.is_marked(folder))
                ):
                    shutil.rmtree(folder)


def _replace_folder(path: Path, new: Path) -> None:
    """Swap two paths atomically, or move the old one away first; then remove the old one."""
    if system.exchange(path, new):
        shutil.rmtree(new)
        return
    old = _temporary(path)
    path.replace(old)
    try:
        new.replace(path)
    except OSError:
        old.replace(path)
        raise
    shutil.rmtree(old)


# ---- locks between processes ---------------------------------------------------------------------


@contextmanager
def held_lock(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock file `path` for the block, and yield whether it is held.

    It is not if another process holds it, unless `wait` is set, which waits until it is free.

    SeqmodelError if the file cannot be created, or the file system has no locks.
    """
    with disk_errors("lock", path):
        file = _open_lock_file(path)
    try:
        yield acquire(file, path, wait=wait)
    finally:
        os.close(file)


def _open_lock_file(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | system.NOFOLLOW | system.NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFileError(errno.EINVAL, "not a file: remove it", str(path))
    return file


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
        return lock, _open_lock_file(lock)
    with suppress(OSError):
        return real_path, os.open(real_path, os.O_RDONLY | system.DIRECTORY)
    return real_path, None


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
