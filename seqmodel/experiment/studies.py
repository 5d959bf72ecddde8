"""An experiment in Optuna's terms: for each cell a study of trials, then one of the winner's seeds.

Each study has a fixed number of trials, and a trial is identified by its index: how many began
before it. A trial whose process died is failed and queued again under the same index, to resume
from its checkpoint; to Optuna it is a new trial, which records the one it continues.
"""

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage
from optuna.storages._heartbeat import get_heartbeat_thread  # else only `optimize` sends any
from optuna.trial import FrozenTrial, Trial, TrialState

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.folder import (
    GRACE,
    Counts,
    Event,
    is_dead,
    is_here,
    lock_of,
    read_event,
    seconds_left,
    weight,
)
from seqmodel.experiment.journal import Journal
from seqmodel.experiment.plan import Cell, Plan
from seqmodel.training.stopping import StopRequest

PLAN, WORKER = "plan", "worker"
"""Attributes: the plan, on the experiment's own study; on a trial, the process that runs it."""
ENDED, METRICS, EPOCHS = "ended", "metrics", "epochs"
"""Attributes of a trial: how it ended, its lines of metrics.jsonl, epochs at its last look."""
SCORES, CHECKPOINT = "scores", "checkpoint"
"""For a winner's runs: split -> nats of each piece; the best checkpoint's file in --artifacts."""
WINNER = "winner"
"""Attribute of the study of seeds: the trial that is the first seed; -1 if there is none."""

_ROOT = "goes_on_with"


def open_storage(
    folder: Path,
    url: str | None,
    say: Callable[[str], None] = lambda line: None,
    stop: StopRequest | None = None,
) -> BaseStorage:
    """The storage at `url`, see `Database`, or the journal in the experiment's `folder`."""
    optuna.logging.set_verbosity(logging.ERROR)
    if url is None:
        folder.mkdir(parents=True, exist_ok=True)
        return Journal(folder)
    from seqmodel.experiment.database import Database  # sqlalchemy is slow to load

    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):  # heartbeats
        return Database(url, requeue, say, stop or StopRequest())


