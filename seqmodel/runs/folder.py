"""Runs: the folders that training writes, as read by eval, sample and inspect.

README.md lists their files. torch is loaded with a model, not on import.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.config import to_yaml
from seqmodel.data.bundled import PREPARED, sample_dataset
from seqmodel.data.dataset import MANIFEST, Dataset, Split, open_dataset
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.files import FolderFormat, disk_errors, open_input, read_bytes
from seqmodel.media.labels import Labels, label_ids
from seqmodel.media.registry import medium_of
from seqmodel.media.samples import SampleRequest, Sampling
from seqmodel.media.words import listed
from seqmodel.model.bars import SIGNATURE
from seqmodel.outputs.registry import output_class
from seqmodel.plain import Fields
from seqmodel.runs.content import (
    DATA_HASH,
    MAX_HEADER_BYTES,
    PROGRESS,
    Content,
    Progress,
    is_checkpoint,
    load_content,
    metadata_of,
    parsed,
    read_content,
    unfinished,
)
from seqmodel.runs.files import (
    BEST,
    CONFIG,
    CURVE,
    DRAWS,
    LAST,
    METRICS,
    RUNS,
    checkpoint_of,
    read_metrics,
    settings_in,
)

if TYPE_CHECKING:
    import torch

    from seqmodel.model.sequence import SequenceModel

# For whatever reads or writes runs.
__all__ = ["BEST", "CONFIG", "CURVE", "DRAWS", "LAST", "METRICS", "RUNS", "read_metrics"]

DRAWS_INDEX, INIT = "draws.jsonl", "init"


@dataclass(frozen=True, kw_only=True)
class StoredRun(Content):
    """A run without its model, read without torch, to tell early whether it can be used."""

    folder: Path
    """Its folder, or the zip that `seqmodel export` made of it."""
    lack: str = ""
    """A remark if these are not the best weights on valid because there are none; else ""."""

    @property
    def remark(self) -> str:
        """The lack of best weights, or that training may still find better ones; else ""."""
        return self.lack or unfinished(self.folder)

    @property
    def data(self) -> Path:
        """The folder of the dataset it was trained on.

        For a zip, which holds only its name: in the working folder, or where samples are prepared.
        """
        name = Path(str(self.config.data))
        return (RUNS / name if str(name) in PREPARED.values() else name).resolve()

    def dataset(self) -> Dataset:
        """Open the dataset it was trained on; a bundled sample is prepared on first use.

        SeqmodelError if it is gone or damaged, or has only the name that a zip holds.
        """
        name = str(self.config.data)
        for sample, prepared in PREPARED.items():
            if name == prepared:
                sample_dataset(RUNS, sample)
        if not Path(name).is_absolute() and not (self.data / MANIFEST).is_file():
            raise SeqmodelError(
                f"{self.folder} was trained on a dataset {name} that is not here: name one with "
                "`seqmodel eval --data`"
            )
        dataset = open_dataset(self.data)
        if not self.trained_on(dataset):
            raise SeqmodelError(
                f"{name} is not the dataset that {self.folder} was trained on, but another of the "
                "same name: name one with `seqmodel eval --data`"
            )
        return dataset

    def metrics(self) -> Mapping[str, Any]:
        """The metrics of the epoch that these weights are from.

        Empty if they are missing: a killed run may lack the line for its last checkpoint.
        """
        lines = read_metrics(self.folder)
        return next((line for line in lines if line["epoch"] == self.epoch), {})

    def sampling(
        self, kind: str, seconds: float | None = None, options: Mapping[str, Any] | None = None
    ) -> Sampling:
        """How to write pieces drawn from it, by default as long as on report pages."""
        medium = medium_of(self.frame)
        seconds = seconds or medium.page_seconds
        request = SampleRequest(kind, seconds=seconds, options=options or {})
        return medium.sampling(self.frame, request)

    def trained_on(self, dataset: Dataset) -> bool:
        """Whether it was trained on this dataset, by its fingerprint or else by its path."""
        if self.data_sha256 is None:
            return dataset.folder.resolve() == self.data
        return dataset.fingerprint() == self.data_sha256

    def train_of(self, dataset: Dataset | None = None) -> Split | None:
        """The dataset's own train, or the run's if it has none.

        None if that no longer exists, or was prepared differently.
        """
        if dataset is not None and "train" in dataset.splits:
            return dataset["train"]
        if not (self.data / MANIFEST).is_file():
            return None
        own = open_dataset(self.data)
        is_same = self.trained_on(own) and not own.frame.differences(self.frame)
        return own["train"] if is_same else None

    def knows_metre(self, metres: NDArray[np.int64]) -> bool:
        """Whether a piece of its train has the first of these `FrameDefinition.metres`.

        True also if its dataset is gone or has changed.
        """
        with suppress(SeqmodelError):
            if (train := self.train_of()) is not None:
                pieces = (train.metres([k]) for k in range(len(train)))
                rows = (piece.reshape(-1, SIGNATURE) for piece in pieces if piece is not None)
                return any((row[:, 1:] == metres[1:SIGNATURE]).all(1).any() for row in rows)
        return True

    def check_reads(self, dataset: Dataset) -> None:
        """SeqmodelError unless the model reads frames like the dataset's."""
        frame, ours = dataset.frame, self.frame
        holds, reads = frame.medium, ours.medium
        if frame.values == ours.values == "binary":  # of music, there are also drums
            holds, reads = frame.kind, ours.kind
        if holds != reads:
            raise UsageError(
                f"{dataset.folder} holds {holds}, but {self.folder} was trained on {reads}: name "
                "another run or dataset"
            )
        if frame.onsets != ours.onsets:
            has, how = ("no onsets", "with") if ours.onsets else ("onsets", "without")
            raise SeqmodelError(
                f"{dataset.folder} has {has}, which {self.folder} was trained {how}: prepare the "
                f"{ours.medium} with {'--onsets' if ours.onsets else '--no-onsets'}"
            )
        for name, levels in frame.marks.items():
            known = ours.marks.get(name, levels).names
            if levels.names != known:
                raise SeqmodelError(
                    f"{dataset.folder} has the {name}s {listed(levels.names)}, but {self.folder} "
                    f"has {listed(known)}: score the files themselves, read like the run's data"
                )
        if (frame.frame_size, frame.context) != (ours.frame_size, ours.context):
            raise SeqmodelError(
                f"{dataset.folder} has frames of {frame.frame_size} samples, context "
                f"{frame.context}; {self.folder} reads {ours.frame_size}, context {ours.context}: "
                f"prepare the {ours.medium} with {ours.layout_options}"
            )


