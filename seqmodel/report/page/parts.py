"""What a report page holds, as plain values: a title and sections of tables, charts and samples.

All text is text: whatever it holds, it is shown as it is, control characters escaped. Names of
series (curves, clouds, rows and samples) decide their colours: the same name has the same colour
and the same mark on the whole page. Where one thing has several curves, such as one for each seed,
`family` is its name.
"""

from dataclasses import dataclass
from math import isfinite

from seqmodel.media.pictures import Picture

# ---- tables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table; the first holds names, the others numbers or text."""

    name: str
    is_text: bool = False


@dataclass(frozen=True)
class Trace:
    """A small line in a cell, such as a run's valid figures; ValueError for one not finite.

    All traces of a table have the same scale.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what has no place in a chart."""
        _check_finite(*self.values)


@dataclass(frozen=True)
class Row:
    """A row of a table; its first cell is its heading, and text."""

    cells: tuple[str | Trace, ...]
    strong: frozenset[int] = frozenset()
    """Numbers of the cells to emphasise."""
    detail: str = ""
    """A small line below the first cell."""
    series: str = ""
    """Whose mark the row carries; "" for none."""
    muted: bool = False
    """Whether it is there to compare with, such as a baseline."""


@dataclass(frozen=True)
class Table:
    """Rows of text; ValueError where one has more or fewer cells than there are columns."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    heading: str = ""
    notes: tuple[str, ...] = ()
    collapsed: bool = False
    """Whether only its heading is shown until it is opened."""

    def __post_init__(self) -> None:
        """Compare rows and columns."""
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError("a row has more or fewer cells than the table has columns")


# ---- charts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """An epoch of a learning curve; ValueError for a figure that is not finite."""

    update: int
    """Updates so far."""
    seconds: float
    """Since the start."""
    train: float
    valid: float

    def __post_init__(self) -> None:
        """Refuse what has no place in a chart."""
        _check_finite(self.seconds, self.train, self.valid)


@dataclass(frozen=True)
class Curve:
    """The learning curve of a run; `points[k]` is epoch k + 1."""

    name: str
    points: tuple[Point, ...]
    best: int | None
    """The epoch that is best on valid, if it is known."""
    family: str = ""
    """What it shares its colour with; "" for its own name."""


@dataclass(frozen=True)
class Curves:
    """Learning curves over updates or over time."""

    curves: tuple[Curve, ...]
    heading: str = "Learning curves"
    unit: str = "nats per frame"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dot:
    """A point of a scatter chart; ValueError for x <= 0, as x is on a log scale, or infinity."""

    x: float
    y: float
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse what has no place in the chart."""
        _check_finite(self.x, self.y)
        if self.x <= 0:
            raise ValueError(f"a log scale has no place for {self.x}")


@dataclass(frozen=True)
class Cloud:
    """The points of one thing in a scatter chart."""

    name: str
    dots: tuple[Dot, ...]
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
        raise ValueError(f"a chart has no place for {values}")


# ---- samples ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A piece to look at and to listen to."""

    caption: str
    picture: Picture
    sound: bytes
    """A whole file."""
    kind: str
    """Of the sound: mp3, flac, ogg or wav."""
    series: str = ""
    """Whose colour it has; "" for none."""


@dataclass(frozen=True)
class Samples:
    """Samples one below the other, so that they can be compared."""

    samples: tuple[Sample, ...]
    heading: str = "Samples"
    notes: tuple[str, ...] = ()


# ---- facts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detail:
    """A long text that is shown once it is opened, such as a run's settings."""

    heading: str
    text: str


@dataclass(frozen=True)
class Facts:
    """How something came about: names and values, and long texts."""

    items: tuple[tuple[str, str], ...]
    details: tuple[Detail, ...] = ()
    heading: str = ""


# ---- the page -----------------------------------------------------------------------------------

Part = Table | Curves | Scatter | Samples | Facts


@dataclass(frozen=True)
class Section:
    """What belongs together, such as all on one dataset."""

    heading: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A page; all but its title may be empty."""

    title: str
    lead: tuple[str, ...] = ()
    """What to know before all else, a paragraph each."""
    sections: tuple[Section, ...] = ()
