"""One process of an experiment: it takes one run after another until none are left."""

import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta, upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.exceptions import ExperimentalWarning
from optuna.trial import Trial

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.experiment.folder import AGAIN, is_dead, lock_of, new_name
from seqmodel.experiment.plan import Cell
from seqmodel.experiment.progress import Event, write_event
from seqmodel.experiment.search import NO_SAMPLER, Run, Runner, train_trial
from seqmodel.experiment.studies import ENDED, WORKER, Studies, Study
from seqmodel.files import disk_error, new_file
from seqmodel.locks import held, locked
from seqmodel.runs.folder import BEST, LAST, load_run, read_metrics
from seqmodel.training.loop import Listener, Tick
from seqmodel.training.stopping import InterruptError, StopRequest

POLL = 0.5
"""Seconds between checks for work that other processes have to finish first."""
TELL = 0.5
"""Seconds between two reports of the current epoch."""


class Worker(Runner):
    """Works on an experiment in a folder, alongside any others."""

    def __init__(
        self,
        studies: Studies,
        folder: Path,
        tell: Callable[[Event], None] = lambda event: None,
        stop: StopRequest | None = None,
        artifacts: "Artifacts | None" = None,
    ) -> None:
        super().__init__(studies)
        self.stages.append((studies.seeds, self._repeat))
        self._artifacts, self._folder = artifacts or Artifacts(None), folder
        self._tell, self._stop = tell, stop or StopRequest()
        self._name = new_name(folder)
        self._lock = lock_of(folder, self._name)
        self._datasets: dict[str, Dataset] = {}
        self._reported_at = 0.0
        self._last: Event | None = None

    def work(self) -> None:
        """Run trials until the experiment is complete.

        Raises:
            InterruptError: after `stop` was set; the current run can be resumed.
            SeqmodelError: if a dataset is not the plan's, or a disk is full.
        """
        with held(self._lock, wait=True):  # another process may be probing it just now
            while not self.studies.complete():
                if self._stop.signal is not None:
                    raise InterruptError("stopped", self._stop.signal)
                if not self._one():
                    time.sleep(POLL)
            self._lock.unlink()

    def _one(self) -> bool:
        """Run the next trial, final or seed; False if there is none for now."""
        for cell in self.studies.plan.cells():
            stage = self.stage(cell)
            if stage is None:
                continue
            study, run = stage
            with held(self._folder / "locks" / "queue", wait=True):
                study.queue_what_was_left(
                    lambda worker: worker != self._name and is_dead(self._folder, worker)
                )
            if not study.waits():
                continue
            run(cell, study)
            if self._last is not None:  # None if another process took the last one
                self._tell(replace(self._last, counts=self.studies.counts(cell)))
                self._last = None
            return True
        return False

    def _say(self, event: Event) -> None:
        """Report to the parent process, and to the lock file for `--status`."""
        self._tell(event)
        write_event(self._lock, event)

    def _repeat(self, cell: Cell, study: Study) -> None:
        winner = self.studies.winner(cell)

        def objective(trial: Trial, index: int) -> float:
            if winner is None:
                ended = "every trial diverged before an epoch ended"
                trial.set_user_attr(ENDED, ended)
                self._last = Event(f"{cell.name}/seed-{index}", 0, 0, None, ended)
                raise optuna.TrialPruned
            run = Run(cell, trial, "seed", index, winner[1].params)
            value, folder = self.train(run), self._run_folder(run)
            model, data = load_run(folder).model, self._dataset(cell)
            nats = {s: likelihood(model, data[s]).piece_nats.tolist() for s in data.splits}
            trial.set_user_attr("scores", nats)  # of each piece, in order, at the best epoch
            self._artifacts.give(trial, folder)
            return value

        study.run_next(objective, NO_SAMPLER)

    def config(self, cell: Cell, found: Mapping[str, Any], seed: int = 0) -> Config:
        """The settings of a run; `seed` counts the runs of a winner from 0."""
        return self.studies.plan.config(cell, self._dataset(cell), found, seed)

    def train(self, run: Run) -> float:
        """Train a run in a folder of the cell's, or resume it, as `train_trial` does."""
        folder, trial = self._run_folder(run), run.trial
        config = self.config(run.cell, run.found, run.number if run.kind == "seed" else 0)
        full = f"{run.cell.name}/{run.kind}-{run.number}"
        last = min(run.look or config.epochs, config.epochs)
        begun = len(read_metrics(folder)) if folder.is_dir() else 0
        figures: list[float] = []  # on valid, of the epochs so far

        def event(share: float = 0.0, ended: str | None = None) -> Event:
            best = min(figures, default=None)
            return Event(full, len(figures), last, best, ended, share, begun)

        def tick(now: Tick) -> None:
            if now.nats_per_frame is not None and time.monotonic() - self._reported_at >= TELL:
                self._reported_at = time.monotonic()
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
                    self._dataset(run.cell),
                    folder,
                    look=run.look,
                    resume=(folder / LAST).is_file(),
                    listener=Listener(tick, lambda line, _: epochs([line]), resumed=epochs),
                    stop=self._stop,
                    again=AGAIN,
                )
        finally:
            if ENDED in trial.user_attrs:
                self._say(event())
                self._last = event(ended=trial.user_attrs[ENDED])

    def _run_folder(self, run: Run) -> Path:
        seed = run.kind == "seed"
        name = self.studies.run_of_seed(run.cell, run.number) if seed else f"trial-{run.number}"
        return self._folder / "runs" / run.cell.name / name

    def _dataset(self, cell: Cell) -> Dataset:
        if cell.source.name not in self._datasets:
            self._datasets[cell.source.name] = cell.dataset()
        return self._datasets[cell.source.name]


class Artifacts:
    """A folder that all hosts see, or none: what is given is then lost."""

    def __init__(self, folder: Path | None) -> None:
        """Make the folder.

        Raises:
            SeqmodelError: if that is not possible.
        """
        self._folder = folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(folder, "use", error) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            self._store = FileSystemArtifactStore(folder)

    def give(self, trial: Trial, run: Path) -> None:
        """Leave the best checkpoint of a winner's run for the other hosts.

        Raises:
            SeqmodelError: if the folder is full, or gone.
        """
        if self._folder is None:
            return
        try:
            upload_artifact(
                artifact_store=self._store, file_path=str(run / BEST), study_or_trial=trial
            )
        except OSError as error:
            raise disk_error(self._folder, "write to", error) from error

    def collect(self, studies: Studies, folder: Path) -> None:
        """Fetch the checkpoints that the experiment's `folder` lacks.

        Raises:
            SeqmodelError: if one cannot be read, or the disk is full.
        """
        for cell in studies.plan.cells() if self._folder is not None else ():
            for index, trial in studies.seeds(cell).indexed().items():
                best = folder / "runs" / cell.name / studies.run_of_seed(cell, index) / BEST
                given = get_all_artifact_meta(trial, storage=studies.storage)
                if given and not best.exists():
                    self._fetch(given[-1].artifact_id, best)

    def _fetch(self, artifact: str, target: Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._store.open_reader(artifact) as source, new_file(target) as file:
                shutil.copyfileobj(source, file)
        except (OSError, ArtifactNotFound) as error:
            raise SeqmodelError(f"cannot fetch {target} from {self._folder}: {error}") from error
