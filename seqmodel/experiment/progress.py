"""The progress of an experiment: what processes report while they train, and the time left."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

ROOM = 512
"""Bytes of an event in a file: padded to one length, so that a single write replaces each."""


TYPICAL_LOOK = 0.1
"""The share of a whole run up to the first look, where none has been taken yet."""


class Counts(NamedTuple):
    """How many runs a cell has, and how many have ended."""

    trials: int
    trials_done: int
    seeds: int
    seeds_done: int
    finals: int = 0
    """Trials that are trained to their end; 0 if all are, at once."""
    finals_done: int = 0

    @property
    def total(self) -> int:
        """Trials, finals and seeds."""
        return self.trials + self.finals + self.seeds

    @property
    def done(self) -> int:
        """Trials, finals and seeds that have ended."""
        return self.trials_done + self.finals_done + self.seeds_done

    def left(self, look: float) -> float:
        """Whole runs left to train, without the winner's first seed, which is already trained.

        `look` is the share of a whole run that a trial is when there are finals.
        """
        again = min(self.seeds - self.seeds_done, self.seeds - 1)
        trials = (self.trials - self.trials_done) * (look if self.finals else 1.0)
        return trials + (self.finals - self.finals_done) * (1 - look) + again


@dataclass(frozen=True)
class Event:
    """What a process is doing, reported as a run begins, regularly as it trains, and at its end."""

    run: str
    """Cell and trial, final or seed, as in "jsb/gru/trial-3"."""
    epoch: int
    """The last epoch that ended."""
    epochs: int
    """The most epochs that the run can have."""
    valid: float | None
    """The best figure so far, in nats per frame."""
    ended: str | None = None
    """How the run ended, once it has."""
    share: float = 0.0
    """The share of the next epoch that has been trained."""
    seconds_left: float | None = None
    """Until the last epoch ends; None while too little is known."""
    counts: Counts | None = None
    """The counts of its cell, once the run has ended."""
    size: float = 1.0
    """The share of a whole run's epochs that it trains, if none stops early."""

    @property
    def cell(self) -> str:
        """The cell of the run."""
        return self.run.rpartition("/")[0]

    @property
    def done(self) -> float:
        """The share of the run that is done."""
        return (self.epoch + self.share) / max(self.epochs, 1)

    @property
    def trained_before(self) -> bool:
        """Whether the run only scores what a trial has trained."""
        return self.run.endswith("/seed-0")


def write_event(path: Path, event: Event) -> None:
    """Replace the event in `path`, for `read_event`; does nothing if it cannot be written."""
    values = {name: value for name, value in asdict(event).items() if value is not None}
    with suppress(OSError), path.open("r+b", buffering=0) as file:
        file.write(json.dumps(values).ljust(ROOM).encode())


def read_event(path: Path) -> Event | None:
    """The event in a file; None if it holds none, or is being written."""
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        return Event(**{"valid": None, **values})
    except (OSError, ValueError, TypeError):
        return None


class AtHand(NamedTuple):
    """A run that is being trained."""

    cell: str
    elapsed: float
    """Seconds since it began."""
    left: float | None
    """Seconds until its last epoch ends, if known."""
    size: float = 1.0
    """`Event.size`."""


class Took(NamedTuple):
    """A run that has ended."""

    seconds: float
    size: float = 1.0
    """`Event.size`."""


def seconds_left(
    at_hand: Collection[AtHand],
    counts: Mapping[str, Counts],
    took: Mapping[str, Sequence[Took]],
    processes: int,
) -> float | None:
    """Seconds until all runs have ended; None if nothing is known of any.

    Waiting runs are assumed to take as long as others of their cell, in proportion to their sizes,
    as these tend to stop as early or late; if none of the cell's is known, as long as the mean of
    the known cells.

    Args:
        at_hand: the runs in progress.
        counts: every cell's.
        took: cell -> its runs that have ended.
        processes: how many share the work.
    """
    known = {cell: [*ended] for cell, ended in took.items()}
    for run in at_hand:
        if run.left is not None:
            known.setdefault(run.cell, []).append(Took(run.elapsed + run.left, run.size))
    # A size of 0 is a run that had nothing left to train when it was resumed.
    known = {cell: found for cell, runs in known.items() if (found := [r for r in runs if r.size])}
    if not known:
        return None
    means = {
        cell: sum(run.seconds for run in runs) / sum(run.size for run in runs)
        for cell, runs in known.items()
    }
    usual = fmean(means.values())
    lefts = [
        max(0.0, run.size * means.get(run.cell, usual) - run.elapsed)
        if run.left is None
        else run.left
        for run in at_hand
    ]
    sizes = [run.size for runs in known.values() for run in runs if run.size < 1]
    # The smallest part of a run that was trained, or left out, is most likely that up to the look.
    look = min((min(size, 1 - size) for size in sizes), default=TYPICAL_LOOK)
    wait = 0.0
    for cell, count in counts.items():
        begun = sum(run.size for run in at_hand if run.cell == cell)
        wait += max(count.left(look) - begun, 0.0) * means.get(cell, usual)
    return max([(sum(lefts) + wait) / max(processes, 1), *lefts])
