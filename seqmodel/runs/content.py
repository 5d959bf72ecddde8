"""What a checkpoint says besides its weights: the model's settings, its frames, the progress.

All of it can be read without torch, which takes seconds to load.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import safetensors

from seqmodel import plain
from seqmodel.config import Config, refuse_unknown
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import open_input
from seqmodel.media.definitions import FrameDefinition, known_labels
from seqmodel.media.labels import KnownLabels
from seqmodel.media.registry import definition_from_json
from seqmodel.plain import Fields
from seqmodel.runs import files

FORMAT = "seqmodel-checkpoint"
VERSION = 1
# The only metadata key: safetensors writes several in random order, and equal runs should leave
# equal bytes.
KEY = "seqmodel"
MAX_HEADER_BYTES = 2**24
"""Bytes read of a file from an unknown source; a header holds the figures of all epochs."""
PROGRESS = "place"
"""The last checkpoint's key for the run's `Progress`."""
DATA_HASH = "data_sha256"
"""The last checkpoint's key for the dataset's fingerprint, and in a zip also the best one's."""
FACTS_HASH = "given_sha256"
"""The last checkpoint's key for `Dataset.facts_hash`, if the model reads metres or labels."""
BEGAN_FROM = "began_from"
"""The key for the run, and its epoch, whose weights this run started from, if any."""


def load_content(path: Path) -> dict[str, Any]:
    """Read the content alone, without verifying the checksum."""
    with opened(path) as (data, metadata):
        safetensors.deserialize(data)  # type: ignore[no-untyped-call] # an error if the file is cut short
        return parsed(metadata.text("content"))


def is_checkpoint(path: Path) -> bool:
    """Whether `path` is a seqmodel checkpoint of any version; its content is not verified."""
    try:
        with open_input(path) as file:
            return metadata_of(file.read(MAX_HEADER_BYTES)).text("format") == FORMAT
    except (OSError, ValueError):
        return False


def metadata_of(data: bytes) -> Fields:
    """Our metadata in a safetensors file, which begins with the length of its JSON header."""
    header = Fields.of(plain.parse(data[8 : 8 + int.from_bytes(data[:8], "little")]))
    metadata = Fields.of(header.values.get("__metadata__", {}))
    return Fields.of(plain.parse(metadata.text(KEY)) if KEY in metadata.values else {})


def parsed(text: str) -> dict[str, Any]:
    """The content from its JSON; ValueError if it is none."""
    # Accepts nan, which older versions wrote as a figure; `check_valid_figure` explains it better.
    return dict(Fields.of(plain.parse(text, constants=True)).values)


@contextmanager
def opened(path: Path) -> Iterator[tuple[bytes, Fields]]:
    """Yield a checkpoint's bytes and our metadata; errors in the block become SeqmodelErrors."""
    data = files.read_file(path)
    try:
        metadata = metadata_of(data)
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
            f"{path} is damaged (cut short or changed); {instead_of(path)}"
        ) from error


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
    """The fingerprint of the dataset it was trained on, if that is known."""
    began_from: str | None = None
    """Such as "lstm-1, epoch 12": the weights it started from, if they were trained before."""

    @property
    def known_labels(self) -> KnownLabels:
        """The labels that the model is conditioned on."""
        return known_labels(self.config, self.frame)

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
        done = files.epochs_of(self.metrics)
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
    return SeqmodelError(f"{origin} is damaged: {how}; {instead_of(origin)}")


def instead_of(path: Path) -> str:
    """What to do about a checkpoint that cannot be used."""
    last = path.parent / files.LAST
    if path.name == files.BEST and last.is_file():
        with suppress(SeqmodelError):  # it may be damaged too
            load_content(last)
            return f"delete it to use {last}, or train again"
    return "use another checkpoint or train again"


def newest_run(
    runs: Path = files.RUNS, media: Collection[str] = (), labels: Collection[str] = ()
) -> tuple[Path, str] | None:
    """The run folder in `runs` with the newest best checkpoint.

    Of one of `media` if given, and of those that know these labels. Runs that have finished
    training are preferred: the remark names a newer one that has not, and is "" otherwise. None if
    there is no such run.
    """
    found = [file for file in runs.glob(f"*/{files.BEST}") if file.is_file()]
    found.sort(key=files.modified, reverse=True)
    fitting = (file for file in found if not (media or labels) or _fits(file, media, labels))
    first = next(fitting, None)
    if first is None:
        return None
    newest = first.parent
    if not (remark := unfinished(newest)):
        return newest, ""
    finished = next((file.parent for file in fitting if not unfinished(file.parent)), None)
    return (finished, f"{remark}; using {finished}") if finished else (newest, "")


def _fits(checkpoint: Path, media: Collection[str], labels: Collection[str]) -> bool:
    """SeqmodelError if the checkpoint is damaged, but not of one that might know the labels."""
    try:
        values = load_content(checkpoint)
        if media and medium_name(values) not in media:
            return False
        content = read_content(values, checkpoint) if labels else None
    except SeqmodelError:
        if labels:
            return False
        raise
    return content is None or {*labels} <= content.known_labels.keys()


def unfinished(folder: Path) -> str:
    """A remark with the command that resumes training, or a search, if any is left; else "".

    A last checkpoint that cannot be read, and so not be resumed, is told instead.
    """
    last, advice = folder / files.LAST, f"{files.resume_command(folder)} continues it"
    if not last.is_file():
        searching = (folder / files.DRAWS).is_dir() and not (folder / files.BEST).is_file()
        return f"{folder} has not finished its search: {advice}" if searching else ""
    try:
        values = load_content(last)
        progress = Progress.from_json(values.get(PROGRESS), last, whole=False)
        config = Config.from_json(Fields(values).fields("config").values, last)
    except (SeqmodelError, ValueError) as error:
        return f"{folder} may not have finished training: {error}"
    return "" if progress.is_over(config) else f"{folder} has not finished training: {advice}"
