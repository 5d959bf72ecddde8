"""The runs on a page: what they are, how they learned, and how well they predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.evaluation.likelihood import BATCH_SIZE
from seqmodel.media.samples import Progress
from seqmodel.outputs.registry import OUTPUTS, output_name
from seqmodel.report.origin import short_path
from seqmodel.report.page.parts import Curve
from seqmodel.runs.folder import Run, load_run, read_metrics
from seqmodel.unit_setting import unit_name


@dataclass(frozen=True)
class Subject:
    """A run as shown on a page, with its scores on its dataset once they are known."""

    name: str
    """Its folder's or zip's name, with parent folders if several runs share that name."""
    run: Run
    curve: Curve
    dataset: Dataset | None = None
    """None also if it is gone or damaged, or if the run cannot read its frames."""
    splits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What `seqmodel eval --json` reports for each split."""
    remark: str = ""
    """Why figures are missing or not a fair test; "" if all is well."""

    @cached_property
    def content(self) -> str:
        """A hash of the dataset's content or, if that is unknown, its former path."""
        known = self.run.data_sha256 or str(self.run.data)
        return self.dataset.fingerprint() if self.dataset else known

    def nats(self, split: str) -> float | None:
        """Nats per frame; for valid, if it cannot be scored, the figure recorded in training."""
        if split in self.splits:
            return float(self.splits[split]["nats_per_frame"])
        line = self.curve.best_line  # a killed run may lack the line for its last checkpoint
        if split != "valid" or self.dataset is not None or line is None:
            return None
        return self.curve.figures("valid")[line]


def model_in_words(run: Run) -> str:
    """Text such as "2 x gru 46, bernoulli" or "tied lstm 64, note-unit of lstm 32"."""
    config, output = run.config, output_name(run.config, run.frame)
    unit = f"{_stack(config.layers)}{unit_name(config.unit)} {config.hidden}"
    kind = "" if config.model == "frame-wise" else f"{config.model} "
    size = OUTPUTS[output].size
    if config.note_unit is not None:
        layers = _stack(config.note_layers or 1)
        above = f"{layers}{unit_name(config.note_unit)} {config.note_hidden}"
        return f"{kind}{unit}, {output} of {above}"
    return f"{kind}{unit}, {output}" + (f" {getattr(config, size)}" if size else "")


def _stack(layers: int) -> str:
    return f"{layers} x " if layers > 1 else ""


def load_subjects(folders: Sequence[Path]) -> list[Subject]:
    """The runs in `folders`, each once; SeqmodelError if one is not a run, or is damaged."""
    folders = [*{folder.resolve(): folder for folder in reversed(folders)}.values()][::-1]
    return [*map(subject_of, map(load_run, folders), unique_names(folders))]


def unique_names(folders: Sequence[Path]) -> list[str]:
    """The shortest unique ends of the folders' paths, such as "lstm" or "a/lstm"."""
    paths = [folder.resolve().parts for folder in folders]

    def name(parts: tuple[str, ...], depth: int = 1) -> str:
        end = parts[-depth:]
        unique = all(other[-depth:] != end for other in paths if other != parts)
        return str(Path(*end)) if unique else name(parts, depth + 1)

    return [*map(name, paths)]


def subject_of(run: Run, name: str) -> Subject:
    """A run under a name unique on the page; SeqmodelError if its curve is damaged."""
    metrics = read_metrics(run.folder)
    return Subject(name, run, Curve(name, metrics, run.epoch))


def score(subjects: Sequence[Subject], progress: Progress) -> list[Subject]:
    """Score each subject on every split of its dataset, if that still exists."""
    opened = [_open(subject) for subject in subjects]
    total = sum(data[split].frames for data, _ in opened if data for split in data.splits)
    done, scored = 0, list[Subject]()

    def report(of_split: int, _: int) -> None:
        progress(done + of_split, total)

    for subject, (dataset, remark) in zip(subjects, opened, strict=True):
        splits: dict[str, Mapping[str, Any]] = {}
        if dataset is not None:
            model = subject.run.model
            model.to(model.choose_device("auto", BATCH_SIZE))
            for split in dataset.splits:
                splits[split] = evaluate(subject.run, dataset, split, progress=report)
                done += splits[split]["frames"]
        scored.append(replace(subject, dataset=dataset, splits=splits, remark=remark))
    return scored


def _open(subject: Subject) -> tuple[Dataset | None, str]:
    try:
        dataset = subject.run.dataset()
        subject.run.check_reads(dataset)
        for split in dataset.splits:
            dataset[split]
    except SeqmodelError as error:
        message, run = str(error), subject.run
        for path in (run.data, run.folder):
            message = message.replace(str(path), short_path(path))
        return None, f"{subject.name} could not be scored: {message}"
    differences = "; ".join(dataset.frame.differences(subject.run.frame))
    if not differences:
        return dataset, ""
    return dataset, (
        f"the dataset was prepared differently after {subject.name} was trained ({differences}): "
        "the figures are not a fair test"
    )
