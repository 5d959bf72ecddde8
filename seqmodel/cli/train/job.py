"""A training job: its checks, its run folder and its output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmodel.cli.common import message, print_json, show
from seqmodel.config import Config
from seqmodel.errors import SeqmodelError, advising
from seqmodel.media.registry import medium_of
from seqmodel.unit_setting import unit_name

if TYPE_CHECKING:
    import torch

    from seqmodel.data.dataset import Dataset
    from seqmodel.runs.folder import Run
    from seqmodel.training.loop import Trainer
    from seqmodel.training.trackers import Tracker


@dataclass
class Job:
    """Trains `settings`, with or without a learning-rate search, and reports the result."""

    settings: Config
    device: str
    processes: int
    trackers: Mapping[str, "Tracker"]
    as_json: bool
    quiet: bool
    _dataset: "Dataset" = field(init=False)

    def resume(self, folder: Path) -> None:
        """Continue the run in `folder`."""
        from seqmodel.data.dataset import open_dataset
        from seqmodel.locks import locked
        from seqmodel.runs.folder import read_metrics

        with locked(folder):
            self._dataset, before = open_dataset(str(self.settings.data)), read_metrics(folder)
            self._train(folder, self._chosen_device())
            if read_metrics(folder) == before:
                message(
                    f"{folder} is already complete: to train further, start a new run with "
                    f"--init-from {folder}",
                    quiet=self.quiet,
                )

    def start(self, folder: Path | None, init_from: Path | None, *, force: bool) -> None:
        """Train a new run in `folder`, or in a new one in runs/."""
        from seqmodel.files import remove_empty
        from seqmodel.locks import locked
        from seqmodel.runs.folder import RUN_FOLDER, RUNS, new_run_folder

        # Everything that can be wrong is checked before a folder is made.
        if folder is not None:
            with locked(folder):
                RUN_FOLDER.check_target(folder, force=force)
                self._start_in(folder, *self._checked(init_from), replaces=folder.exists())
            return
        checked = self._checked(init_from)
        name = self._dataset.folder.resolve().name.removesuffix("-data")
        folder = new_run_folder(name, unit_name(self.settings.unit))
        try:
            with locked(folder):
                self._start_in(folder, *checked, replaces=False)
        finally:
            remove_empty([folder, RUNS])  # an error before the first update leaves no folder

    def _checked(self, init_from: Path | None) -> tuple["torch.device", "Run | None"]:
        """The device and the initial weights; makes the data path in the settings absolute."""
        from seqmodel.data.bundled import sample_dataset
        from seqmodel.data.dataset import open_dataset
        from seqmodel.runs.folder import RUNS

        path = Path(self.settings.data) if self.settings.data else sample_dataset(RUNS)
        self._dataset = open_dataset(path)
        _check_splits(self._dataset)
        device = self._chosen_device()
        weights = _weights(init_from, self.settings, self._dataset) if init_from else None
        self.settings = replace(self.settings, data=str(path.resolve()))
        return device, weights

    def _chosen_device(self) -> "torch.device":
        from seqmodel.model.build import outline

        model = outline(self.settings, self._dataset.frame)
        return model.choose_device(self.device, self.settings.batch_size)

    def _start_in(
        self, folder: Path, device: "torch.device", weights: "Run | None", *, replaces: bool
    ) -> None:
        """Train a new run in `folder`, in place of an existing one if it `replaces` one."""
        from seqmodel.files import new_folder, remove_empty
        from seqmodel.runs.folder import RUN_FOLDER
        from seqmodel.training.processes import UnfitError
        from seqmodel.training.state import RunWriter

        begin, _ = self._ways()
        # The folder appears complete with all that --resume needs, whenever the process is killed.
        # An old run is kept until then, and until the first update is known not to diverge.
        with new_folder(folder, RUN_FOLDER, force=True) as new:
            begun = begin(self.settings, self._dataset, new, weights)
            if replaces:
                begun.try_update()
        del begun  # and the memory it takes
        try:
            self._train(folder, device)
        except UnfitError:
            RunWriter(folder).forget()
            raise
        finally:
            remove_empty([folder])

    def _ways(self) -> tuple[Callable[..., "Trainer"], Callable[..., object]]:
        """The functions that begin a run, with or without a search, and that resume it."""
        if self.settings.trials:
            from seqmodel.experiment.search import begin_search, search

            return begin_search, search
        from seqmodel.training.loop import begin_run, train_run

        return begin_run, train_run

    def _train(self, folder: Path, device: "torch.device") -> None:
        """Resume the run in `folder`, train it to its end and report the result."""
        from seqmodel.cli.progress import training_progress
        from seqmodel.cli.train.ranks import leading
        from seqmodel.runs.folder import read_metrics
        from seqmodel.training.stopping import stop_on_signals
        from seqmodel.training.trackers import followed

        settings, dataset, quiet = self.settings, self._dataset, self.quiet
        for line in medium_of(dataset.frame).training_remarks(dataset.frame):
            message(line, quiet=quiet)
        _, train = self._ways()
        units = f"{unit_name(settings.unit)} of {settings.hidden} units"
        if settings.note_unit is not None:
            units += f", {unit_name(settings.note_unit)} of {settings.note_hidden} along pitch,"
        title = f"{folder}: {units} on {dataset.folder}"
        place = self.processes, settings, dataset, folder, device.type
        with (
            stop_on_signals() as stop,
            leading(*place) as group,
            training_progress(settings, title, quiet=quiet) as heard,
        ):
            if settings.trials:  # each of its runs is tracked by itself
                more: dict[str, Any] = {"listener": heard, "trackers": self.trackers}
            else:
                listener = followed(heard, self.trackers, settings, folder)
                more = {"listener": listener, "group": group}
            tracked = "".join(f" --track {name}" for name in self.trackers)
            again = f"continue with `seqmodel train --resume --run {folder}{tracked}`"
            with advising(again):
                train(settings, dataset, folder, device=device, resume=True, stop=stop,
                      again=again, **more)  # fmt: skip
        metrics = read_metrics(folder)
        best = min(metrics, key=lambda line: line["valid_nats_per_frame"])
        if self.as_json:
            print_json({"run": str(folder), "epochs": len(metrics), "best": best})
        else:
            show(
                f"{folder}  best valid {best['valid_nats_per_frame']:.4f} nats per frame, "
                f"epoch {best['epoch']} of {len(metrics)}"
            )
        if not quiet:
            _warn_if_trivial(settings, dataset, folder, best["valid_nats_per_frame"])


def _check_splits(dataset: "Dataset") -> None:
    for split in ("train", "valid"):
        if split not in dataset.splits:
            advice = medium_of(dataset.frame).split_advice(dataset.manifest) or (
                "prepare it again from more files, or from folders named train and valid"
            )
            raise SeqmodelError(
                f"{dataset.folder} has no pieces in {split}, which training needs: {advice}"
            )
        dataset[split]  # raises SeqmodelError if it is damaged


def _weights(folder: Path, settings: Config, dataset: "Dataset") -> "Run":
    """The run to take weights from, checked to fit."""
    from seqmodel.model.build import build_model
    from seqmodel.runs.content import load_model, model_tensors
    from seqmodel.runs.folder import load_run

    run = load_run(folder)
    try:
        run.check_reads(dataset)
        load_model(build_model(settings, dataset.frame), model_tensors(run.model))
    except SeqmodelError as error:
        raise SeqmodelError(f"--init-from {folder}: {error}") from error
    return run


def _warn_if_trivial(settings: Config, dataset: "Dataset", folder: Path, nats: float) -> None:
    """Warn if a trivial model predicts valid at least as well as the run's `nats` per frame."""
    from seqmodel.cli.progress import display
    from seqmodel.evaluation.baselines import baselines
    from seqmodel.outputs.registry import output_class

    frame, train, valid = dataset.frame, dataset["train"], dataset["valid"]
    discrete = output_class(settings, frame).discrete
    with display("fitting trivial baselines", quiet=False):
        figures = baselines(train, valid, frame, discrete=discrete)
    name, best = min(figures.items(), key=lambda figure: figure[1])
    if nats < best:
        return
    message(
        f"a trivial model predicts valid at least as well ({name.replace('_', ' ')}, {best:.4f}): "
        f"train longer, or at another --learning-rate; `seqmodel eval {folder}` shows all figures"
    )
