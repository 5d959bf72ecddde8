"""The progress of an experiment: what processes report while they train, and the time left."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOM = 512
"""Bytes of an event in a file: padded to one length, so that a single write replaces each."""
LOCKED = 1
"""Bytes before it, which on Windows nobody else reads or writes while the file is locked."""


class Counts(NamedTuple):
    """How many runs a cell has, and how many have ended."""

    trials: int
    trials_done: int
    seeds: int
    seeds_done: int

    @property
    def total(self) -> int:
        """Trials and seeds."""
        return self.trials + self.seeds

    @property
    def done(self) -> int:
        """Trials and seeds that have ended."""
        return self.trials_done + self.seeds_done

    @property
    def left(self) -> int:
        """How many runs are left to train."""
        return self.trials - self.trials_done + max(self.seeds - max(self.seeds_done, 1), 0)


def weight(run: str) -> int:
    """How many runs are trained in the one of this name: a first seed only scores a trial's."""
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
    """Epochs that have been trained since."""
    begun: float = 0
    """Epochs that were trained before it was resumed."""
    counts: Counts | None = None
    """The counts of its cell, once the run has ended."""
    memory: int = 0
    """The most bytes that its process has taken; 0 before it has trained."""

    @property
    def cell(self) -> str:
        """The cell of the run."""
        return self.run.rpartition("/")[0]

    @property
    def done(self) -> float:
        """The share of the run that is done."""
        return (self.epoch + self.share) / max(self.epochs, 1)

    @property
    def gained(self) -> float:
        """The share of the run that has been trained since it was resumed; all once it ended."""
        done = 1.0 if self.ended is not None else self.done
        return done - min(self.begun / max(self.epochs, 1), 1.0)


def write_event(path: Path, event: Event) -> None:
    """Replace the event in `path`, for `read_event`; does nothing if it cannot be written."""
    values = {name: value for name, value in asdict(event).items() if value is not None}
    with suppress(OSError), path.open("r+b", buffering=0) as file:
        file.seek(LOCKED)
        file.write(json.dumps(values).ljust(ROOM).encode())


def read_event(path: Path) -> Event | None:
    """The event in a file; None if it holds none, or is being written."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(LOCKED)
            values: dict[str, Any] = json.loads(file.read())
        return Event(**{"valid": None, **values})
    except (OSError, ValueError, TypeError):
        return None


def seconds_left(left: float, gained: float, spent: float, processes: int) -> float | None:
    """Seconds until the runs left are done by as many processes, if any, as fast as those gained.

    These took `spent` seconds of all processes together.
    """
    return left * spent / gained / processes if gained > 0 and processes else None
