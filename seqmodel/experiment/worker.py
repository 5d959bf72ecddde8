"""One process of an experiment: it takes what is left to do, piece by piece, until nothing is."""

import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import Trial

from seqmodel.data.dataset import Dataset
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.experiment.plan import Cell
from seqmodel.experiment.studies import WORKER, Studies, Study
from seqmodel.locks import held, locked
from seqmodel.runs.folder import LAST, load_run, read_metrics
from seqmodel.training.loop import Listener
from seqmodel.training.stopping import InterruptError, StopRequest
from seqmodel.training.trials import ENDED, strategy, train_trial

POLL = 0.5
"""Seconds before looking again for work that others have to finish first."""


@dataclass(frozen=True)
class Event:
    """What a worker is doing."""

    run: str
    """Cell and trial or seed, as in "jsb/gru/trial-3"."""
    epoch: int
    """The last that ended."""
    epochs: int
    """At most."""
    valid: float | None
    """The best figure so far, in nats per frame."""
    ended: str | None = None
    """How the run ended, once it has."""


class Worker:
    """Works on an experiment in a folder, beside any others that do."""

    def __init__(
        self,
        studies: Studies,
        folder: Path,
        tell: Callable[[Event], None] = lambda event: None,
        stop: StopRequest | None = None,
    ) -> None:
        self._studies, self._plan, self._folder = studies, studies.plan, folder
        self._tell, self._stop = tell, stop or StopRequest()
        self._place = f"{socket.gethostname()}:{folder.resolve()}"
        self._name = f"{self._place} {uuid.uuid4().hex}"
        self._datasets: dict[str, Dataset] = {}

    def work(self) -> None:
        """Run trials until the experiment is complete.

        Raises:
            InterruptError: after `stop` was set; the run at hand can be resumed.
            SeqmodelError: where a dataset is not the plan's, or a disk is full.
        """
        lock = self._lock(self._name)
        with held(lock):
            while not self._studies.complete():
                if self._stop.signal is not None:
                    raise InterruptError("stopped", self._stop.signal)
                if not self._one():
                    time.sleep(POLL)
            lock.unlink()

    def _one(self) -> bool:
        """Run the next trial or seed; False if there is none for now."""
        for cell in self._plan.cells():
            trials, seeds = self._studies.trials(cell), self._studies.seeds(cell)
            with held(self._folder / "locks" / "queue", wait=True):
                trials.queue_what_was_left(self._is_dead)
                seeds.queue_what_was_left(self._is_dead)
            if trials.waits():
                self._search(cell, trials)
                return True
            if trials.complete() and seeds.waits():
                self._repeat(cell, trials, seeds)
                return True
        return False

    def _is_dead(self, worker: str) -> bool:
        """Whether a process was of this host and folder, and does not hold its lock any more."""
        if not worker.startswith(f"{self._place} ") or worker == self._name:
            return False
        with held(self._lock(worker)) as free:
            return free

    def _lock(self, worker: str) -> Path:
        return self._folder / "locks" / worker.rpartition(" ")[2]

    def _search(self, cell: Cell, study: Study) -> None:
        seed = self._plan.seed(cell)
        sampler, pruner = strategy(self._plan.search, seed, study.count, study.begun)

        def objective(trial: Trial, index: int) -> float:
            found = {
                name: bounds.suggested(trial, name) for name, bounds in self._plan.space.items()
            }
            return self._trained(cell, f"trial-{index}", trial, found)

        study.run_next(objective, sampler, pruner)

    def _repeat(self, cell: Cell, trials: Study, study: Study) -> None:
        winner = trials.winner()

        def objective(trial: Trial, index: int) -> float:
            if winner is None:
                trial.set_user_attr(ENDED, "every trial diverged before an epoch ended")
                raise optuna.TrialPruned
            best, found = winner
            run = f"seed-{index}" if index else f"trial-{best}"  # which is the first seed's already
            value = self._trained(cell, run, trial, found.params, seed=index)
            trial.set_user_attr("scores", self._scores(cell, run))
            return value

        study.run_next(objective, optuna.samplers.RandomSampler(0), optuna.pruners.NopPruner())

    def _trained(
        self,
        cell: Cell,
        run: str,
        trial: Trial,
        found: Mapping[str, Any],
        *,
        seed: int | None = None,
    ) -> float:
        """Train a run, or go on with it, and keep its curve; returns its best figure on valid.

        `seed` counts the runs of a winner from 0; None for a trial of the search.

        Raises:
            optuna.TrialPruned: where it is given up, or diverges before an epoch has ended.
        """
        dataset, folder = self._dataset(cell), self._run(cell, run)
        config = self._plan.config(cell, dataset, found, seed or 0)
        name = f"{cell.name}/{run if seed is None else f'seed-{seed}'}"

        def tell(ended: str | None = None) -> None:
            figures = [line["valid_nats_per_frame"] for line in read_metrics(folder)]
            best = min(figures, default=None)
            self._tell(Event(name, len(figures), config.epochs, best, ended))

        trial.set_user_attr(WORKER, self._name)
        try:
            with locked(folder):
                return train_trial(
                    trial,
                    config,
                    dataset,
                    folder,
                    resume=(folder / LAST).is_file(),
                    listener=Listener(epoch=lambda line, is_best: tell()),
                    stop=self._stop,
                )
        finally:
            if ENDED in trial.user_attrs:
                tell(trial.user_attrs[ENDED])

    def _scores(self, cell: Cell, run: str) -> dict[str, Any]:
        """Split -> the nats of each piece, in order, at the best epoch of a run."""
        model, dataset = load_run(self._run(cell, run)).model, self._dataset(cell)
        return {
            split: likelihood(model, dataset[split]).piece_nats.tolist() for split in dataset.splits
        }

    def _run(self, cell: Cell, run: str) -> Path:
        return self._folder / "runs" / cell.name / run

    def _dataset(self, cell: Cell) -> Dataset:
        if cell.source.name not in self._datasets:
            self._datasets[cell.source.name] = cell.dataset()
        return self._datasets[cell.source.name]
