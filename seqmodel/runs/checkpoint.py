"""Checkpoints: named tensors and JSON in one safetensors file, with a checksum over both.

safetensors has no checksum: a flipped bit in a weight would go unnoticed. Loading runs no code; the
JSON describes the model, which is built once both are known to fit.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from seqmodel import plain
from seqmodel.config import Config, refuse_unknown
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import open_input, write_file
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.labels import labels_text
from seqmodel.media.registry import definition_from_json
from seqmodel.model.build import build_model, meta_model, with_sizes
from seqmodel.model.encoder import known_labels
from seqmodel.model.sequence import SequenceModel
from seqmodel.plain import Fields
from seqmodel.runs.files import BEST, LAST, epochs_of, read_file
from seqmodel.units.module import KEY as UNIT_KEY

FORMAT = "seqmodel-checkpoint"
VERSION = 1
# The only metadata key: safetensors writes several in random order, and equal runs should leave
# equal bytes.
KEY = "seqmodel"
MAX_HEADER_BYTES = 2**24
"""Bytes read of a file from an unknown source; a header holds the figures of all epochs."""
MODEL = "model."
"""Prefix of the model's tensors in a checkpoint."""
AVERAGE = "average."
"""Prefix of the moving average of the weights, in the last checkpoint."""
PROGRESS = "place"
"""The last checkpoint's key for the run's `Progress`."""
DATA_HASH = "data_sha256"
"""The last checkpoint's key for the dataset's fingerprint, and in a zip also the best one's."""
FACTS_HASH = "given_sha256"
"""The last checkpoint's key for `Dataset.facts_hash`, if the model reads metres or labels."""
BEGAN_FROM = "began_from"
"""The key for the run, and its epoch, whose weights this run started from, if any."""


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write a checkpoint to `path`; see `checkpoint_bytes`."""
    write_file(path, checkpoint_bytes(tensors, content))


def checkpoint_bytes(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> bytes:
    """A checkpoint of `tensors`, from any device, and of `content`: JSON, so without nan."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(content, allow_nan=False)
    metadata = {"format": FORMAT, "version": VERSION, "content": text}
    metadata["sha256"] = _checksum(tensors, text)
    return safetensors.torch.save(tensors, {KEY: json.dumps(metadata)})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors, onto the CPU, and content; SeqmodelError unless it is an intact checkpoint."""
    with _opened(path) as (data, metadata):
        tensors = safetensors.torch.load(data)
        text = metadata.text("content")
        if _checksum(tensors, text) != metadata.text("sha256"):
            raise ValueError("another checksum")
        return tensors, _content(text)


def load_content(path: Path) -> dict[str, Any]:
    """Read the content alone, without verifying the checksum."""
    with _opened(path) as (data, metadata):
        safetensors.torch.load(data)  # an error if the file is cut short
        return _content(metadata.text("content"))


def is_checkpoint(path: Path) -> bool:
    """Whether `path` is a seqmodel checkpoint of any version; its content is not verified."""
    try:
        with open_input(path) as file:
            return _metadata(file.read(MAX_HEADER_BYTES)).text("format") == FORMAT
    except (OSError, ValueError):
        return False


def _metadata(data: bytes) -> Fields:
    """Our metadata in a safetensors file, which begins with the length of its JSON header."""
    header = Fields.of(plain.parse(data[8 : 8 + int.from_bytes(data[:8], "little")]))
    metadata = Fields.of(header.values.get("__metadata__", {}))
    return Fields.of(plain.parse(metadata.text(KEY)) if KEY in metadata.values else {})


def _content(text: str) -> dict[str, Any]:
    # Accepts nan, which older versions wrote as a figure; `check_valid_figure` explains it better.
    return dict(Fields.of(plain.parse(text, constants=True)).values)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[bytes, Fields]]:
    """Yield a checkpoint's bytes and our metadata; errors in the block become SeqmodelErrors."""
    data = read_file(path)
    try:
        metadata = _metadata(data)
        if metadata.values.get("format") != FORMAT:
            raise SeqmodelError(f"{path} is not a seqmodel checkpoint")
        version = metadata.values.get("version")
        if version != VERSION:
            raise SeqmodelError(
                f"{path} has checkpoint version {version!r:.20}; this seqmodel reads version "
                f"{VERSION}: use the seqmodel that wrote it"
            )
        yield data, metadata
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError) as error:
        raise SeqmodelError(
            f"{path} is damaged (cut short or changed); {_instead_of(path)}"
        ) from error


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())  # TypeError for a dtype that NumPy lacks
    return digest.hexdigest()


