"""The folder of an experiment: how it is recognised, who works in it, its progress and its answer.

Once an experiment is complete its answer is stored: the same command then need not load anything.
"""

import json
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import seqmodel
from seqmodel.errors import SeqmodelError
from seqmodel.files import (
    SYSTEM_FILES,
    TEMPORARY,
    acquire,
    check_writable,
    disk_errors,
    held_lock,
    open_input,
    write_file,
)

if TYPE_CHECKING:
    from seqmodel.experiment.plan import Plan

JOURNAL = "journal.log"
BEGIN = Path("locks", "begin")
"""The lock under which an experiment begins; the file remains, to mark an experiment's folder."""
_FIRST = b'{"op_code":0,'
"""How a journal begins: Optuna's code for a new study."""
ANSWER = "complete.json"
"""The name of the stored answer in the experiment's folder."""
RESUME_HINT = "run the same command to resume"
GRACE = 60
"""Seconds without a sign of life before a process of another host is considered dead; on the same
host the loss of its lock shows at once."""
EVENT_BYTES = 4096
"""Bytes of an event in a file: padded to a fixed length, so that a single write replaces it."""
LOCKED_BYTES = 1
"""Bytes before it, which on Windows no other process can read or write while the file is locked."""


def holds_journal(folder: Path) -> bool:
    """Whether a folder has one of our journals that has begun, if only with part of a line.

    SeqmodelError if it is a pipe, a device or a folder, or cannot be read.
    """
    path = folder / JOURNAL
    with disk_errors("read", path), suppress(FileNotFoundError), open_input(path) as file:
        start = file.read(len(_FIRST))
        return bool(start) and _FIRST.startswith(start)
    return False


def check_folder(folder: Path) -> None:
    """SeqmodelError unless it is an experiment's, new or empty, and can be written and locked."""
    foreign = False
    with disk_errors("use", folder), suppress(FileNotFoundError, NotADirectoryError):
        foreign = any(not _is_ignorable(path) for path in folder.iterdir())
    if foreign and not (holds_journal(folder) or (folder / BEGIN).is_file()):
        raise SeqmodelError(
            f"--out {folder} is not empty and holds no experiment: choose another folder"
        )
    check_writable(folder / JOURNAL, lambda file: acquire(file, folder / JOURNAL, wait=True))


def _is_ignorable(path: Path) -> bool:
    """Whether an entry is a desktop's, or one that an experiment killed early leaves behind."""
    if path.name == BEGIN.parent.name and path.is_dir():
        return not any(path.iterdir())
    if path.name == JOURNAL and path.is_file():
        return not path.stat().st_size
    return bool(SYSTEM_FILES.fullmatch(path.name) or TEMPORARY.fullmatch(path.name))


def new_name(folder: Path) -> str:
    """A name for a process that works in `folder`, which starts with this host's location."""
    return f"{_location(folder)} {uuid.uuid4().hex}"


def lock_of(folder: Path, name: str) -> Path:
    """The file that a process of this folder keeps locked, and that `write_event` writes."""
    return folder / "locks" / name.rpartition(" ")[2]


def is_here(folder: Path, name: str) -> bool:
    """Whether a process belongs to this host and folder, as all that share a journal do."""
    return (folder / JOURNAL).is_file() or name.startswith(f"{_location(folder)} ")


def is_dead(folder: Path, name: str) -> bool:
    """Whether a process belonged to this host and folder, and no longer holds its lock.

    Its lock file, which a killed process leaves, is then removed.
    """
    if not is_here(folder, name):
        return False
    lock = lock_of(folder, name)
    if not lock.exists():
        return True
    with held_lock(lock) as free:
        pass
    if free:
        remove_lock(lock)
    return free


def remove_lock(lock: Path) -> None:
    """Remove the lock file of a process that has ended."""
    with suppress(OSError):  # such as on Windows, while another process probes it
        lock.unlink()


def _location(folder: Path) -> str:
    return f"{socket.gethostname()}:{os.path.realpath(folder)}"


