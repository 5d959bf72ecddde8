"""The contents of a report page: a title and sections of tables, charts and samples.

All are plain values. Text is never parsed: it is shown verbatim, with control characters escaped.
The names of series (curves, clouds, rows and samples) determine their colours: the same name has
the same colour and mark across the whole page. Curves that belong together, such as one for each
seed, share a `family`.
"""

from dataclasses import dataclass
from math import isfinite

from seqmodel.media.definitions import Picture


@dataclass(frozen=True)
class Column:
    """A column of a table; the first holds names, the others numbers or text."""

    name: str
    is_text: bool = False


@dataclass(frozen=True)
class Trace:
    """A sparkline in a cell, such as a run's valid figures; ValueError if one is not finite.

    All traces of a table share one scale.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_finite(*self.values)


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
    """A table; ValueError if a row has more or fewer cells than there are columns."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    heading: str = ""
    notes: tuple[str, ...] = ()
    collapsed: bool = False
    """Whether only its heading is shown until it is opened."""

    def __post_init__(self) -> None:
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError("a row has more or fewer cells than the table has columns")


@dataclass(frozen=True)
class Point:
    """An epoch of a learning curve; ValueError if a figure is not finite."""

    update: int
    """Updates so far."""
    seconds: float
    """Training time so far."""
    train: float
    valid: float

    def __post_init__(self) -> None:
        _check_finite(self.seconds, self.train, self.valid)


@dataclass(frozen=True)
class Curve:
    """The learning curve of a run; `points[k]` is epoch k + 1."""

    name: str
    points: tuple[Point, ...]
    best: int | None
    """The epoch that is best on valid, if known."""
    family: str = ""
    """The name that determines its colour and mark; "" for its own name."""


@dataclass(frozen=True)
class Curves:
    """Learning curves over updates or over time."""

    curves: tuple[Curve, ...]
    heading: str = "Learning curves"
    unit: str = "nats per frame"
    notes: tuple[str, ...] = ()
    train: bool = True
    """Whether train is drawn too; with many curves it hides them, and only the table has it."""


@dataclass(frozen=True)
class Dot:
    """A point of a scatter chart; ValueError unless finite and x > 0, as x is on a log scale."""

    x: float
    y: float
    label: str = ""

    def __post_init__(self) -> None:
        _check_finite(self.x, self.y)
        if self.x <= 0:
            raise ValueError(f"x must be positive on a log scale, not {self.x}")


@dataclass(frozen=True)
class Cloud:
    """The points of one series in a scatter chart."""

    name: str
    points: tuple[Dot, ...]
    family: str = ""
    """As in `Curve`."""


@dataclass(frozen=True)
class Scatter:
    """Points over a log scale, such as best valid figures over learning rates."""

    clouds: tuple[Cloud, ...]
    heading: str = "Learning rates"
    x_name: str = "learning rate"
    y_name: str = "best valid, nats per frame"
    notes: tuple[str, ...] = ()


def _check_finite(*values: float) -> None:
    if not all(map(isfinite, values)):
        raise ValueError(f"a chart takes finite values, not {values}")


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
    heading: str = "Samples"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The provenance of something: names and values."""

    items: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...] = ()
    """Headings and long texts, such as a run's settings, collapsed until they are opened."""
    heading: str = ""


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