@dataclass(frozen=True)
class Content:
    """What is needed to build a model, and how far it was trained."""

    config: Config
    frame: FrameDefinition
    epoch: float
    """How many epochs the weights were trained for."""
    longest_piece: int
    """Frames in the longest piece of the training split."""
    data_sha256: str | None = None
    """The fingerprint of the dataset it was trained on, if that is stored with the weights."""
    began_from: str | None = None
    """Such as "lstm-1, epoch 12": the weights it started from, if they were trained before."""

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


@dataclass(frozen=True)
class TimePlan:
    """How far training will get in its minutes, as measured at some point.

    Whatever depends on progress, such as the learning rate, follows the plan, so that between two
    plans the same checkpoint continues to the same bits.
    """

    at: float = 0.0
    """Epochs done when it was made."""
    share: float = 0.0
    """The share of the training done by then."""
    seconds: float = 0.0
    """The time that all updates had taken by then."""
    until: float = 0.0
    """Epochs after which the minutes are over; 0: not known yet."""

    def share_at(self, epochs: float) -> float:
        """The share of the training done after this many epochs."""
        if epochs < self.until:
            return self.share + (1 - self.share) * (epochs - self.at) / (self.until - self.at)
        return 1.0 if self.until else 0.0


@dataclass
class Progress:
    """The progress of a run."""

    epoch: int = 0
    """Epochs completed."""
    batch: int = 0
    """Batches of the current epoch completed."""
    window: int = 0
    """Windows of the current batch completed."""
    update: int = 0
    """Updates completed, over all epochs."""
    corrected: bool = False
    """Whether the encoder has been corrected by freely drawn samples at this look."""
    before: int = 0
    """Frames of this epoch read by updates before the last look at valid."""
    nats: float = 0.0
    """The sum over the frames since, each with the weights of its update."""
    frames: int = 0
    """Frames since then."""
    seconds: float = 0.0
    """The time of the updates since then; older versions did not save it."""
    learning_rate: float = 0.0
    """That of the last update."""
    best_nats: float = math.inf
    """Nats per frame on valid at the best look."""
    best_epoch: float = 0
    """The epochs done by then."""
    scoring: float = 0.0
    """Seconds that looks have taken, if training is limited in minutes."""
    plan: TimePlan | None = None
    """The plan of such a training, once there is one."""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The looks so far, as in metrics.jsonl."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, without inf and without defaults of fields unknown to older versions."""
        values = asdict(self)
        for name in ("corrected", "before", "scoring", "plan"):
            if not values[name]:
                del values[name]
        if math.isinf(self.best_nats):
            del values["best_nats"]
        return values

    def is_over(self, config: Config) -> bool:
        """Whether all epochs, or all planned ones, are done, or `patience` has run out."""
        done = epochs_of(self.metrics)
        if config.minutes is not None:
            return self.plan is not None and done >= self.plan.until
        most = config.most_epochs(self.best_epoch)
        return done >= most or done - self.best_epoch >= config.patience

    @property
    def trained(self) -> float:
        """Seconds of all updates."""
        return sum(line["seconds"] for line in self.metrics) + self.seconds

    @classmethod
    def from_json(cls, values: Any, origin: Path, *, whole: bool = True) -> "Progress":
        """The inverse of `to_json`; SeqmodelError for what training never writes to `origin`.

        Unless the `whole` is needed, as to resume, fields added by newer versions are ignored.
        """
        try:
            fields = Fields.of(values, PROGRESS)
            values = _known_fields(fields.values, cls, origin, whole=whole)
            checks: dict[Any, Any] = {int: fields.integer, float: fields.number, bool: fields.flag}
            for setting in dataclass_fields(cls):
                if setting.name in fields and setting.type in checks:
                    checks[setting.type](setting.name)
            for line in fields.objects("metrics") if "metrics" in fields else ():
                for name in ("epoch", "valid_nats_per_frame", "learning_rate"):
                    line.number(name)
            plan = {}
            if "plan" in fields:
                stated = fields.fields("plan")
                names = _known_fields(stated.values, TimePlan, origin, whole=whole)
                plan = {"plan": TimePlan(**{name: stated.number(name) for name in names})}
            progress = cls(**{**values, **plan})
            if progress.frames + progress.before == 0 < progress.batch + progress.window:
                raise ValueError(f"{PROGRESS} has batches of no frame")
            return progress
        except ValueError as error:
            raise damaged(origin, str(error)) from error


def _known_fields(
    values: Mapping[str, Any], kind: type, origin: Path, *, whole: bool
) -> Mapping[str, Any]:
    """Those of `values` that dataclass `kind` has; with `whole`, SeqmodelError for any others."""
    if whole:
        refuse_unknown(values, kind, origin)
    return {f.name: values[f.name] for f in dataclass_fields(kind) if f.name in values}


