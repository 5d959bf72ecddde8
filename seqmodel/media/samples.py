"""What is asked of samples; how they are written, shown and compared. No NumPy at import."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from seqmodel.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Progress = Callable[[int, int], None]
"""Called with the amount done and the total."""


def unseen(done: int, total: int) -> None:
    """Progress that nobody looks at."""


def part(progress: Progress, k: int, parts: int) -> Progress:
    """`progress` for one of equal parts, numbered from 0: what is done of it, and its total."""
    return lambda done, total: progress(k * total + done, parts * total)


@dataclass(frozen=True)
class SampleRequest:
    """The part of a `seqmodel sample` request that concerns the medium."""

    kind: str
    """One of the medium's `formats`."""
    length: int | None = None
    """In frames, primer excluded."""
    seconds: float | None = None
    """The same in seconds; at most one of the two is set."""
    shortest: int = 0
    """Frames before which the model may not end the piece."""
    prime: Path | None = None
    prime_frames: int | None = None
    """How many frames of `prime` are used, from its beginning; None: all."""
    prime_seconds: float | None = None
    """The same in seconds; at most one of the two is set."""
    include_prime: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of `Medium.sample_options`."""
    title: str = ""
    """The title of a picture."""
    longest_piece: int | None = None
    """Frames in the longest training piece, if the model ends pieces by itself."""

    def frames_to_draw(self, default: int, most: int, per_second: float, what: str) -> int:
        """The limit of a piece, in frames; UsageError for more than `most`, which is `what`."""
        option, frames = "--length", self.length or default
        if self.seconds is not None:
            option, frames = "--seconds", _frames(self.seconds, per_second, most)
        elif self.length is None and self.shortest:
            # As long again is left to the model for an end.
            option, frames = "--min-length", max(default, 2 * self.shortest)
        if frames > most:
            raise UsageError(f"{option} asks for more than {what}")
        if self.shortest > frames:
            raise UsageError(f"--min-length {self.shortest:,} is above the {frames:,} of {option}")
        return frames

    def frames_of_prime(self, most: int, per_second: float) -> int | None:
        """How many frames of the primer are used, from its beginning; None: all."""
        if self.prime_seconds is None:
            return self.prime_frames
        return _frames(self.prime_seconds, per_second, most)


def _frames(seconds: float, per_second: float, most: int) -> int:
    """Seconds in whole frames, at least one and at most one more than `most`."""
    return max(1, round(min(seconds * per_second, most + 1)))


# ---- pictures ------------------------------------------------------------------------------------


class Box(NamedTuple):
    """A rectangle, a note of a piano-roll, from its left and lower edge; y points upwards."""

    x: float
    y: float
    width: float
    height: float


class Level(NamedTuple):
    """A marked height in the picture."""

    y: float
    name: str


class Shades(NamedTuple):
    """A grid that fills the picture, such as a spectrogram."""

    columns: int
    rows: int
    values: bytes
    """One per cell, row by row from the top, each from left to right: 0 is nothing, 255 most."""


@dataclass(frozen=True)
class Picture:
    """A piece over time, as plain values; the renderer chooses size and colours."""

    seconds: float
    """The duration of the full `width`."""
    width: float
    bottom: float
    top: float
    boxes: tuple[Box, ...]
    """What was drawn, or all there is; touching ones are separate, as restruck notes are."""
    levels: tuple[Level, ...]
    summary: str
    """A text alternative for those who cannot see the picture."""
    shades: Shades | None = None
    given: tuple[Box, ...] = ()
    """What was there before."""


# ---- what is written -----------------------------------------------------------------------------


class Filling(NamedTuple):
    """A piece (T, F), of which the `free` notes (T, D) are drawn anew; see `sampling.filling`."""

    piece: "NDArray[Any]"
    free: "NDArray[np.bool_]"
    particles: int
    sweeps: int


class Written(NamedTuple):
    """The size of a piece, such as "256 frames", and what is odd about it and what to try."""

    size: str
    hint: str = ""


class Sampling(Protocol):
    """How the pieces of one request are written."""

    length: int
    """Frames to draw for each piece."""
    primer: "NDArray[Any]"
    """(P, F), what the model reads first; P may be 0."""
    filling: Filling | None = None
    """What is to be drawn instead of a piece of this length after the primer, if anything."""
    remarks: Sequence[str]
    """Remarks on the primer, one line each."""
    given: "NDArray[np.int64] | None" = None
    """(G,) `FrameDefinition.given` of the pieces; None: what is usual, or there is nothing."""
    manner: Mapping[str, Any] = MappingProxyType({})
    """The `Medium.sample_options` with which a piece of the data is played as these are."""

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable["NDArray[Any]"],
        progress: Progress = unseen,
    ) -> Written:
        """Write a piece, given in chunks (n, F) as they are drawn, and report how much is done."""

    def picture(self, frames: "NDArray[Any]") -> Picture:
        """A piece (T, F) as it is written, in another colour what of it was given."""


# ---- comparison with the data --------------------------------------------------------------------

Row = tuple[str, str, str]
"""Label, name of the figure, format; None is shown as nothing."""


def total_variation(one: Counter[Any], other: Counter[Any]) -> float:
    """Half the sum of |p - q| over all values, from 0 to 1: one minus two histograms' overlap.

    An empty one overlaps only another empty one.
    """
    if not one or not other:
        return float(bool(one) != bool(other))
    n, m = one.total(), other.total()
    apart = (abs(one[k] / n - other[k] / m) for k in one.keys() | other.keys())
    return math.fsum(apart) / 2  # whatever the order of a set


def shares(counts: Counter[Any]) -> dict[Any, float]:
    """A distribution as value -> share, in ascending order."""
    return {value: counts[value] / counts.total() for value in sorted(counts)}


def comparison_lines(
    values: Mapping[str, Any], split: str, figures: Sequence[Row], distances: Sequence[Row]
) -> list[str]:
    """The table of `Comparison.compare`'s values; `distances` are of "distances" in each set."""
    columns = {"samples": values["drawn"]}
    if "split" in values:
        columns[split] = values["split"]
    columns["training"] = values["train"]
    lines = [" " * 27 + "".join(f"{name:>10}" for name in columns)]
    lines += [_line(row, list(columns.values())) for row in figures]
    apart = [column["distances"] for column in columns.values() if "distances" in column]
    return [*lines, "", "distance from training", *(_line(row, apart) for row in distances)]


def _line(row: Row, columns: Sequence[Mapping[str, Any]]) -> str:
    label, name, form = row
    found = (column.get(name) for column in columns)
    cells = ("" if value is None else format(value, form) for value in found)
    return f"{label:27}{''.join(f'{cell:>10}' for cell in cells)}".rstrip()
