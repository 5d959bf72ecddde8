"""One process of an experiment: it takes one run after another until none are left."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from optuna.trial import Trial

from seqmodel.config import Config
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.experiment.folder import AGAIN, Event, is_dead, lock_of, new_name, write_event
from seqmodel.experiment.plan import Cell, Source
from seqmodel.experiment.search import run_next, train_trial
from seqmodel.experiment.studies import CHECKPOINT, ENDED, EPOCHS, SCORES, WORKER, Studies
from seqmodel.files import read_bytes, write_file
from seqmodel.locks import held, locked
from seqmodel.runs.files import epochs_of
from seqmodel.runs.folder import BEST, LAST, load_run, read_metrics
from seqmodel.training.loop import Listener, Tick
from seqmodel.training.stopping import InterruptError, StopRequest

POLL = 0.5
"""Seconds between checks for work that other processes have to finish first."""
INTERVAL = 0.5
"""Seconds between two reports of the current epoch."""


class Worker:
    """Works on an experiment in a folder, alongside any others."""

    def __init__(
        self,
        studies: Studies,
        folder: Path,
        report: Callable[[Event], None] = lambda event: None,
        stop: StopRequest | None = None,
        artifacts: Path | None = None,
    ) -> None:
        self._studies, self._folder, self._artifacts = studies, folder, artifacts
        self._report, self._stop = report, stop or StopRequest()
        self._name = new_name(folder)
        self._lock = lock_of(folder, self._name)
        self._dataset = cache(Source.dataset)
        self._reported_at = 0.0
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
                if not any(map(self._run_of, self._studies.plan.cells())):
                    time.sleep(POLL)
        with suppress(PermissionError):  # on Windows, while another process probes it
            self._lock.unlink()

    def _run_of(self, cell: Cell) -> bool:
        """Run the next trial or seed of a cell; False if there is none for now."""
        study = self._studies.unfinished(cell)
        if study is None:
            return False
        with held(self._folder / "locks" / "queue", wait=True):
            study.queue_what_was_left(
                lambda worker: worker != self._name and is_dead(self._folder, worker)
            )
        if not study.waits():
            return False
        train = partial(self._train, cell, study.kind)
        run_next(self._studies, cell, study, self._config(cell, {}, 0), train)
        if self._last is not None:  # None if another process took the last one
            self._report(replace(self._last, counts=self._studies.counts(cell)))
            self._last = None
        return True

    def _publish(self, event: Event) -> None:
        """Report to the parent process, and to the lock file for `--status`."""
        self._report(event)
        write_event(self._lock, event)

    def _config(self, cell: Cell, found: Mapping[str, Any], seed: int) -> Config:
        return self._studies.plan.config(cell, self._dataset(cell.source), found, seed)

    def _train(
        self, cell: Cell, kind: str, trial: Trial, number: int, found: Mapping[str, Any]
    ) -> float:
        """Train a run in its folder, or resume it, see `train_trial`; score a winner's."""
        dataset, name, seed = self._dataset(cell.source), f"trial-{number}", 0
        if kind == "seed":
            name, seed = self._studies.run_of_seed(cell, number), number
        folder = self._folder / "runs" / cell.name / name
        config = self._config(cell, found, seed)
        full = f"{cell.name}/{kind}-{number}"
        begun = epochs_of(read_metrics(folder)) if folder.is_dir() else 0
        looks: list[tuple[float, float]] = []  # at valid so far: the figure, after so many epochs

        def event(share: float = 0.0, ended: str | None = None) -> Event:
            best, at = min(looks) if looks else (None, 0)
            done = looks[-1][1] if looks else 0
            return Event(full, done, config.most_epochs(at), best, ended, share, begun)

        def tick(now: Tick) -> None:
            if now.nats_per_frame is not None and time.monotonic() - self._reported_at > INTERVAL:
                self._reported_at = time.monotonic()
                done = looks[-1][1] if looks else 0
                self._publish(event(now.epoch - 1 + now.done / now.total - done))

        def epochs(lines: Sequence[Mapping[str, Any]]) -> None:
            for line in lines:
                looks.append((line["valid_nats_per_frame"], line["epoch"]))
                trial.report(looks[-1][0], len(looks))
            if lines:
                trial.set_user_attr(EPOCHS, looks[-1][1])
            self._publish(event())

        trial.set_user_attr(WORKER, self._name)
        self._publish(event())
        try:
            with locked(folder):
                figure = train_trial(
                    trial,
                    config,
                    dataset,
                    folder,
                    resume=(folder / LAST).is_file(),
                    listener=Listener(tick, lambda line, _: epochs([line]), resumed=epochs),
                    stop=self._stop,
                    again=AGAIN,
                )
            if kind == "seed":
                model = load_run(folder).model
                nats = {s: likelihood(model, dataset[s]).piece_nats for s in dataset.splits}
                # Of each piece, in order, at the best epoch.
                trial.set_user_attr(SCORES, {split: each.tolist() for split, each in nats.items()})
                if self._artifacts is not None:  # for other hosts that see this folder
                    shared = uuid.uuid4().hex
                    write_file(self._artifacts / shared, read_bytes(folder / BEST))
                    trial.set_user_attr(CHECKPOINT, shared)
            return figure
        finally:
            if ENDED in trial.user_attrs:
                self._publish(event())
                self._last = event(ended=trial.user_attrs[ENDED])


def collect(studies: Studies, folder: Path, artifacts: Path) -> None:
    """Fetch the winners' checkpoints that the experiment's `folder` lacks."""
    for cell in studies.plan.cells():
        for index, trial in studies.seeds(cell).indexed().items():
            best = folder / "runs" / cell.name / studies.run_of_seed(cell, index) / BEST
            name = trial.user_attrs.get(CHECKPOINT)
            if name is not None and not best.exists():
                write_file(best, read_bytes(artifacts / name))
