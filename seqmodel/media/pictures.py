"""A piece drawn as boxes over time: what a report page shows of a sample."""

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
    """A height that the picture marks."""

    y: float
    name: str


@dataclass(frozen=True)
class Picture:
    """A piece over time, as plain values; whoever shows it chooses size and colours."""

    seconds: float
    """How long `width` lasts."""
    width: float
    bottom: float
    top: float
    boxes: tuple[Box, ...]
    levels: tuple[Level, ...]
    apart: bool
    """Whether boxes that touch are things of their own, as notes struck again are."""
    summary: str
    """What is to be seen, for those who cannot."""
