"""Run folders: what training leaves behind, and what eval, sample and inspect take up.

config.yaml             the complete resolved config
metrics.jsonl           one object per epoch
best.safetensors        the model of the best epoch on valid
last.safetensors        the model, optimizer and place in the data, to resume from
learning-curve.png
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.files import disk_error, read_bytes
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.registry import definition_from_json
from seqmodel.model.build import build_model
from seqmodel.model.sequence import SequenceModel
from seqmodel.runs.checkpoint import load_checkpoint, load_content

CONFIG, METRICS, CURVE = "config.yaml", "metrics.jsonl", "learning-curve.png"
BEST, LAST = "best.safetensors", "last.safetensors"
RUNS = Path("runs")
"""Where runs lie unless told otherwise, below the folder one works in."""

MODEL = "model."
"""Prefix of the model's tensors in a checkpoint."""


@dataclass(frozen=True)
class Run:
    """A trained model with what is needed to use it."""

    folder: Path
    config: Config
    frame: FrameDefinition
    model: SequenceModel
    epoch: int
    """The epoch whose weights these are."""
    longest_piece: int
    """Frames in the longest piece of the training split."""

    def check_reads(self, dataset: Dataset) -> None:
        """Nothing where the model reads the dataset's frames, else SeqmodelError."""
        there, ours = dataset.frame, self.frame
        if there.medium is not ours.medium:
            raise SeqmodelError(
                f"{dataset.folder} holds {there.medium.name}, but {self.folder} was trained on "
                f"{ours.medium.name}: name another run or dataset"
            )
        if (there.frame_size, there.context) != (ours.frame_size, ours.context):
            raise SeqmodelError(
                f"{dataset.folder} has frames of {there.frame_size} samples, context "
                f"{there.context}; {self.folder} reads {ours.frame_size}, context {ours.context}: "
                f"prepare the {ours.medium.name} with {ours.layout_options}"
            )

    def nll(self, frames: NDArray[Any]) -> NDArray[np.float64]:
        """-log p(x_t | x_<t) in nats, (T,), of each frame of one piece (T, D).

        The frames are zeros and ones of music, raw samples in [-1, 1) of audio. ValueError for
        frames of another shape.
        """
        size = self.frame.frame_size
        if frames.ndim != 2 or len(frames) < 1 or frames.shape[1] != size:
            raise ValueError(f"frames must be (T >= 1, {size}), not {frames.shape}")
        with torch.inference_mode():
            x = torch.from_numpy(np.asarray(frames, np.float32)).unsqueeze(1)
            h, x, past, _ = self.model.read(x, self.model.start(1))
            nats = self.model.output.score(h, x, past).squeeze(1).double()
        return nats.numpy()


def load_run(path: str | Path) -> Run:
    """Load the best model of the run folder `path`, ready to predict.

    SeqmodelError where there is no run, no checkpoint, or a damaged one.
    """
    folder = Path(path)
    checkpoint = folder / BEST
    if not checkpoint.is_file():
        if not folder.is_dir():
            raise SeqmodelError(f"there is no run folder {folder}")
        if (folder / LAST).is_file():
            raise SeqmodelError(
                f"{folder} has no best checkpoint yet: its first epoch did not end; "
                f"go on with `seqmodel train --resume --run {folder}`"
            )
        raise SeqmodelError(f"{folder} has no checkpoint ({BEST}); train one with `seqmodel train`")
    tensors, content = load_checkpoint(checkpoint)
    config = Config(**content["config"])
    frame = definition_from_json(_media(content), content["frame"])
    model = build_model(config, frame)
    load_model(model, tensors)
    model.eval()
    return Run(
        folder,
        config,
        frame,
        model,
        content["epoch"],
        content["longest_piece"],
    )


def model_tensors(model: SequenceModel) -> dict[str, torch.Tensor]:
    """The model's tensors under the names they have in a checkpoint."""
    return {MODEL + name: tensor for name, tensor in model.state_dict().items()}


def load_model(model: SequenceModel, tensors: dict[str, torch.Tensor]) -> None:
    """Fill `model` from a checkpoint's tensors; SeqmodelError where their shapes do not fit."""
    there = {k.removeprefix(MODEL): v for k, v in tensors.items() if k.startswith(MODEL)}
    here = model.state_dict()
    for name in sorted(there.keys() | here.keys()):
        shapes = [tuple(some[name].shape) if name in some else None for some in (there, here)]
        if shapes[0] != shapes[1]:
            raise SeqmodelError(
                f"the checkpoint's weights do not fit the model: {name} is {shapes[0]} there and "
                f"{shapes[1]} here; use the unit, size and options that it was trained with"
            )
    model.load_state_dict(there)


def newest_run(runs: Path = RUNS, media: str | None = None) -> Path:
    """The run folder in `runs` that was trained last; SeqmodelError where there is none.

    With `media` the last of that medium, or, where there is none, of any: who loads it can say
    better what is wrong.
    """
    found = [file for file in runs.glob(f"*/{BEST}") if file.is_file()]
    if not found:
        raise SeqmodelError(
            f"no run in {runs}/; train one with `seqmodel train`, or name its folder"
        )
    found.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
    fitting = (file for file in found if media is None or media == _media(load_content(file)))
    return next(fitting, found[0]).parent


def _media(content: Mapping[str, Any]) -> str:
    """The medium of a checkpoint; before there was audio, none said of which it was."""
    return str(content.get("media", "music"))


def new_run_folder(data: str, unit: str, runs: Path = RUNS) -> Path:
    """Make a folder named after the dataset, the unit and the first number not yet taken."""
    number = 1
    while True:
        folder = runs / f"{data}-{unit}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1  # taken, perhaps this very moment by a run beside this one
        except OSError as error:
            raise disk_error(folder, "make the run folder", error) from error
        else:
            return folder


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The epochs of a run, one dictionary each; none where no epoch has ended."""
    path = folder / METRICS
    if not path.exists():
        return []
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in read_bytes(path).splitlines()]
        for line in lines:
            line["valid_nats_per_frame"], line["train_nats_per_frame"]
    except (ValueError, KeyError, TypeError) as error:
        raise SeqmodelError(f"{path} is damaged: a line holds no epoch") from error
    return lines
