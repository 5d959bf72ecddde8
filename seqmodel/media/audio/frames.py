"""A frame of audio, which is a block of samples, and the settings it is prepared with."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.medium import CLIP_SECONDS, CONTEXT, FRAME_SIZE
from seqmodel.media.definitions import FrameDefinition, Pieces
from seqmodel.media.labels import LABELS, KnownLabels, known_labels_of
from seqmodel.media.sound import FULL_SCALE, LOUDEST, to_levels
from seqmodel.media.words import plural
from seqmodel.plain import Fields

MAX_RATE = 1_000_000
MAX_FRAME_SAMPLES = 65_536
"""Larger values are assumed to be typing errors."""

BLOCK = 2**16
"""Samples held in memory at a time, however long a piece is."""

PAUSE_LEVEL = 0.1
"""The share of train's deviation, 20 dB down, that no sample of a pause exceeds."""

ROW_TYPES = {"int16": "<i2", "mu-law": "|i1", "float32": "<f4"}
"""How a sample is stored -> the type of a row."""


@dataclass(frozen=True)
class AudioSettings:
    """How to cut audio into frames; UsageError if a value is out of range."""

    rate: int | None = None
    """Samples per second; None for the rate of the sources, if all agree."""
    frame_size: int = FRAME_SIZE
    context: int = CONTEXT
    clip_seconds: float | None = None
    """Longer recordings are cut into pieces of this length; None: never."""
    levels: Literal["linear", "mu-law"] = "linear"
    """The levels of a sample: 16 bits, or 8 bits of `mu_law`."""

    def __post_init__(self) -> None:
        sizes = {"--rate": self.rate, "--frame": self.frame_size, "--context": self.context}
        for option, value in sizes.items():
            most = MAX_RATE if option == "--rate" else MAX_FRAME_SAMPLES
            if value is not None and not 1 <= value <= most:
                raise UsageError(f"{option} must be from 1 to {most:,}, not {value:,}")
        clip = self.clip_seconds
        if clip is not None and not (math.isfinite(clip) and clip > 0):
            raise UsageError(
                f"--clip-seconds must be above 0, or 0 to keep recordings whole, not {clip}"
            )

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "AudioSettings":
        given = {name: value for name, value in options.items() if value is not None}
        given["frame_size"] = given.pop("frame", FRAME_SIZE)
        given["clip_seconds"] = given.get("clip_seconds", CLIP_SECONDS) or None
        return cls(**given)

    @classmethod
    def like(cls, frame: "AudioFrames") -> "AudioSettings":
        """The settings that prepare sources in frames like `frame`, not cut into clips."""
        levels: Any = "mu-law" if frame.dtype == "mu-law" else "linear"
        return cls(frame.rate, frame.frame_size, frame.context, levels=levels)


