"""The progress of an experiment, as seen from outside."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from seqmodel.experiment.plan import Cell
from seqmodel.experiment.processes import host_of, is_dead, is_here, lock_of
from seqmodel.experiment.progress import AtHand, Counts, Event, Took, read_event, seconds_left
from seqmodel.experiment.studies import SIZE, WORKER, Studies


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
    size: float
    """`Event.size`."""
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
    took: dict[str, list[Took]] = {}
    for cell in studies.plan.cells():
        trials, seeds = studies.trials(cell).indexed(), studies.seeds(cell).indexed()
        finals, finalists = studies.finals(cell).indexed(), studies.finalists(cell)
        named = {f"trial-{k}": trial for k, trial in trials.items()}
        named |= {f"final-{finalists[k]}": trial for k, trial in finals.items()}
        figures = [
            t.value
            for t in named.values()
            if t.state == TrialState.COMPLETE and t.value is not None
        ]
        cells.append(CellStatus(cell.name, studies.counts(cell), min(figures, default=None)))
        named |= {f"seed-{k}": trial for k, trial in seeds.items()}
        running += _running(cell, named, folder)
        took[cell.name] = [_took(t) for name, t in named.items() if _ended(t) and name != "seed-0"]
    return Status(cells, running, _left(running, cells, took))


def _running(cell: Cell, trials: Mapping[str, FrozenTrial], folder: Path) -> list[Running]:
    found = []
    for of_cell, trial in trials.items():
        name = trial.user_attrs.get(WORKER)
        if trial.state != TrialState.RUNNING or name is None or is_dead(folder, name):
            continue
        run, here = f"{cell.name}/{of_cell}", is_here(folder, name)
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
                trial.user_attrs.get(SIZE, 1.0),
                None if here else host_of(name),
            )
        )
    return found


def _ended(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _took(trial: FrozenTrial) -> Took:
    return Took(_seconds(trial, trial.datetime_complete), trial.user_attrs.get(SIZE, 1.0))


def _seconds(trial: FrozenTrial, until: datetime | None) -> float:
    begun = trial.datetime_start
    return 0.0 if begun is None or until is None else (until - begun).total_seconds()


def _left(
    running: Sequence[Running], cells: Sequence[CellStatus], took: Mapping[str, Sequence[Took]]
) -> float | None:
    at_hand = [
        AtHand(r.cell, r.elapsed, None if r.event is None else r.event.seconds_left, r.size)
        for r in running
        if not r.run.endswith("/seed-0")
    ]
    if not running:
        return None
    counts = {cell.name: cell.counts for cell in cells}
    return seconds_left(at_hand, counts, took, len(running))