def medium_name(values: Mapping[str, Any]) -> str:
    """A checkpoint's medium, which was not stated before audio was added."""
    return str(values.get("media", "music"))


def read_content(values: Mapping[str, Any], origin: Path) -> Content:
    """The inverse of `Content.to_json`; SeqmodelError names the checkpoint `origin`."""
    fields = Fields(values)
    try:
        config = Config.from_json(fields.fields("config").values, origin)
        frame = definition_from_json(medium_name(values), fields.fields("frame").values)
        data_sha256 = fields.text(DATA_HASH) if DATA_HASH in fields else None
        began_from = fields.text(BEGAN_FROM) if BEGAN_FROM in fields else None
        longest = fields.integer("longest_piece", 1)
        epoch = fields.number("epoch")
        epoch = int(epoch) if epoch.is_integer() else epoch
        return Content(config, frame, epoch, longest, data_sha256, began_from)
    except (ValueError, SourceError) as error:
        raise damaged(origin, str(error)) from error


def damaged(origin: Path, how: str) -> SeqmodelError:
    """The one-line error for a checkpoint with content that training never writes."""
    return SeqmodelError(f"{origin} is damaged: {how}; {_instead_of(origin)}")


def _instead_of(path: Path) -> str:
    """What to do about a checkpoint that cannot be used."""
    last = path.parent / LAST
    if path.name == BEST and last.is_file():
        return f"delete it to use {last}, or train again"
    return "use another checkpoint or train again"


def model_of(content: Content, tensors: Mapping[str, Tensor], origin: Path) -> SequenceModel:
    """The model of a checkpoint, on the CPU; SeqmodelError names `origin`."""
    check_fit(content.config, content.frame, tensors, origin)
    model = build_model(content.config, content.frame)
    load_model(model, tensors)
    for name, weight in model.state_dict().items():
        if not torch.isfinite(weight).all():
            raise SeqmodelError(
                f"{origin} has weights that are not finite ({name}); {_instead_of(origin)}"
            )
    return model


def check_fit(
    config: Config, frame: FrameDefinition, tensors: Mapping[str, Tensor], origin: Path
) -> None:
    """SeqmodelError unless the tensors of `origin` fit such a model, without allocating it."""
    try:
        if with_sizes(config, frame) != config:
            raise SeqmodelError("its settings leave sizes open")
        advice = "it may be from another version of seqmodel: train again"
        _compare(meta_model(config, frame), tensors, advice)
    except SeqmodelError as error:
        raise SeqmodelError(f"{origin}: {error}") from error


def check_labels(trained: Content, config: Config, frame: FrameDefinition, model: str) -> None:
    """SeqmodelError unless the trained `model` knows exactly these frames' labels."""
    theirs, ours = known_labels(trained.config, trained.frame), known_labels(config, frame)
    if [*theirs.items()] != [*ours.items()]:
        knows = [f"the labels {labels_text(one)}" if one else "no labels" for one in (theirs, ours)]
        without = "prepare them without --labels, or train with --labels none"
        raise SeqmodelError(
            f"{model} knows {knows[0]}, but one for these data {knows[1]}: "
            + ("prepare them with the same --labels" if theirs else without)
        )


def tensors_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """The state_dict without units' descriptions, which the settings contain in a checkpoint."""
    return {name: t for name, t in module.state_dict().items() if not name.endswith(UNIT_KEY)}


def model_tensors(model: SequenceModel) -> dict[str, Tensor]:
    """The model's tensors under their names in a checkpoint."""
    return {MODEL + name: tensor for name, tensor in tensors_of(model).items()}


def averaged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The moving average of the weights in the last checkpoint, by the model's names, if any."""
    begin = f"{AVERAGE}module."
    return {MODEL + k.removeprefix(begin): t for k, t in tensors.items() if k.startswith(begin)}


def load_model(model: SequenceModel, tensors: Mapping[str, Tensor]) -> None:
    """Copy a checkpoint's tensors into `model`; SeqmodelError if names or shapes differ."""
    advice = "use the settings that it was trained with: --config RUN/config.yaml"
    model.load_state_dict(_compare(model, tensors, advice))


def _compare(model: SequenceModel, tensors: Mapping[str, Tensor], advice: str) -> dict[str, Tensor]:
    stored = {k.removeprefix(MODEL): v for k, v in tensors.items() if k.startswith(MODEL)}
    expected = tensors_of(model)
    for name in sorted(stored.keys() | expected.keys()):
        shapes = [tuple(some[name].shape) if name in some else None for some in (stored, expected)]
        if shapes[0] != shapes[1]:
            raise SeqmodelError(
                f"the checkpoint's weights do not fit the model: {name} is {shapes[0]} there and "
                f"{shapes[1]} here; {advice}"
            )
    return stored