def requeue(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue a trial that continues a failed one, to which `root` leads back."""
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


def name_in(storage: BaseStorage, folder: Path, url: str | None) -> str:
    """The name of the experiment in `folder`: the folder's or, if moved, the one in its journal."""
    existing = [] if url else [n for n in optuna.get_all_study_names(storage) if "/" not in n]
    name = folder.resolve().name
    return name if name in existing or not existing else existing[0]


class Studies:
    """The studies of one experiment in a storage, which several processes can share."""

    def __init__(self, storage: BaseStorage, name: str, plan: Plan) -> None:
        self.storage, self._name, self.plan = storage, name, plan
        self._opened: dict[str, Study] = {}
        self._seeds: dict[str, Study] = {}

    @classmethod
    def load(cls, storage: BaseStorage, name: str) -> "Studies | None":
        """The studies of the experiment called `name`; None if it has not begun."""
        if name not in optuna.get_all_study_names(storage):
            return None
        text = optuna.load_study(study_name=name, storage=storage).user_attrs.get(PLAN)
        try:
            return None if text is None else cls(storage, name, Plan.from_json(json.loads(text)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SeqmodelError(
                "the experiment's plan is damaged or from another version: name a new folder with "
                "--out"
            ) from error

    @classmethod
    def begin(cls, storage: BaseStorage, name: str, plan: Plan) -> "Studies":
        """Begin, join or extend an experiment; SeqmodelError if another one has the name."""
        if (existing := cls.load(storage, name)) is not None:
            plan = plan.at_least(existing.plan)
            if differs := plan.differs(existing.plan):
                raise SeqmodelError(
                    f"there is already an experiment, which differs in {differs}: name a new "
                    "folder with --out"
                )
            if existing.plan.differs(plan) is None:
                return cls(storage, name, plan)
            for cell in existing.plan.cells():  # notes what the runs so far belong to
                existing.seeds(cell)
        study = optuna.create_study(study_name=name, storage=storage, load_if_exists=True)
        study.set_user_attr(PLAN, json.dumps(plan.to_json(), sort_keys=True))
        return cls(storage, name, plan)

    def trials(self, cell: Cell) -> "Study":
        """The search of a cell."""
        return self._study("trial", f"{cell.name}/trials", self.plan.trials, self.plan.ready)

    def seeds(self, cell: Cell) -> "Study":
        """The runs of a cell's winner, if it has one; a former winner's are separate."""
        if cell.name in self._seeds:
            return self._seeds[cell.name]
        study = self._study("seed", f"{cell.name}/seeds", self.plan.seeds)
        if not self.trials(cell).complete():  # its winner is not known yet
            return study
        winner = self.winner(cell)
        number = -1 if winner is None else winner
        recorded = study.optuna.user_attrs.get(WINNER)
        if recorded is None:
            study.optuna.set_user_attr(WINNER, number)
        elif recorded != number:
            study = self._study("seed", f"{cell.name}/seeds of trial {number}", self.plan.seeds)
        study.count = 0 if winner is None else self.plan.seeds
        self._seeds[cell.name] = study
        return study

    def run_of_seed(self, cell: Cell, index: int) -> str:
        """The folder of a seed's run; the winning trial is the first seed."""
        seeds, winner = self.seeds(cell), self.winner(cell)
        if not index:
            return f"trial-{winner}"
        first = seeds.optuna.user_attrs.get(WINNER) == winner
        return f"seed-{index}" if first else f"trial-{winner}-seed-{index}"

    def winner(self, cell: Cell) -> int | None:
        """The index of the best trial, the first of equals; None if none has a figure."""
        figures = [*map(figure_of, self.trials(cell).runs())]
        best = min(figures, default=math.inf)
        return figures.index(best) if best < math.inf else None

    def unfinished(self, cell: Cell) -> "Study | None":
        """The first incomplete study of the cell: each needs the one before."""
        studies = (study(cell) for study in (self.trials, self.seeds))
        return next((study for study in studies if not study.complete()), None)

    def complete(self) -> bool:
        return all(self.unfinished(cell) is None for cell in self.plan.cells())

    def counts(self, cell: Cell) -> Counts:
        trials, seeds = self.trials(cell), self.seeds(cell)
        repeated = seeds.done() if trials.complete() else 0
        return Counts(trials.count, trials.done(), seeds.count, repeated)

    def _study(
        self, kind: str, name: str, count: int, ready: Callable[[int], int] | None = None
    ) -> "Study":
        if name not in self._opened:
            full = f"{self._name}/{name}"
            study = optuna.create_study(study_name=full, storage=self.storage, load_if_exists=True)
            self._opened[name] = Study(kind, study, count, ready)
        return self._opened[name]


class Study:
    """`count` trials of a kind, trial or seed, each of which is run to completion once."""

    def __init__(
        self,
        kind: str,
        study: optuna.Study,
        count: int,
        ready: Callable[[int], int] | None = None,
    ) -> None:
        """`ready`, unless all may begin at once: number of first ones ended -> how many may."""
        self.kind, self.optuna, self.count, self._ready = kind, study, count, ready
        self._complete = False  # once True it stays so, which saves further database queries

    def runs(self) -> list[FrozenTrial]:
        """The trials by their index: of one that was queued again, the last.

        Without those that may not begin yet (two simultaneous processes can begin one too many),
        and those that older versions ended without running.
        """
        last: dict[int, FrozenTrial] = {}  # by the first, in the order in which these began
        for trial in self.optuna.get_trials(deepcopy=False):
            if trial.state != TrialState.PRUNED or ENDED in trial.user_attrs:
                last[root(trial)] = trial
        trials = [*last.values()]
        return trials[: self._startable(trials)]

    def _startable(self, trials: Iterable[FrozenTrial]) -> int:
        """How many trials may have begun, given the state of those that have."""
        ended = [*map(_ended, trials), False].index(False)
        return self.count if self._ready is None else min(self.count, self._ready(ended))

    def has_unclaimed(self) -> bool:
        """Whether there is a trial that no process has claimed."""
        trials = self.runs()
        waiting = any(trial.state == TrialState.WAITING for trial in trials)
        return waiting or len(trials) < self._startable(trials)

    def done(self) -> int:
        if not self._complete:
            ended = sum(map(_ended, self.runs()))
            self._complete = ended == self.count
        return self.count if self._complete else ended

    def complete(self) -> bool:
        return self.done() == self.count

    def requeue_abandoned(self, is_dead: Callable[[str], bool]) -> None:
        """Queue again the trials whose process, named in `WORKER`, is dead.

        Also those unclaimed a while after they began; and, in a database, those of hosts without
        heartbeats. Only one process per host and folder may do this at a time.
        """
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            optuna.storages.fail_stale_trials(self.optuna)
        cutoff = datetime.now() - timedelta(seconds=GRACE)
        for trial in self.runs():
            if trial.state not in (TrialState.RUNNING, TrialState.FAIL):
                continue
            worker, began = trial.user_attrs.get(WORKER), trial.datetime_start
            if is_dead(worker) if worker else began is not None and began < cutoff:
                if trial.state == TrialState.RUNNING:
                    self.optuna.tell(trial.number, state=TrialState.FAIL)
                requeue(self.optuna, trial)

    def run_next(self, objective: Callable[[Trial, int], float]) -> None:
        """Take a trial, a queued one first, run it and store the result.

        `objective` takes the trial and its index, and returns its figure; lower is better. After an
        error another process takes the trial; nothing is stored for one that was taken over.
        """
        self.optuna.sampler = RandomSampler(0)  # the objective may choose another
        # Of heartbeats, which are sent below.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            trial = self.optuna.ask()
        numbers, value = [taken.number for taken in self.runs()], None
        if trial.number not in numbers:  # it keeps its place until it may begin
            self.optuna.tell(trial, state=TrialState.FAIL)
            requeue(self.optuna, self.optuna.trials[trial.number])
            return
        with suppress(UpdateFinishedTrialError):
            heartbeat = get_heartbeat_thread(trial._trial_id, self.optuna._storage)
            with suppress(optuna.TrialPruned), heartbeat:
                value = objective(trial, numbers.index(trial.number))
            state = TrialState.PRUNED if value is None else TrialState.COMPLETE
            self.optuna.tell(trial, value, state, skip_if_finished=True)


def _ended(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def figure_of(trial: FrozenTrial) -> float:
    """A trial's figure; infinite if it has none, such as after diverging at once."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    return math.inf if value is None else value


def status_of(studies: Studies, folder: Path) -> dict[str, Any]:
    """The progress of the experiment in `folder`, as printed by `--status --json`.

    "running" are the runs that live processes train; those of other hosts lack share and epochs.
    The seconds left are None if too little is known, or if no process is working.
    """
    cells, running = list[dict[str, Any]](), list[dict[str, Any]]()
    runs = done = 0
    begun = gained = spent = 0.0
    for cell in studies.plan.cells():
        counts, trials = studies.counts(cell), studies.trials(cell).runs()
        best = min(map(figure_of, trials), default=math.inf)
        figure = {"best_valid_nats_per_frame": None if math.isinf(best) else best}
        cells.append({"cell": cell.name, **counts._asdict(), **figure})
        runs, done = runs + counts.total, done + counts.done
        started = [(f"{cell.name}/trial-{k}", trial) for k, trial in enumerate(trials)]
        seeds = enumerate(studies.seeds(cell).runs())
        for name, trial in (*started, *((f"{cell.name}/seed-{k}", seed) for k, seed in seeds)):
            size = weight(name)
            if _ended(trial):
                gained += size
            else:
                live_runs, event = _running(name, trial, folder)
                running += live_runs
                if event is None:
                    continue
                begun += size * event.done
                gained += size * event.gained
            if size and trial.datetime_start is not None:
                until = trial.datetime_complete or datetime.now()
                spent += (until - trial.datetime_start).total_seconds()
    seconds = seconds_left(runs - done - begun, gained, spent, len(running))
    return {"runs": runs, "done": done, "seconds_left": seconds, "cells": cells, "running": running}


def _running(
    run: str, trial: FrozenTrial, folder: Path
) -> tuple[list[dict[str, Any]], Event | None]:
    """The run, if a live process trains it, and its report, if it can be read here."""
    name = trial.user_attrs.get(WORKER)
    if trial.state != TrialState.RUNNING or name is None or is_dead(folder, name):
        return [], None
    figures, is_local = trial.intermediate_values.values(), is_here(folder, name)
    event = read_event(lock_of(folder, name)) if is_local else None
    if event is not None and event.run != run:
        event = None
    values = {
        "run": run,
        "epoch": trial.user_attrs.get(EPOCHS, 0) if event is None else event.epoch,
        "epochs": None if event is None else event.epochs,
        "share_done": None if event is None else event.done,
        "best_valid_nats_per_frame": min(figures, default=None),
        "host": None if is_local else name.partition(":")[0],
    }
    return [values], event
