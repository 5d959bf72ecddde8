"""A frame of music: which of the piano's 88 notes sound and, optionally, which begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.music.grid import NOTES, Grid
from seqmodel.media.music.onsets import after_silence
from seqmodel.media.music.pianoroll import pack, transposed, unpack
from seqmodel.plain import Fields

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Restrike

RESTRIKES: Mapping[str, "Restrike"] = {"close": "close", "discard": "discard"}
"""Restrike rules by name."""


@dataclass(frozen=True)
class SourcesGrid:
    """Settings of `prepare`: frames on the grid of the sources, which must agree."""

    medium: ClassVar[str] = "music"

    frame: "PianoRollFrames"
    """On the grid of MIDI files, which may have any."""


@dataclass(frozen=True)
class PianoRollFrames(FrameDefinition):
    """How music becomes frames, stored as 11 bytes (88 bits) each, or 22 with onsets."""

    medium: ClassVar[str] = "music"
    values: ClassVar[Literal["binary"]] = "binary"
    row_dtype: ClassVar[np.dtype[Any]] = np.dtype("u1")
    variants: ClassVar[range] = range(-5, 7)
    """Semitones to transpose by: each of the twelve keys once."""

    grid: Grid
    restrike: "Restrike" = "close"
    drums: bool = False
    transpose_to_c: bool = False
    onsets: bool = False
    """Whether frames distinguish struck notes from held ones; see the module `onsets`."""
    short_notes: bool = True
    """Whether a note that rounds to no frame fills one. Unlike the rest it does not show in
    `differences`: runs and datasets older than the rule, read without, would differ from all."""

    @property
    def frame_size(self) -> int:
        """88, or 176 with onsets."""
        return 2 * NOTES if self.onsets else NOTES

    @property
    def row_shape(self) -> tuple[int, ...]:
        """One bit per value."""
        return (self.frame_size // 8,)

    @property
    def fingerprint(self) -> bytes:
        """Whether there are onsets: everything else shows in the frames."""
        return b"onsets" if self.onsets else b""

    @property
    def labels(self) -> tuple[str, ...]:
        """Grid, restrike rule, drums, key and onsets."""
        return (
            str(self.grid),
            f"restrike {self.restrike}",
            f"drums {'kept' if self.drums else 'dropped'}",
            "transposed to C" if self.transpose_to_c else "in its own key",
            f"{'with' if self.onsets else 'without'} onsets",
        )

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Stored rows (T, 11) as frames (T, 88), zeros and ones; with onsets twice as wide."""
        return unpack(rows)

    def encode(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Frames (T, 88) as stored rows (T, 11); with onsets twice as wide."""
        return pack(values)

    def canonical(self, rows: NDArray[np.uint8]) -> bytes:
        """The stored bytes: there is only one way to store a roll."""
        return rows.tobytes()

    def cut(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """With onsets, notes held into the first frame begin there: silence precedes it."""
        return pack(after_silence(unpack(rows))) if self.onsets else rows

    def vary(self, frames: NDArray[np.uint8], variant: int) -> NDArray[np.uint8]:
        """Frames transposed by `variant` semitones, any number, their onsets with them."""
        return transposed(frames, variant)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest; "onsets" and "short_notes" only if they are true."""
        return {
            "notes": NOTES,
            "grid": self.grid.to_json(),
            "restrike": self.restrike,
            "drums": self.drums,
            "transpose_to_c": self.transpose_to_c,
            **({"onsets": True} if self.onsets else {}),
            **({"short_notes": True} if self.short_notes else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "PianoRollFrames":
        """The inverse of `to_json`; SourceError or ValueError for damaged values."""
        fields = Fields.of(values, "frame")
        restrike = fields.text("restrike")
        if restrike not in RESTRIKES:
            raise ValueError(f"frame.restrike must be one of {', '.join(RESTRIKES)}")
        return cls(
            Grid.from_json(dict(fields.fields("grid").values)),
            RESTRIKES[restrike],
            fields.flag("drums"),
            fields.flag("transpose_to_c"),
            "onsets" in fields and fields.flag("onsets"),
            "short_notes" in fields and fields.flag("short_notes"),
        )

    def __str__(self) -> str:
        return f"{NOTES} notes{' struck or held' * self.onsets}, {self.grid}"
