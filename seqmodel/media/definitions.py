"""What a frame is, music's or audio's: how it is stored, read back, and made from new files."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.music.grid import NOTES, Grid
from seqmodel.media.music.pianoroll import PACKED_BYTES, unpack

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Restrike

FULL_SCALE = 32768
"""A 16-bit sample of so much would be 1.0."""

MAX_RATE = 1_000_000
MAX_FRAME_SAMPLES = 65_536
"""Bounds on what can be asked for: beyond them a rate or a frame is a slip of the keyboard."""


class _Music:
    name = "music"
    paper_hidden: ClassVar = {"lstm": 36, "gru": 46, "tanh": 100}
    paper_params = 18_500
    can_transpose = True

    @staticmethod
    def baselines(train: Any, valid: Any, frame: Any, *, discrete: bool) -> dict[str, float]:
        from seqmodel.media.music.baselines import baseline_nats_per_frame

        return baseline_nats_per_frame(train, valid)


class _Audio:
    name = "audio"
    paper_hidden: ClassVar = {"lstm": 195, "gru": 227, "tanh": 400}
    paper_params = 169_000
    can_transpose = False

    @staticmethod
    def baselines(train: Any, valid: Any, frame: Any, *, discrete: bool) -> dict[str, float]:
        from seqmodel.media.audio.baselines import audio_nats_per_frame

        return audio_nats_per_frame(train, valid, frame, discrete=discrete)


@dataclass(frozen=True)
class PianoRollFrames:
    """A frame of music: which of the piano's 88 notes sound. Stored as 11 bytes, 88 bits."""

    media: ClassVar[Literal["music"]] = "music"
    values: ClassVar[Literal["binary"]] = "binary"
    medium: ClassVar[Any] = _Music

    def standardisation(self) -> None:
        return None

    mean: ClassVar[float] = 0.0
    deviation: ClassVar[float] = 1.0
    frame_size: ClassVar[int] = NOTES
    context: ClassVar[int] = NOTES
    """What a model sees of the past at each step is one frame."""
    row_dtype: ClassVar[np.dtype[Any]] = np.dtype("u1")
    row_shape: ClassVar[tuple[int, ...]] = (PACKED_BYTES,)
    rows_per_frame: ClassVar[int] = 1

    grid: Grid
    restrike: "Restrike" = "close"
    drums: bool = False
    transpose_to_c: bool = False

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Stored rows (T, 11) as frames (T, 88), zeros and ones."""
        return unpack(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {
            "notes": NOTES,
            "grid": self.grid.to_json(),
            "restrike": self.restrike,
            "drums": self.drums,
            "transpose_to_c": self.transpose_to_c,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "PianoRollFrames":
        """The inverse of `to_json`; SourceError, KeyError or TypeError for damaged values."""
        return cls(
            Grid.from_json(values["grid"]),
            values["restrike"],
            values["drums"],
            values["transpose_to_c"],
        )

    def __str__(self) -> str:
        return f"{NOTES} notes, {self.grid}"


@dataclass(frozen=True)
class AudioSettings:
    """How audio is to be cut into frames, as asked for; `AudioFrames` is what came of it.

    Raises:
        UsageError: when a value is out of range, or a clip shorter than a frame.
    """

    media: ClassVar[Literal["audio"]] = "audio"

    rate: int | None = None
    """Samples per second; None: that of the sources, where all agree."""
    frame_size: int = 10
    context: int = 20
    clip_seconds: float | None = None
    """Longer recordings are cut into pieces of this length."""

    def __post_init__(self) -> None:
        if self.rate is not None:
            _check_range("--rate", self.rate, MAX_RATE)
        _check_range("--frame", self.frame_size, MAX_FRAME_SAMPLES)
        _check_range("--context", self.context, MAX_FRAME_SAMPLES)
        clip = self.clip_seconds
        if clip is not None and not (math.isfinite(clip) and clip > 0):
            raise UsageError(f"--clip-seconds must be above 0, not {clip}")


@dataclass(frozen=True)
class AudioFrames:
    """A frame of audio: `frame_size` samples, mono, predicted from the last `context` ones.

    Samples are stored as they are; the mean and the deviation are there for the model, which
    standardises them.

    Raises:
        SourceError: when a value is none that `prepare` would have written.
    """

    media: ClassVar[Literal["audio"]] = "audio"
    values: ClassVar[Literal["samples"]] = "samples"
    medium: ClassVar[Any] = _Audio

    def standardisation(self) -> dict[str, float]:
        return {"mean": self.mean, "deviation": self.deviation}

    row_shape: ClassVar[tuple[int, ...]] = ()

    rate: int
    """Samples per second."""
    frame_size: int = 10
    context: int = 20
    dtype: Literal["int16", "float32"] = "float32"
    """How samples are stored: int16 where that loses nothing, in units of 1/32768."""
    mean: float = 0.0
    deviation: float = 1.0
    """Of all samples of the training split, in [-1, 1); 1 where they are all alike."""

    def __post_init__(self) -> None:
        limits = (MAX_RATE, MAX_FRAME_SAMPLES, MAX_FRAME_SAMPLES)
        sizes = (self.rate, self.frame_size, self.context)
        if (
            not all(type(n) is int and 1 <= n <= m for n, m in zip(sizes, limits, strict=True))
            or self.dtype not in ("int16", "float32")
            or not all(type(value) is float for value in (self.mean, self.deviation))
            or not (math.isfinite(self.mean) and 0 < self.deviation < math.inf)
        ):
            raise SourceError(f"holds impossible frames: {asdict(self)}")

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """A stored sample's type, whatever the machine."""
        return np.dtype("<i2" if self.dtype == "int16" else "<f4")

    @property
    def rows_per_frame(self) -> int:
        """A row of a shard is one sample."""
        return self.frame_size

    def encode(self, samples: NDArray[np.float32]) -> NDArray[Any]:
        """Samples (N,) in [-1, 1) as they are stored; for int16 multiples of 1/32768."""
        if self.dtype == "int16":
            samples = samples * np.float32(FULL_SCALE)
        return samples.astype(self.row_dtype)

    def decode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Stored samples (T * frame_size,) as frames (T, frame_size), values in [-1, 1)."""
        samples = rows.astype(np.float32)
        if self.dtype == "int16":
            samples /= FULL_SCALE
        return samples.reshape(-1, self.frame_size)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "AudioFrames":
        """The inverse of `to_json`; SourceError or TypeError for damaged values."""
        return cls(**values)

    def __str__(self) -> str:
        size, context = self.frame_size, self.context
        return f"{self.rate:,} Hz, frames of {size} sample{'s' * (size > 1)}, context {context}"


FrameDefinition = PianoRollFrames | AudioFrames
Media = Literal["music", "audio"]


def definition_from_json(media: str, values: Mapping[str, Any]) -> FrameDefinition:
    """The frames of a medium from what their `to_json` gave.

    Raises:
        SourceError: when the medium is unknown or its values are damaged; KeyError or TypeError
            where they are something else altogether.
    """
    if media == "music":
        return PianoRollFrames.from_json(values)
    if media == "audio":
        return AudioFrames.from_json(values)
    raise SourceError(f"holds frames of an unknown medium: {media!r}")


def _check_range(option: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{option} must be from 1 to {most:,}, not {value:,}")
