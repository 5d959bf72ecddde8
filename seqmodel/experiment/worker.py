"""One process of an experiment: it takes one run after another until none are left."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import Trial

from seqmodel.data.dataset import Dataset
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.experiment.artifacts import Artifacts
from seqmodel.experiment.plan import Cell
from seqmodel.experiment.processes import AGAIN, is_dead, lock_of, new_name
from seqmodel.experiment.progress import Event, write_event
from seqmodel.experiment.studies import WORKER, Studies, Study
from seqmodel.locks import held, locked
from seqmodel.runs.folder import LAST, load_run, read_metrics
from seqmodel.training.loop import Listener, Tick
from seqmodel.training.stopping import InterruptError, StopRequest
from seqmodel.training.trials import ENDED, SearchSampler, first_look, train_trial

POLL = 0.5
"""Seconds between checks for work that other processes have to finish first."""
TELL = 0.5
"""Seconds between two reports of the current epoch."""
NO_SAMPLER = optuna.samplers.RandomSampler(0)
"""For studies whose trials have nothing to be sampled."""


class Worker:
    """Works on an experiment in a folder, alongside any others."""

    def __init__(
        self,
        studies: Studies,
        folder: Path,
        tell: Callable[[Event], None] = lambda event: None,
        stop: StopRequest | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        self._artifacts = artifacts or Artifacts(None)
        self._studies, self._plan, self._folder = studies, studies.plan, folder
        self._tell, self._stop = tell, stop or StopRequest()
        self._name = new_name(folder)
        self._lock = lock_of(folder, self._name)
        self._datasets: dict[str, Dataset] = {}
        self._told = 0.0
        self._last: Event | None = None

    def work(self) -> None:
        """Run trials until the experiment is complete.

        Raises:
            InterruptError: after `stop` was set; the current run can be resumed.
            SeqmodelError: if a dataset is not the plan's, or a disk is full.
        """
        with held(self._lock, wait=True):  # another process may be probing it just now
            while not self._studies.complete():
                if self._stop.signal is not None:
                    raise InterruptError("stopped", self._stop.signal)
                if not self._one():
                    time.sleep(POLL)
            self._lock.unlink()

    def _one(self) -> bool:
        """Run the next trial, final or seed; False if there is none for now."""
        studies = self._studies
        stages = (
            (studies.trials, self._search),
            (studies.finals, self._finish),
            (studies.seeds, self._repeat),
        )
        for cell in self._plan.cells():
            opened = ((study(cell), run) for study, run in stages)  # as each needs the one before
            study, run = next((s for s in opened if not s[0].complete()), (None, None))
            if study is None or run is None:
                continue
            with held(self._folder / "locks" / "queue", wait=True):
                study.queue_what_was_left(
                    lambda worker: worker != self._name and is_dead(self._folder, worker)
                )
            if not study.waits():
                continue
            run(cell, study)
            if self._last is not None:  # None if another process took the last one
                self._tell(replace(self._last, counts=self._studies.counts(cell)))
                self._last = None
            return True
        return False

    def _say(self, event: Event) -> None:
        """Report to the parent process, and to the lock file for `--status`."""
        self._tell(event)
        write_event(self._lock, event)

    def _search(self, cell: Cell, study: Study) -> None:
        given = self._plan.config(cell, self._dataset(cell), {}, 0)
        look = first_look(given) if self._plan.finals else None

        def objective(trial: Trial, index: int) -> float:
            space, run = self._plan.space, f"trial-{index}"
            found = {name: bounds.suggested(trial, name) for name, bounds in space.items()}
            return self._trained(cell, run, trial, found, name=run, look=look)

        chosen = SearchSampler(self._plan.search, given, study.count, study.begun)
        study.run_next(objective, chosen)

    def _finish(self, cell: Cell, study: Study) -> None:
        trials, finalists = self._studies.trials(cell).indexed(), self._studies.finalists(cell)

        def objective(trial: Trial, index: int) -> float:
            number = finalists[index]
            run, found = f"trial-{number}", trials[number].params
            return self._trained(cell, run, trial, found, name=f"final-{number}")

        study.run_next(objective, NO_SAMPLER)

    def _repeat(self, cell: Cell, study: Study) -> None:
        winner = self._studies.winner(cell)

        def objective(trial: Trial, index: int) -> float:
            if winner is None:
                ended = "every trial diverged before an epoch ended"
                trial.set_user_attr(ENDED, ended)
                self._last = Event(f"{cell.name}/seed-{index}", 0, 0, None, ended)
                raise optuna.TrialPruned
            found = winner[1].params
            run = self._studies.run_of_seed(cell, index)
            value = self._trained(cell, run, trial, found, name=f"seed-{index}", seed=index)
            model, data = load_run(self._run(cell, run)).model, self._dataset(cell)
            nats = {s: likelihood(model, data[s]).piece_nats.tolist() for s in data.splits}
            trial.set_user_attr("scores", nats)  # of each piece, in order, at the best epoch
            self._artifacts.give(trial, self._run(cell, run))
            return value

        study.run_next(objective, NO_SAMPLER)

    def _trained(
        self,
        cell: Cell,
        run: str,
        trial: Trial,
        found: Mapping[str, Any],
        *,
        name: str,
        look: int | None = None,
        seed: int = 0,
    ) -> float:
        """Train the run in a folder of the cell's, or resume it, as `train_trial` does.

        `name` is what it is called in reports; `seed` counts the runs of a winner from 0.
        """
        dataset, folder = self._dataset(cell), self._run(cell, run)
        config = self._plan.config(cell, dataset, found, seed)
        full, last = f"{cell.name}/{name}", min(look or config.epochs, config.epochs)
        begun = len(read_metrics(folder)) if folder.is_dir() else 0
        figures: list[float] = []  # on valid, of the epochs so far

        def event(share: float = 0.0, ended: str | None = None) -> Event:
            best = min(figures, default=None)
            return Event(full, len(figures), last, best, ended, share, begun)

        def tick(now: Tick) -> None:
            if now.nats_per_frame is not None and time.monotonic() - self._told >= TELL:
                self._told = time.monotonic()
                self._say(event(now.done / now.total))

        def epochs(lines: Sequence[Mapping[str, Any]]) -> None:
            figures.extend(line["valid_nats_per_frame"] for line in lines)
            self._say(event())

        trial.set_user_attr(WORKER, self._name)
        self._say(event())
        try:
            with locked(folder):
                return train_trial(
                    trial,
                    config,
                    dataset,
                    folder,
                    look=look,
                    resume=(folder / LAST).is_file(),
                    listener=Listener(tick, lambda line, _: epochs([line]), resumed=epochs),
                    stop=self._stop,
                    again=AGAIN,
                )
        finally:
            if ENDED in trial.user_attrs:
                self._say(event())
                self._last = event(ended=trial.user_attrs[ENDED])

    def _run(self, cell: Cell, run: str) -> Path:
        return self._folder / "runs" / cell.name / run

    def _dataset(self, cell: Cell) -> Dataset:
        if cell.source.name not in self._datasets:
            self._datasets[cell.source.name] = cell.dataset()
        return self._datasets[cell.source.name]
