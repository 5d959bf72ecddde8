"""An experiment's state in a file: Optuna's journal, with checksums and its own lock."""

import json
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from optuna.exceptions import OptunaError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock  # what a lock must derive from

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.folder import JOURNAL, holds_journal
from seqmodel.files import disk_errors, held_lock

_CHECKSUM = "checksum"


class Journal(JournalStorage):
    """The state in a folder's journal; SeqmodelError if that cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        if not holds_journal(folder) and self._path.exists() and self._path.stat().st_size:
            raise damaged(self._path, "line 1")
        with disk_errors("write", self._path):
            super().__init__(_Lines(self._path))

    def _sync_with_backend(self) -> None:
        try:
            super()._sync_with_backend()
        except (SeqmodelError, OptunaError):  # for a trial or a study that already exists
            raise
        except Exception as error:  # whatever Optuna fails with: lines are missing
            raise damaged(self._path, "Optuna cannot read it") from error


def damaged(journal: Path, reason: str) -> SeqmodelError:
    """The error for a journal that cannot be used."""
    return SeqmodelError(
        f"{journal} is damaged ({reason}): move {journal.parent} away to start again"
    )


class _Lines(JournalFileBackend):
    """The lines of a journal, each with a checksum, except those of older versions."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Lock(path))
        self._path = path
        self._checked = False  # whether a line had a checksum: then all later ones must

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append complete lines: the next writer truncates a line torn by a failed write."""
        with disk_errors("write", self._path):
            super().append_logs([{**log, _CHECKSUM: _checksum(log)} for log in logs])

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        number = log_number_from + 1
        try:
            with disk_errors("read", self._path):
                for log in super().read_logs(log_number_from):
                    found = log.pop(_CHECKSUM, None)
                    if found != _checksum(log) and (found is not None or self._checked):
                        raise ValueError
                    self._checked = found is not None
                    yield log
                    number += 1
        # For what is not JSON, or not an object.
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(self._path, f"line {number}") from error


def _checksum(log: Mapping[str, Any]) -> str:
    """The checksum of a line, independent of the order of keys: 16 hexadecimal digits."""
    return blake2b(json.dumps(log, sort_keys=True).encode(), digest_size=8).hexdigest()


class _Lock(BaseJournalFileLock):
    """A lock released when its owner dies, unlike Optuna's; the next owner cuts off a torn line."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._lock = journal, Path(f"{journal}.lock")
        self._held = ExitStack()

    def acquire(self) -> bool:
        self._held.enter_context(held_lock(self._lock, wait=True))
        with suppress(FileNotFoundError), self._journal.open("r+b") as file:
            if size := file.seek(0, os.SEEK_END):
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self._held.close()