@dataclass(frozen=True, kw_only=True)
class Run(StoredRun):
    """A trained model with everything needed to use it."""

    model: "SequenceModel"

    def conditioned(self, labels: Labels) -> "Run":
        """The same run, whose pieces have these labels by default, instead of none."""
        chosen = label_ids(self.known_labels, labels)
        return replace(self, model=self.model.conditioned(chosen))

    def nll(
        self, frames: NDArray[Any], metres: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """-log p(x_t | x_<t) in nats, (T,), of each frame of one piece (T, D).

        Frames are zeros and ones for music, raw samples in [-1, 1) for audio; marks may follow, but
        are not scored. With onsets D is 176, and impossible frames cost infinity. `metres` is as in
        `FrameDefinition.metres`; by default it is the usual one in train. Labels are those that the
        run is `conditioned` on, by default none.
        """
        import torch

        size = self.frame.frame_size
        sizes = dict.fromkeys((size, self.frame.marked_size))
        if frames.ndim != 2 or len(frames) < 1 or frames.shape[1] not in sizes:
            widths = " or ".join(map(str, sizes))
            raise ValueError(f"frames must be (T >= 1, {widths}), not {frames.shape}")
        line = torch.from_numpy(np.array(frames[:, :size], np.float32, order="C")).unsqueeze(1)
        binary = self.frame.values == "binary"
        if not ((line == 0) | (line == 1) if binary else line.abs() <= 1).all():
            raise ValueError("frames must be zeros and ones, or 16-bit samples divided by 32768")
        usual = self.frame.metres({})
        if metres is not None and usual is not None and metres.shape != usual.shape:
            raise ValueError(f"metres must be {usual.shape}, not {metres.shape}")
        carry, nats = self.model.start(1, None if metres is None else metres[np.newaxis]), []
        with torch.inference_mode():
            for window in torch.split(line, self.model.window(1)):
                h, x, past, carry = self.model.read(window, carry)
                nats.append(self.model.output.score(h, x, past).squeeze(1).double())
        return torch.cat(nats).cpu().numpy()


def stored_run(path: str | Path) -> StoredRun:
    """What `load_run` loads, without the model; only that verifies the checksum."""
    checkpoint = checkpoint_of(Path(path))
    return _stored(load_content(checkpoint), checkpoint)


def _stored(values: Mapping[str, Any], checkpoint: Path) -> StoredRun:
    content, folder, lack = read_content(values, checkpoint), checkpoint.parent, ""
    if checkpoint.name == LAST:
        progress = Progress.from_json(values.get(PROGRESS), checkpoint, whole=False)
        lacks = f"lacks its best weights, {BEST}" if progress.metrics else "has no best weights yet"
        lack = f"{folder} {lacks}: using those after {progress.update} updates"
    if content.data_sha256 is None:  # a folder's best checkpoint leaves it to the last one
        with suppress(OSError, ValueError), open_input(folder / LAST) as file:  # which may be big
            last = Fields(parsed(metadata_of(file.read(MAX_HEADER_BYTES)).text("content")))
            content = replace(content, data_sha256=last.text(DATA_HASH))
    return StoredRun(**vars(content), folder=folder, lack=lack)


def load_run(path: str | Path, device: "torch.device | None" = None) -> Run:
    """Load the best model of a run, a folder or a zip, onto `device` (None: the CPU), to predict.

    If valid has not been scored yet, it is the last one, with a remark. SeqmodelError if there is
    no run or no checkpoint, or if it is damaged or needs a newer seqmodel.
    """
    from seqmodel.runs.checkpoint import averaged, load_checkpoint, model_of

    checkpoint = checkpoint_of(Path(path))
    tensors, values = load_checkpoint(checkpoint)
    stored = _stored(values, checkpoint)
    model = model_of(stored, tensors | averaged(tensors), checkpoint)
    model.to(device or "cpu").eval()
    return Run(**vars(stored), model=model)


def check_average(runs: Sequence[StoredRun]) -> None:
    """UsageError unless all runs predict the same frames, and whether pieces end."""
    first = runs[0]
    for run in runs[1:]:
        differences = run.frame.differences(first.frame)
        if not differences:  # for sound this loads torch
            pairs = zip(_predicted(run), _predicted(first), strict=True)
            differences = [f"{ours}, not {theirs}" for ours, theirs in pairs if ours != theirs]
        if differences:
            raise UsageError(
                f"{run.folder} differs from {first.folder} ({'; '.join(differences)}): only runs "
                "that predict the same can be averaged"
            )


def _predicted(run: StoredRun) -> tuple[str, str]:
    scale, nats = run.frame.standardisation() or {}, "probabilities"
    if run.frame.values != "binary" and not output_class(run.config, run.frame).discrete:
        nats = " ".join(["densities", *(f"{name} {n:.3g}" for name, n in scale.items())])
    return f"{'with' if run.config.end else 'without'} ends", nats


def new_run_folder(data: str, unit: str, runs: Path = RUNS) -> Path:
    """Create a folder named after the dataset, the unit and the first free number."""
    number = 1
    while True:
        folder = runs / f"{data}-{unit}-{number}"
        with disk_errors("make the run folder", folder), suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
        number += 1  # in use, perhaps just now by a concurrent run


def _is_run(folder: Path) -> bool:
    """Whether training wrote it: it has a checkpoint, or a config.yaml exactly as we write it."""
    if any(map(is_checkpoint, [folder / BEST, folder / LAST])):
        return True
    config = folder / CONFIG
    settings = settings_in(config)
    return settings is not None and read_bytes(config) == to_yaml(settings).encode()


EVENTS = re.compile(r"events\.out\.tfevents\.\d+\.seqmodel")

_FILES = "|".join([*map(re.escape, (CONFIG, METRICS, CURVE, BEST, LAST)), EVENTS.pattern])
_OF_SEARCH = "|".join(map(re.escape, (DRAWS_INDEX, f"{INIT}/{BEST}")))
RUN_FOLDER = FolderFormat(
    "run folder", _is_run, re.compile(rf"({DRAWS}/\d+/)?({_FILES}|trackers/.+)|{_OF_SEARCH}")
)
"""What `train --force` may replace."""
