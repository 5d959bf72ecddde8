"""The state that an experiment's processes share: Optuna's storage, a journal or a database."""

import json
import logging
import os
import warnings
from collections.abc import Generator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock  # what a lock must derive from
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from seqmodel.errors import SeqmodelError
from seqmodel.files import disk_error
from seqmodel.locks import take

JOURNAL = "journal.log"
"""The journal's name in the experiment's folder."""
HEARTBEAT, GRACE = 10, 60
"""Seconds between heartbeats in a database, and without one before a process is considered dead.

A journal has none; on one host, dead processes are recognised by the locks that they lost.
"""


_ROOT = "goes_on_with"
_CHECKSUM = "checksum"


def open_storage(folder: Path, url: str | None) -> BaseStorage:
    """The storage at `url`, or the journal in the experiment's `folder`.

    Raises:
        SeqmodelError: if it cannot be reached, or holds something else.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    if url is None:
        folder.mkdir(parents=True, exist_ok=True)
        backend = Journal(folder / JOURNAL)
        try:
            return optuna.storages.JournalStorage(backend)
        except SeqmodelError:
            raise
        except Exception as error:  # whatever Optuna fails with: lines are missing
            raise _damaged(folder / JOURNAL, "Optuna cannot read it") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # heartbeats
            return optuna.storages.RDBStorage(
                url,
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=queue_again,
            )
    except Exception as error:  # whatever the database's driver raises
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, ImportError):
            reason = "its driver is missing (for PostgreSQL: pip install 'seqmodel[postgres]')"
        raise SeqmodelError(
            f"--storage {without_password(url)} cannot be used: {reason}"
        ) from error


def without_password(url: str) -> str:
    """A database's address without its password, safe to show and to include in a page."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:  # not an address
        return url


def queue_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue a trial that continues a failed one, which `root` returns."""
    study.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            system_attrs={_ROOT: root(trial)},
        )
    )


def root(trial: FrozenTrial) -> int:
    """The number of the first trial in the chain that this one continues, or its own."""
    return int(trial.system_attrs.get(_ROOT, trial.number))


def _damaged(journal: Path, reason: str) -> SeqmodelError:
    return SeqmodelError(
        f"{journal} is damaged ({reason}): move {journal.parent} away to start again"
    )


class Journal(JournalFileBackend):
    """Optuna's journal, with a checksum on each line, and one-line errors."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), JournalLock(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append whole lines: a line torn by a failed write is truncated by the next writer.

        Raises:
            SeqmodelError: if they cannot be written.
        """
        try:
            super().append_logs([{**log, _CHECKSUM: _checksum(log)} for log in logs])
        except OSError as error:
            raise disk_error(self._path, "write", error) from error

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The lines from a number on; those written by older versions have no checksums.

        Raises:
            SeqmodelError: if one has changed since it was written, or the file cannot be read.
        """
        number = log_number_from + 1
        try:
            for log in super().read_logs(log_number_from):
                found = log.pop(_CHECKSUM, None)
                if found is not None and found != _checksum(log):
                    raise ValueError
                yield log
                number += 1
        except OSError as error:
            raise disk_error(self._path, "read", error) from error
        except (ValueError, AttributeError) as error:  # not JSON, or not an object
            raise _damaged(self._path, f"line {number}") from error


def _checksum(log: Mapping[str, Any]) -> str:
    """The checksum of a line, whatever the order of its keys: 16 hexadecimal digits."""
    return blake2b(json.dumps(log, sort_keys=True).encode(), digest_size=8).hexdigest()


class JournalLock(BaseJournalFileLock):
    """The journal's lock: released when its owner dies, unlike Optuna's own.

    Acquiring it truncates a line that a dead process left incomplete.
    """

    def __init__(self, journal: Path) -> None:
        self._journal, self._lock = journal, Path(f"{journal}.lock")
        self._file: int | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        take(self._file, wait=True)
        _cut_torn_line(self._journal)
        return True

    def release(self) -> None:
        """Release the lock."""
        assert self._file is not None
        os.close(self._file)
        self._file = None


def _cut_torn_line(journal: Path) -> None:
    with suppress(FileNotFoundError), journal.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
