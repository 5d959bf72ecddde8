"""The progress of an experiment, as seen from outside."""

from datetime import datetime
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from seqmodel.experiment.plan import Cell
from seqmodel.experiment.processes import host_of, is_dead, is_here, lock_of
from seqmodel.experiment.progress import CellStatus, Running, Status, read_event, seconds_left
from seqmodel.experiment.studies import WORKER, Studies


def status_of(studies: Studies, folder: Path) -> Status:
    """The progress of the experiment in `folder`."""
    cells: list[CellStatus] = []
    running: list[Running] = []
    left = gained = spent = 0.0
    for cell in studies.plan.cells():
        counts, runs = studies.counts(cell), _runs(studies, cell)
        figures = [
            trial.value
            for name, trial in runs.items()
            if trial.state == TrialState.COMPLETE and "/seed-" not in name and trial.value
        ]
        cells.append(CellStatus(cell.name, counts, min(figures, default=None)))
        left += counts.left
        for name, trial in runs.items():
            weight = counts.weight(name)
            if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
                gained += weight
            elif (at_hand := _running(name, trial, folder)) is not None:
                running.append(at_hand)
                if at_hand.event is None:
                    continue
                left -= weight * at_hand.event.done
                gained += weight * at_hand.event.gained
            else:
                continue
            if weight and trial.datetime_start is not None:
                until = trial.datetime_complete or datetime.now()
                spent += (until - trial.datetime_start).total_seconds()
    return Status(cells, running, seconds_left(left, gained, spent, len(running)))


def _runs(studies: Studies, cell: Cell) -> dict[str, FrozenTrial]:
    """The runs of a cell so far, by name: trials, finals and seeds."""
    trials, seeds = studies.trials(cell).indexed(), studies.seeds(cell).indexed()
    finals, finalists = studies.finals(cell).indexed(), studies.finalists(cell)
    named = {f"trial-{k}": trial for k, trial in trials.items()}
    named |= {f"final-{finalists[k]}": trial for k, trial in finals.items()}
    named |= {f"seed-{k}": trial for k, trial in seeds.items()}
    return {f"{cell.name}/{name}": trial for name, trial in named.items()}


def _running(run: str, trial: FrozenTrial, folder: Path) -> Running | None:
    """What a live process is doing with a run; None if there is none."""
    name = trial.user_attrs.get(WORKER)
    if trial.state != TrialState.RUNNING or name is None or is_dead(folder, name):
        return None
    here, figures = is_here(folder, name), trial.intermediate_values
    event = read_event(lock_of(folder, name)) if here else None
    return Running(
        run,
        len(figures),
        min(figures.values(), default=None),
        event if event is not None and event.run == run else None,
        None if here else host_of(name),
    )
