"""A training job: its settings, its checks, its run folder and its output."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from seqmodel.cli.common import Verbosity, message, paper_remark, print_json, show
from seqmodel.cli.options import about
from seqmodel.cli.progress import display, partial_note, training_progress
from seqmodel.cli.ranks import leading
from seqmodel.config import Config
from seqmodel.data.bundled import Sample, sample_dataset
from seqmodel.data.dataset import Dataset, open_dataset
from seqmodel.errors import SeqmodelError, advising
from seqmodel.evaluation.baselines import baselines
from seqmodel.files import locked, new_folder, remove_empty
from seqmodel.media.registry import medium_of
from seqmodel.media.words import epochs_text, plural
from seqmodel.model.build import build_model, meta_model
from seqmodel.outputs.registry import output_class
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import check_labels, load_model, model_tensors
from seqmodel.runs.files import VALID_PIECES, epochs_of, resume_command
from seqmodel.sampling.sampler import Freeze, Sampler
from seqmodel.training.loop import INITIAL_FILES, Trainer, begin_run, train_run
from seqmodel.training.processes import UnfitError
from seqmodel.training.stopping import stop_on_signals
from seqmodel.training.trackers import Tracker
from seqmodel.unit_setting import unit_name
from seqmodel.units.module import Unit, difference

SAMPLES = 4
"""Number drawn once a run has trained for over LONG_ENOUGH seconds, to check for odd ones."""
LONG_ENOUGH = 60


@dataclass
class Job:
    """Trains a run by `settings`, with or without a learning-rate search; reports the result."""

    settings: Config
    device: str
    processes: int
    trackers: Mapping[str, Tracker]
    as_json: bool
    _dataset: Dataset = field(init=False)

    def resume(self, folder: Path) -> None:
        with locked(folder):
            self._dataset, before = open_dataset(str(self.settings.data)), runs.read_metrics(folder)
            self._train(folder, self._chosen_device())
            if runs.read_metrics(folder) == before:
                message(
                    f"{folder} is already complete: to train further, start a new run with "
                    f"--init-from {folder} --config {folder / runs.CONFIG}",
                )

    def start(self, folder: Path | None, init_from: Path | None, *, force: bool) -> None:
        """Train a new run in `folder`, or in a new one in runs/."""
        with ExitStack() as stack:
            # Everything that can be wrong is checked before a folder is created.
            if folder is not None:
                stack.enter_context(locked(folder))
                runs.RUN_FOLDER.check_target(folder, force=force)
            replaces = folder is not None and folder.exists()
            weights = runs.load_run(init_from) if init_from else None
            message(weights.remark if weights else "")
            sample: Sample = "music" if weights is None or weights.frame.onsets else "rolls"
            data = Path(self.settings.data or sample_dataset(runs.RUNS, sample))
            self._dataset = open_dataset(data)
            self._dataset.check_trainable()
            device = self._chosen_device()
            if weights is not None:
                _check_weights(weights, self.settings, self._dataset)
            self.settings = replace(self.settings, data=str(data.resolve()))
            if folder is None:
                name = self._dataset.folder.resolve().name.removesuffix("-data")
                folder = runs.new_run_folder(name, unit_name(self.settings.unit))
                # An error before the first update leaves no folder behind.
                stack.callback(remove_empty, [folder, runs.RUNS])
                stack.enter_context(locked(folder))
            begin, _ = self._ways()
            # The folder appears with everything that --resume needs, so the process may be killed
            # at any time. An old run stays until then, and until the first update has not diverged.
            with new_folder(folder, runs.RUN_FOLDER, force=True) as new:
                trainer = begin(self.settings, self._dataset, new, weights)
                if replaces:
                    trainer.try_update()
            del trainer  # to free its memory
            try:
                self._train(folder, device)
            except UnfitError:
                for name in INITIAL_FILES:
                    (folder / name).unlink(missing_ok=True)
                raise
            finally:
                remove_empty([folder])

    def _chosen_device(self) -> torch.device:
        model = meta_model(self.settings, self._dataset.frame)
        return model.choose_device(self.device, self.settings.batch_size)

    def _ways(self) -> tuple[Callable[..., Trainer], Callable[..., object]]:
        """The functions that begin a run, with or without a search, and that resume it."""
        if not self.settings.trials:
            return begin_run, partial(train_run, resume=True)
        from seqmodel.experiment.search import begin_search, search  # Optuna takes long to load

        return begin_search, search

    def _train(self, folder: Path, device: torch.device) -> None:
        """Resume the run in `folder`, train it to completion and report the result."""
        settings, dataset = self.settings, self._dataset
        medium = medium_of(dataset.frame)
        for line in medium.training_remarks(dataset.frame):
            message(line)
        message(paper_remark(settings.preset, dataset))
        if settings.bars and (outdated := medium.outdated(dataset.manifest)):
            message(f"{dataset.folder} {outdated}; prepare it again")
        _, train = self._ways()
        units = f"{unit_name(settings.unit)} of {settings.hidden} units"
        if settings.note_unit is not None:
            units += f", {unit_name(settings.note_unit)} of {settings.note_hidden} along pitch,"
        title = f"{folder}: {units} on {dataset.folder}"
        with (
            stop_on_signals() as stop,
            leading(self.processes, settings, dataset, folder, device.type) as group,
            training_progress(settings, title) as listener,
        ):
            tracked = "".join(f" --track {name}" for name in self.trackers)
            hint = f"continue with {resume_command(folder, tracked)}"
            with advising(hint):
                train(settings, dataset, folder, device=device, listener=listener,
                      trackers=self.trackers, stop=stop, hint=hint, group=group)  # fmt: skip
        metrics = runs.read_metrics(folder)
        best = min(metrics, key=lambda line: line["valid_nats_per_frame"])
        if self.as_json:
            print_json({"run": str(folder), "epochs": epochs_of(metrics), "best": best})
        else:
            done = epochs_of(metrics)
            at, of = map(epochs_text, (best["epoch"], done))
            ran_out = settings.minutes is None and done - best["epoch"] >= settings.patience
            without = f"{plural(settings.patience, 'epoch')} without a better valid figure"
            why = f"; stopped after {without}" * (ran_out and done != settings.epochs)
            show(
                f"{folder}  best valid {best['valid_nats_per_frame']:.4f} nats per frame, "
                f"epoch {at} of {of}{partial_note(best)}{why}"
            )
        if not Verbosity.quiet:
            _warn_if_trivial(settings, dataset, folder, best)
            if sum(line["seconds"] for line in metrics) > LONG_ENOUGH:
                _warn_if_odd(folder)


def _check_weights(run: runs.Run, settings: Config, dataset: Dataset) -> None:
    """SeqmodelError unless the run's weights fit; a remark if it was trained on other frames."""
    with about(f"--init-from {run.folder}"):
        run.check_reads(dataset)
        check_labels(run, settings, dataset.frame, "its model")
        model = build_model(settings, dataset.frame)
        load_model(model, model_tensors(run.model))
        for name, unit in model.named_modules():
            if isinstance(unit, Unit):
                trained = run.model.get_submodule(name).get_extra_state()
                own = unit.spec, unit.gate_activation, unit.activation
                if differs := difference(trained, *own):
                    raise SeqmodelError(f"its weights are those of another unit: {differs}")
    contents = dataset.manifest.get("contents", {})
    if differences := "; ".join(dataset.frame.differences(run.frame, contents)):
        told = f"was prepared differently from {run.folder}'s data ({differences})"
        message(f"{dataset.folder} {told}")