# ---- what processes report while they train, and the time left -----------------------------------


class Counts(NamedTuple):
    """The number of trials and seeds of a cell, and of ended ones; the first seed is a trial's."""

    trials: int
    trials_done: int
    seeds: int
    seeds_done: int

    @property
    def total(self) -> int:
        """The number of runs to train."""
        return self.trials + max(self.seeds - 1, 0)

    @property
    def done(self) -> int:
        return self.trials_done + max(self.seeds_done - 1, 0)

    @property
    def processes(self) -> int:
        """How many have something to do, if only to score a winner."""
        return max(self.total - self.done, int(self.seeds_done < self.seeds))


def weight(run: str) -> int:
    """How many trainings the run of this name takes: a first seed only scores a trial's."""
    return 0 if run.endswith("/seed-0") else 1


@dataclass(frozen=True)
class Event:
    """What a process is doing, reported as a run begins, regularly as it trains, and at its end."""

    run: str
    """Cell and trial or seed, as in "jsb/gru/trial-3"."""
    epoch: float
    """Epochs done at the last look at valid."""
    epochs: float
    """The most epochs that the run can have, see `Config.most_epochs`."""
    valid: float | None
    """The best figure so far, in nats per frame."""
    ended: str | None = None
    """How the run ended, once it has."""
    share: float = 0.0
    """Epochs trained since."""
    begun: float = 0
    """Epochs trained before it was resumed."""
    counts: Counts | None = None
    """The counts of its cell, once the run has ended."""
    memory: int = 0
    """The peak memory of its process in bytes; 0 before it has trained."""

    @property
    def cell(self) -> str:
        return self.run.rpartition("/")[0]

    @property
    def done(self) -> float:
        return (self.epoch + self.share) / max(self.epochs, 1)

    @property
    def gained(self) -> float:
        """The share of the run trained since it was resumed; all of it once it ended."""
        done = 1.0 if self.ended is not None else self.done
        return done - min(self.begun / max(self.epochs, 1), 1.0)


def write_event(path: Path, event: Event) -> None:
    """Replace the event in `path`, for `read_event`; does nothing if it cannot be written."""
    values = {name: value for name, value in asdict(event).items() if value is not None}
    with suppress(OSError), path.open("r+b", buffering=0) as file:
        file.seek(LOCKED_BYTES)
        file.write(json.dumps(values).ljust(EVENT_BYTES).encode())


def read_event(path: Path) -> Event | None:
    """The event in a file; None if there is none, or if it is being written."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(LOCKED_BYTES)
            values: dict[str, Any] = json.loads(file.read())
        return Event(**{"valid": None, **values})
    except (OSError, ValueError, TypeError):
        return None


def seconds_left(left: float, gained: float, spent: float, processes: int) -> float | None:
    """Seconds until the remaining runs are done at the speed so far.

    None if unknown, or if no process is working. The progress so far took all processes together
    `spent` seconds.
    """
    return left * spent / gained / processes if gained > 0 and processes else None


# ---- the kept answer -----------------------------------------------------------------------------


def store_answer(
    folder: Path, plan: "Plan", text: str, status: Mapping[str, Any], files: Sequence[str]
) -> None:
    """Store the answer of an experiment whose results are in `files`."""
    about = {"version": seqmodel.__version__, "plan": _as_text(plan)}
    values = {**about, "text": text, "status": status, "files": files}
    write_file(folder / ANSWER, json.dumps(values, indent=2).encode())


def load_answer(folder: Path, plan: "Plan | None" = None) -> tuple[str, dict[str, Any]] | None:
    """The printed results and status stored in a folder, if for `plan` and all files are there."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # the caller then writes it again
        values = json.loads((folder / ANSWER).read_bytes())
        if (
            values["version"] == seqmodel.__version__
            and (plan is None or values["plan"] == _as_text(plan))
            and all((folder / name).is_file() for name in values["files"])
        ):
            return values["text"], values["status"]
    return None


def _as_text(plan: "Plan") -> str:
    return json.dumps(plan.to_json(), sort_keys=True)
