"""Pictures of pieces, as plain values; `report.page.charts` draws them."""

from dataclasses import dataclass
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle: a note of a piano-roll."""

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
