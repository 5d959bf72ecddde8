"""A piece drawn as boxes over time, as report pages show samples."""

from dataclasses import dataclass
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle: a note of a piano-roll, a stretch of a waveform."""

    x: float
    """Its left edge."""
    y: float
    """Its lower edge; y points upwards."""
    width: float
    height: float


class Level(NamedTuple):
    """A marked height in the picture."""

    y: float
    name: str


@dataclass(frozen=True)
class Picture:
    """A piece over time, as plain values; the renderer chooses size and colours."""

    seconds: float
    """The duration of the full `width`."""
    width: float
    bottom: float
    top: float
    boxes: tuple[Box, ...]
    levels: tuple[Level, ...]
    apart: bool
    """Whether touching boxes are separate, as restruck notes are."""
    summary: str
    """A text alternative for those who cannot see the picture."""