def _warn_if_trivial(
    settings: Config, dataset: Dataset, folder: Path, line: Mapping[str, Any]
) -> None:
    """Warn if a trivial model predicts valid, or its scored part, as well as the run's `line`."""
    frame, train, valid = dataset.frame, dataset["train"].subsample(), dataset["valid"]
    valid = valid.evenly_spaced(line.get(VALID_PIECES, len(valid)))
    discrete = output_class(settings, frame).discrete
    with display("fitting trivial baselines"):
        figures = baselines(train, valid, frame, discrete=discrete)
    name, best = min(figures.items(), key=lambda figure: figure[1])
    if line["valid_nats_per_frame"] < best:
        return
    message(
        f"a trivial model predicts valid at least as well ({name.replace('_', ' ')}, {best:.4f}): "
        "train again with more --epochs or another --learning-rate; "
        f"`seqmodel eval {folder}` shows all figures"
    )


def _warn_if_odd(folder: Path) -> None:
    """Draw a few samples, and warn if some are silent or freeze."""
    run = runs.load_run(folder, torch.device("cpu"))
    sampling = run.sampling(medium_of(run.frame).formats[0])
    sampler, freeze, hints = Sampler(run.model, metres=sampling.metres), Freeze.of(run), []
    with display("sampling"):
        for number in range(SAMPLES):
            piece = sampler.piece(sampling.length, seed=1, number=number, freeze=freeze)
            try:
                hints.append(sampling.write(BytesIO(), piece).hint)
            except SeqmodelError as error:  # not finite
                hints.append(str(error))
    if found_hints := [hint for hint in hints if hint]:
        message(f"{len(found_hints)} of {SAMPLES} samples may disappoint: {found_hints[0]}")
