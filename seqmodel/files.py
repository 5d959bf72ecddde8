"""Writing that never leaves half a file and never overwrites what it was not told to.

Everything is written beside its target under a temporary name, flushed to the disk and renamed.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from seqmodel.errors import SeqmodelError


def disk_error(path: Path, doing: str, error: OSError) -> SeqmodelError:
    """The one-line error for a disk that refuses: what was being done, to which path, why."""
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, FileExistsError):  # a folder was to be made there
        reason = f"{error.filename} is a file, not a folder"
    return SeqmodelError(f"cannot {doing} {path}: {reason}")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file; SeqmodelError names the file where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise disk_error(path, "read", error) from error


def refuse_existing(path: Path, *, force: bool) -> None:
    """SeqmodelError where `path` exists and may not be replaced. Call it before the work begins."""
    if not force and (path.exists() or path.is_symlink()):
        raise SeqmodelError(f"{path} exists already; add --force to replace it")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise SeqmodelError(f"{path} is a device or a pipe, which would be replaced; name a file")


def check_writable(path: Path) -> None:
    """SeqmodelError unless a file can be made where `path` is to stand, its folders included.

    So that an hour's work does not end at a folder that was never writable. Leaves nothing behind.
    """
    missing = _missing_folders(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise disk_error(path, "write", error) from error
    finally:
        _remove_empty(missing)


def _missing_folders(path: Path) -> list[Path]:
    """The folders above `path` that are yet to be made, the nearest first."""
    return [folder for folder in path.parents if not folder.exists()]


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # as when something is in it by now
            folder.rmdir()


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all, replacing what stands there."""
    with new_file(path) as file:
        file.write(data)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes `path`, replacing what stands there, when the block ends well."""
    temporary: Path | None = None
    missing = _missing_folders(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise disk_error(path, "write", error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        _remove_empty(missing)


@contextmanager
def new_folder(path: Path, *, force: bool, mark: str) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an exception.

    With `force` a folder that stands there is replaced, but only one that holds the file `mark`
    (or nothing): `--force` must not take away somebody's home. SeqmodelError otherwise.
    """
    refuse_existing(path, force=force)
    if path.is_symlink():
        path = path.resolve()  # the link stays; what it stands for is replaced
    if path.exists() and not (path / mark).is_file() and not _is_empty_folder(path):
        raise SeqmodelError(f"{path} holds other things (no {mark}); choose another place")
    check_writable(path)
    missing = _missing_folders(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        for file in temporary.rglob("*"):
            _flush_to_disk(file)
        if path.exists():
            _replace_folder(path, temporary)
        else:
            temporary.replace(path)
    except OSError as error:
        raise disk_error(path, "write", error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _remove_empty(missing)


def _replace_folder(path: Path, new: Path) -> None:
    """Put `new` in the place of `path`, which is removed only when that has been done."""
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        path.replace(old)
        try:
            new.replace(path)
        except OSError:
            old.replace(path)
            raise
    except OSError:
        with suppress(OSError):
            old.rmdir()  # only when nothing is in it
        raise
    shutil.rmtree(old)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _umask() -> int:
    mask = os.umask(0)  # the only way to read it is to set it
    os.umask(mask)
    return mask