@dataclass(frozen=True)
class AudioFrames(FrameDefinition):
    """A frame of `frame_size` mono samples, predicted from the last `context` ones.

    Samples are stored unstandardised; a model standardises them by mean and deviation.
    SourceError if a value is one that `prepare` never writes.
    """

    medium: ClassVar[str] = "audio"
    row_shape: ClassVar[tuple[int, ...]] = ()

    rate: int = 0
    """Samples per second; 0, the default of other media's frames, is rejected."""
    frame_size: int = FRAME_SIZE
    context: int = CONTEXT
    dtype: Literal["int16", "mu-law", "float32"] = "int16"
    """int16, in units of 1/32768; the 8-bit levels of `mu_law`; older datasets may hold float32."""
    mean: float = 0.0
    deviation: float = 1.0
    """That of all samples in the training split, in [-1, 1); 1 if all are equal."""
    longest_pause: int | None = None
    known_labels: KnownLabels = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = (MAX_RATE, MAX_FRAME_SAMPLES, MAX_FRAME_SAMPLES)
        sizes = (self.rate, self.frame_size, self.context)
        if (
            not all(type(n) is int and 1 <= n <= m for n, m in zip(sizes, limits, strict=True))
            or self.dtype not in ROW_TYPES
            or not all(type(value) is float for value in (self.mean, self.deviation))
            or not (math.isfinite(self.mean) and 0 < self.deviation < math.inf)
            or not ((type(pause := self.longest_pause) is int and pause > 0) or pause is None)
        ):
            raise SourceError(f"holds impossible frames: {asdict(self)}")

    @property
    def row_dtype(self) -> np.dtype[Any]:
        return np.dtype(ROW_TYPES[self.dtype])

    @property
    def values(self) -> Literal["samples", "levels"]:
        return "levels" if self.dtype == "mu-law" else "samples"

    @property
    def kind(self) -> str:
        kinds = {"int16": "16-bit audio", "mu-law": "8-bit mu-law audio", "float32": "audio"}
        return kinds[self.dtype]

    @property
    def rows_per_frame(self) -> int:
        return self.frame_size

    @property
    def full_scale(self) -> float:
        return float(mu_law.SAMPLES[-1]) if self.dtype == "mu-law" else LOUDEST

    @property
    def pause_level(self) -> int:
        """The 16-bit level that no sample of a pause exceeds: a power of two, or 0."""
        level = min(PAUSE_LEVEL * FULL_SCALE * self.deviation, FULL_SCALE)
        return (1 << int(level).bit_length()) // 2

    @property
    def labels(self) -> tuple[str, ...]:
        frames = f"frames of {plural(self.frame_size, 'sample')}"
        levels = "8-bit mu-law" if self.dtype == "mu-law" else "16 bits"
        return (f"{self.rate:,} Hz", frames, f"context {self.context}", levels)

    @property
    def layout_options(self) -> str:
        return f"--frame {self.frame_size} --context {self.context}"

    @property
    def fingerprint(self) -> bytes:
        """Frame, context and levels: a piece's hash is of its samples, however they are cut."""
        levels = " mu-law" * (self.dtype == "mu-law")
        return f"{self.frame_size} {self.context}{levels}".encode()

    def encode(self, values: NDArray[np.float32]) -> NDArray[Any]:
        """Samples in [-1, 1), of any shape, as stored; all types but float32 clip those beyond."""
        if self.dtype == "mu-law":
            return mu_law.encode(values)
        if self.dtype == "int16":
            return to_levels(values).astype(self.row_dtype)
        return values.astype(self.row_dtype)

    def decode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        samples = mu_law.decode(rows) if self.dtype == "mu-law" else rows.astype(np.float32)
        if self.dtype == "int16":
            samples /= FULL_SCALE
        return samples.reshape(-1, self.frame_size)

    def canonical(self, rows: NDArray[Any]) -> bytes:
        return self.decode(rows).astype("<f4", copy=False).tobytes()

    def duration(self, frames: int) -> str:
        return f"{frames * (self.frame_size / self.rate):,.1f} s"

    def standardisation(self) -> dict[str, float]:
        return {"mean": self.mean, "deviation": self.deviation}

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        added = {LABELS: values.pop("known_labels"), "longest_pause": values.pop("longest_pause")}
        return values | {name: value for name, value in added.items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "AudioFrames":
        labels = known_labels_of(Fields(values, "frame"))
        values = {name: value for name, value in values.items() if name != LABELS}
        for known_field in fields(cls):
            if known_field.name not in (*values, "known_labels", "longest_pause"):
                raise ValueError(f"frame.{known_field.name} is missing")
        return cls(**values, known_labels=labels)

    def __str__(self) -> str:
        *layout, levels = self.labels
        return ", ".join([*layout, levels] if self.dtype == "mu-law" else layout)


def sample_blocks(pieces: Pieces, index: int) -> Iterator[NDArray[np.float32]]:
    """The samples of a piece in blocks (n,) of whole frames, about `BLOCK` samples each."""
    frame = pieces.frame
    step = max(1, BLOCK // frame.frame_size) * frame.rows_per_frame
    for start in range(0, pieces.row_count(index), step):
        yield frame.decode(pieces.read_rows(index, start, start + step)).reshape(-1)


class Windows:
    """Windows of `size` samples, one every `hop`, of a signal that comes in blocks (n,)."""

    def __init__(self, size: int, hop: int) -> None:
        self._size, self._hop = size, hop
        self._rest: NDArray[Any] = np.zeros(0, np.float32)

    def of(self, block: NDArray[Any]) -> NDArray[Any]:
        """The windows (n, size) that end in the next block."""
        line = np.concatenate([self._rest, block])
        count = max(0, (len(line) - self._size) // self._hop + 1)
        self._rest = line[count * self._hop :]
        if not count:
            return line[:0].reshape(0, self._size)
        return np.lib.stride_tricks.sliding_window_view(line, self._size)[:: self._hop]
