"""Where the processes of an experiment meet: Optuna's storage, a journal file or a database."""

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
"""In the experiment's folder."""
HEARTBEAT, GRACE = 10, 60
"""Seconds between signs of life in a database, and without one until a process is taken for dead.

A journal has none; processes on one host are told dead by the locks that they no longer keep.
"""


_ROOT = "goes_on_with"
_CHECKSUM = "checksum"


def open_storage(folder: Path, url: str | None) -> BaseStorage:
    """The storage at `url`, or the journal in the experiment's `folder`.

    Raises:
        SeqmodelError: where it cannot be reached, or holds something else.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    if url is None:
        folder.mkdir(parents=True, exist_ok=True)
        backend = Journal(folder / JOURNAL)
        try:
            return optuna.storages.JournalStorage(backend)
        except SeqmodelError:
            raise
        except Exception as error:  # whatever Optuna stumbles over: lines are missing
            raise _damaged(folder / JOURNAL, "Optuna cannot make sense of it") from error
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
    """A database's address as it may be shown, and sent along with a page."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:  # no address at all
        return url


def queue_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue a trial that goes on with one that failed; `root` tells with which."""
    study.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            system_attrs={_ROOT: root(trial)},
        )
    )


def root(trial: FrozenTrial) -> int:
    """The number of the trial that this one goes on with, however often, or its own."""
    return int(trial.system_attrs.get(_ROOT, trial.number))


def _damaged(journal: Path, reason: str) -> SeqmodelError:
    return SeqmodelError(
        f"{journal} is damaged ({reason}): move {journal.parent} away to start again"
    )


class Journal(JournalFileBackend):
    """Optuna's journal, with a checksum on each line, and errors of a line each."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), JournalLock(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines, whole: what a failed write leaves of one is cut off by the next.

        Raises:
            SeqmodelError: where they cannot be written.
        """
        try:
            super().append_logs([{**log, _CHECKSUM: _checksum(log)} for log in logs])
        except OSError as error:
            raise disk_error(self._path, "write", error) from error

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The lines from a number on; those of versions before there were checksums have none.

        Raises:
            SeqmodelError: where one is not as it was written, or the file cannot be read.
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
        except (ValueError, AttributeError) as error:  # no JSON, or not of an object
            raise _damaged(self._path, f"line {number}") from error


def _checksum(log: Mapping[str, Any]) -> str:
    """Of what a line says, in whatever order: 16 hexadecimal digits."""
    return blake2b(json.dumps(log, sort_keys=True).encode(), digest_size=8).hexdigest()


class JournalLock(BaseJournalFileLock):
    """The journal's lock: one that its owner's death releases, unlike Optuna's own.

    Whoever takes it first cuts off a line that a process did not live to complete.
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
        """Give it up."""
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
