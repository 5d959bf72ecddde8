"""Requests for samples; how samples are written, shown and compared. No NumPy at import."""

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


def no_progress(done: int, total: int) -> None:
    """Progress that is not shown."""


def part_progress(progress: Progress, k: int, parts: int) -> Progress:
    """`progress` for part `k`, from 0, of equal `parts`: called with the part's done and total."""
    return lambda done, total: progress(k * total + done, parts * total)


@dataclass(frozen=True)
class SampleRequest:
    """The part of a `seqmodel sample` request relevant to the medium."""

    kind: str
    """One of the medium's `formats`."""
    length: int | None = None
    """In frames, without the primer."""
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
    longest_piece: int | None = None
    """Frames in the longest training piece, if the model ends pieces itself."""
    temperature: float = 1.0
    """At which frames are drawn, for advice."""

    def frames_to_draw(self, default: int, most: int, per_second: float, what: str) -> int:
        """The limit of a piece in frames; UsageError for more than `most`, described by `what`."""
        option, frames = "--length", self.length or default
        if self.seconds is not None:
            option, frames = "--seconds", _frames(self.seconds, per_second, most)
        elif self.length is None and self.shortest:
            # The model gets as many frames again to find an end.
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


@dataclass(frozen=True)
class Picture:
    """A piece over time, as plain values; the renderer chooses size and colours."""

    seconds: float
    """The duration of the full `width`."""
    width: float
    bottom: float
    top: float
    boxes: Sequence[Sequence[float]]
    """What was drawn, or everything: left, lower edge, width and height of rectangles, such as
    notes; y points upwards, and touching ones are separate, as restruck notes are."""
    ticks: Mapping[float, str]
    """Marked heights, in order, and their names."""
    summary: str
    """A text alternative to the picture."""
    heatmap: "NDArray[np.uint8] | None" = None
    """A grid that fills the picture, such as a spectrogram: rows from the top, 255 the maximum."""
    given: Sequence[Sequence[float]] = ()
    """What was given."""


# ---- what is written -----------------------------------------------------------------------------


class Filling(NamedTuple):
    """A piece (T, F) whose `free` notes (T, D) are redrawn; see `sampling.filling`."""

    piece: "NDArray[Any]"
    free: "NDArray[np.bool_]"
    particles: int
    sweeps: int


class Written(NamedTuple):
    """The size of a piece, such as "256 frames", and a hint about what is odd and what to try."""

    size: str
    hint: str = ""


class Sampling(Protocol):
    """How to draw and write the pieces of one request."""

    length: int
    """Frames to draw for each piece."""
    primer: "NDArray[Any]"
    """(P, F), which the model reads first; P can be 0."""
    filling: Filling | None = None
    """What to redraw, if anything, instead of drawing a piece of this length after the primer."""
    remarks: Sequence[str]
    """Remarks on the primer, one line each."""
    metres: "NDArray[np.int64] | None" = None
    """(G,) `FrameDefinition.metres` of the pieces; None: the usual one, or the medium has none."""
    playback_options: Mapping[str, Any] = MappingProxyType({})
    """The `Medium.sample_options` that play a piece of the data like these pieces."""

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable["NDArray[Any]"],
        progress: Progress = no_progress,
    ) -> Written:
        """Write a piece, given in chunks (n, F) as they are drawn, and report progress."""

    def picture(self, frames: "NDArray[Any]") -> Picture:
        """A piece (T, F) as it is written, with what was given in another colour."""


# ---- comparison with the data --------------------------------------------------------------------

Row = tuple[str, str, str]
"""Label, name of the figure, format; None is shown as blank."""


def total_variation(one: Counter[Any], other: Counter[Any]) -> float:
    """Half the sum of |p - q| over all values, from 0 to 1: one minus two histograms' overlap.

    An empty histogram overlaps only with another empty one.
    """
    if not one or not other:
        return float(bool(one) != bool(other))
    n, m = one.total(), other.total()
    differences = (abs(one[k] / n - other[k] / m) for k in one.keys() | other.keys())
    return math.fsum(differences) / 2  # independent of a set's order


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
    compared = [column["distances"] for column in columns.values() if "distances" in column]
    return [*lines, "", "distance from training", *(_line(row, compared) for row in distances)]


def _line(row: Row, columns: Sequence[Mapping[str, Any]]) -> str:
    label, name, spec = row
    values = (column.get(name) for column in columns)
    cells = ("" if value is None else format(value, spec) for value in values)
    return f"{label:27}{''.join(f'{cell:>10}' for cell in cells)}".rstrip()
