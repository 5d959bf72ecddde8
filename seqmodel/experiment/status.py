"""The progress of an experiment, as seen from outside."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from seqmodel.experiment.plan import Cell
from seqmodel.experiment.processes import host_of, is_dead, is_here, lock_of
from seqmodel.experiment.progress import AtHand, Counts, Event, read_event, seconds_left
from seqmodel.experiment.studies import WORKER, Studies, Study


class Running(NamedTuple):
    """A run that a live process is training, here or on another host."""

    run: str
    cell: str
    epoch: int
    """The last epoch that ended."""
    valid: float | None
    """The best figure so far, in nats per frame."""
    elapsed: float
    """Seconds since it began or resumed."""
    event: Event | None
    """What its process reported last; None if that cannot be read here."""
    host: str | None
    """None for this one."""


class CellStatus(NamedTuple):
    """The progress of a cell."""

    name: str
    counts: Counts
    valid: float | None
    """The best figure so far, in nats per frame."""


class Status(NamedTuple):
    """The progress of an experiment."""

    cells: Sequence[CellStatus]
    running: Sequence[Running]
    seconds_left: float | None
    """At the present number of processes; None if too little is known or no process is working."""

    @property
    def total(self) -> int:
        """All runs."""
        return sum(cell.counts.total for cell in self.cells)

    @property
    def done(self) -> int:
        """Runs that have ended."""
        return sum(cell.counts.done for cell in self.cells)


def status_of(studies: Studies, folder: Path) -> Status:
    """The progress of the experiment in `folder`."""
    cells, running = [], []
    took: dict[str, list[float]] = {}
    for cell in studies.plan.cells():
        trials, seeds = studies.trials(cell), studies.seeds(cell)
        winner = trials.winner()
        best = None if winner is None else winner[1].value
        cells.append(CellStatus(cell.name, studies.counts(cell), best))
        running += _running(cell, "trial", trials, folder) + _running(cell, "seed", seeds, folder)
        took[cell.name] = _took(trials.indexed()) + _took(seeds.indexed(), first=1)
    return Status(cells, running, _left(running, cells, took))


def _running(cell: Cell, kind: str, study: Study, folder: Path) -> list[Running]:
    found = []
    for index, trial in study.indexed().items():
        name = trial.user_attrs.get(WORKER)
        if trial.state != TrialState.RUNNING or name is None or is_dead(folder, name):
            continue
        run, here = f"{cell.name}/{kind}-{index}", is_here(folder, name)
        event = read_event(lock_of(folder, name)) if here else None
        if event is not None and event.run != run:
            event = None
        found.append(
            Running(
                run,
                cell.name,
                len(trial.intermediate_values),
                min(trial.intermediate_values.values(), default=None),
                _seconds(trial, datetime.now()),
                event,
                None if here else host_of(name),
            )
        )
    return found


def _took(trials: Mapping[int, FrozenTrial], first: int = 0) -> list[float]:
    """Seconds that each ended trial took, from the index `first` on."""
    return [
        _seconds(trial, trial.datetime_complete)
        for index, trial in trials.items()
        if index >= first and trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    ]


def _seconds(trial: FrozenTrial, until: datetime | None) -> float:
    begun = trial.datetime_start
    return 0.0 if begun is None or until is None else (until - begun).total_seconds()


def _left(
    running: Sequence[Running], cells: Sequence[CellStatus], took: Mapping[str, Sequence[float]]
) -> float | None:
    at_hand = [
        AtHand(r.cell, r.elapsed, None if r.event is None else r.event.seconds_left)
        for r in running
        if not r.run.endswith("/seed-0")
    ]
    if not running:
        return None
    taken = Counter(run.cell for run in at_hand)
    waiting = {cell.name: cell.counts.left - taken[cell.name] for cell in cells}
    return seconds_left(at_hand, waiting, took, len(running))
