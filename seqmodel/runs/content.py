"""A checkpoint's description of its model, and the model, built once the two are known to fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.registry import definition_from_json
from seqmodel.model.build import build_model, outline, with_sizes
from seqmodel.model.sequence import SequenceModel
from seqmodel.plain_json import Fields
from seqmodel.units.module import KEY

MODEL = "model."
"""Prefix of the model's tensors in a checkpoint."""
PROGRESS = "place"
"""The last checkpoint's key for how far the run has come, `training.state.Progress`."""
DATA_HASH = "data_sha256"
"""The last checkpoint's key for the dataset's fingerprint, and in a zip also the best one's."""
BEGAN_FROM = "began_from"
"""The key for the run whose weights this one began with, and its epoch, if there is one."""


@dataclass(frozen=True)
class Content:
    """What is needed to build a model, and how far it was trained."""

    config: Config
    frame: FrameDefinition
    epoch: int
    """The epoch whose weights these are."""
    longest_piece: int
    """Frames in the longest piece of the training split."""
    data_sha256: str | None = None
    """The fingerprint of the dataset it was trained on, if that is stored with the weights."""
    began_from: str | None = None
    """Such as "lstm-1, epoch 12": the weights it began with, if they were trained before."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint, which `read_content` reads back."""
        known = {DATA_HASH: self.data_sha256, BEGAN_FROM: self.began_from}
        return {
            "config": self.config.to_json(),
            "media": self.frame.medium,
            "frame": self.frame.to_json(),
            "epoch": self.epoch,
            "longest_piece": self.longest_piece,
            **{name: value for name, value in known.items() if value is not None},
        }


def is_over(config: Config, epoch: int, best_epoch: int) -> bool:
    """Whether all epochs are done, or the best is `patience` epochs ago."""
    return epoch >= config.epochs or epoch - best_epoch >= config.patience


def medium_name(values: Mapping[str, Any]) -> str:
    """A checkpoint's medium; it was not stated before audio was added."""
    return str(values.get("media", "music"))


def read_content(values: Mapping[str, Any], origin: Path) -> Content:
    """The inverse of `Content.to_json`; SeqmodelError names the checkpoint `origin`."""
    fields = Fields(values)
    try:
        config = Config.from_json(fields.fields("config").values, origin)
        frame = definition_from_json(medium_name(values), fields.fields("frame").values)
        data_sha256 = fields.text(DATA_HASH) if DATA_HASH in fields else None
        began_from = fields.text(BEGAN_FROM) if BEGAN_FROM in fields else None
        longest = fields.whole("longest_piece", 1)
        return Content(config, frame, fields.whole("epoch"), longest, data_sha256, began_from)
    except (ValueError, SourceError) as error:
        raise damaged(origin, str(error)) from error


def damaged(origin: Path, how: str) -> SeqmodelError:
    """The one-line error for a checkpoint with content that training never writes."""
    return SeqmodelError(f"{origin} is damaged: {how}; use another checkpoint or train again")


def model_of(content: Content, tensors: Mapping[str, torch.Tensor], origin: Path) -> SequenceModel:
    """The model of a checkpoint, on the CPU; SeqmodelError names `origin`."""
    check_fit(content.config, content.frame, tensors, origin)
    model = build_model(content.config, content.frame)
    load_model(model, tensors)
    for name, weight in model.state_dict().items():
        if not torch.isfinite(weight).all():
            raise SeqmodelError(
                f"{origin} has weights that are not finite ({name}); use another checkpoint or "
                "train again"
            )
    return model


def check_fit(
    config: Config, frame: FrameDefinition, tensors: Mapping[str, torch.Tensor], origin: Path
) -> None:
    """SeqmodelError unless the tensors of the checkpoint `origin` fit a model with these settings.

    Takes no memory: the sizes that a file claims are trusted only if its weights have them.
    """
    try:
        if with_sizes(config, frame) != config:
            raise SeqmodelError("its settings leave sizes open")
        advice = "it may be of another version of seqmodel: train again"
        _compare(outline(config, frame), tensors, advice)
    except SeqmodelError as error:
        raise SeqmodelError(f"{origin}: {error}") from error


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state_dict without what units say of themselves: in a checkpoint the settings do."""
    return {name: t for name, t in module.state_dict().items() if not name.endswith(KEY)}


def model_tensors(model: SequenceModel) -> dict[str, torch.Tensor]:
    """The model's tensors under the names they have in a checkpoint."""
    return {MODEL + name: tensor for name, tensor in tensors_of(model).items()}


def load_model(model: SequenceModel, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy a checkpoint's tensors into `model`; SeqmodelError if names or shapes differ."""
    advice = "use the unit, size and options that it was trained with"
    model.load_state_dict(_compare(model, tensors, advice))


def _compare(
    model: SequenceModel, tensors: Mapping[str, torch.Tensor], advice: str
) -> dict[str, torch.Tensor]:
    there = {k.removeprefix(MODEL): v for k, v in tensors.items() if k.startswith(MODEL)}
    here = tensors_of(model)
    for name in sorted(there.keys() | here.keys()):
        shapes = [tuple(some[name].shape) if name in some else None for some in (there, here)]
        if shapes[0] != shapes[1]:
            raise SeqmodelError(
                f"the checkpoint's weights do not fit the model: {name} is {shapes[0]} there and "
                f"{shapes[1]} here; {advice}"
            )
    return there
