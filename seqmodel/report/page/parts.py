"""The contents of a report page: a title and sections of tables, charts and samples.

All are plain values. Text is never parsed: it is shown verbatim, with control characters escaped.
The names of series (curves, clouds, rows and samples) determine their colours: the same name has
the same colour and mark across the whole page. Curves that belong together, such as one for each
seed, share a `family`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from seqmodel.media.picture import Picture


@dataclass(frozen=True)
class Column:
    """A column of a table; the first holds names, the others numbers or text."""

    name: str
    is_text: bool = False


@dataclass(frozen=True)
class Trace:
    """A sparkline in a cell, such as a run's valid figures; all of a table share one scale."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table; its first cell is its heading, and must be text."""

    cells: tuple[str | Trace, ...]
    strong: frozenset[int] = frozenset()
    """Indices of the cells to emphasise."""
    detail: str = ""
    """Small print below the text of the first cell."""
    series: str = ""
    """The series whose mark the row carries; "" for none."""
    muted: bool = False
    """Whether it is there only for comparison, such as a baseline."""


@dataclass(frozen=True)
class Table:
    """A table; rows have as many cells as there are columns."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    heading: str = ""
    notes: tuple[str, ...] = ()
    collapsed: bool = False
    """Whether only its heading is shown until it is opened."""


@dataclass(frozen=True)
class Curve:
    """The learning curve of a run."""

    name: str
    metrics: Sequence[Mapping[str, Any]]
    """The lines of its metrics.jsonl, of epochs and of looks at valid within them."""
    best: float | None
    """The epoch, or the part of one, after which valid is best, if there is a line of it."""
    family: str = ""
    """The name that determines its colour and mark; "" for its own name."""

    @property
    def best_line(self) -> int | None:
        """The number of that line, from 0."""
        return next((k for k, line in enumerate(self.metrics) if line["epoch"] == self.best), None)

    def figures(self, kind: str) -> list[float]:
        return [line[f"{kind}_nats_per_frame"] for line in self.metrics]

    def seconds(self) -> list[float]:
        return [*accumulate(line["seconds"] for line in self.metrics)]


@dataclass(frozen=True)
class Curves:
    """Learning curves over updates and over time."""

    curves: tuple[Curve, ...]
    train: bool = True
    """Whether train is drawn too; with many curves it hides them, and only the table has it."""


class Dot(NamedTuple):
    """A run in a scatter chart."""

    rate: float
    nats: float
    """Per frame on valid, in the best epoch."""
    label: str = ""


@dataclass(frozen=True)
class Cloud:
    """The points of one series in a scatter chart."""

    name: str
    points: tuple[Dot, ...]


@dataclass(frozen=True)
class Scatter:
    """Best figures on valid over learning rates."""

    clouds: tuple[Cloud, ...]


@dataclass(frozen=True)
class Sample:
    """A piece to look at and to listen to."""

    caption: str
    picture: Picture
    sound: bytes
    """The bytes of a complete file."""
    kind: str
    """The format of the sound: mp3, flac, ogg or wav."""
    series: str = ""
    """The series whose colour and mark it has; "" for none."""
    download: tuple[str, bytes] | None = None
    """A file to save, such as the MIDI of the music: its name and content."""


@dataclass(frozen=True)
class Samples:
    """Samples, stacked for comparison."""

    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The provenance of something: names and values."""

    items: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...] = ()
    """Headings and long texts, such as a run's settings, collapsed until they are opened."""


Part = Table | Curves | Scatter | Samples | Facts


@dataclass(frozen=True)
class Section:
    """Parts that belong together, such as all those on one dataset."""

    heading: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A page; all but its title may be empty."""

    title: str
    lead: tuple[str, ...] = ()
    """The opening paragraphs: what to know first."""
    sections: tuple[Section, ...] = ()
