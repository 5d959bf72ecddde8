"""Shared by all charts: SVG whose text keeps its size at any width, and a table of the points.

A chart's SVG has no viewBox: ticks and marks are placed by percentages, and lines are in a
nested, stretched SVG of 1000 by 1000. Each row of the table holds the positions of its points
(data-at: x on each axis, then each y from the top, in thousandths of the chart); with its cells,
that is all page.js needs to show them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqmodel.report.page.marks import Marks
from seqmodel.report.page.markup import Markup, tag
from seqmodel.report.page.parts import Column
from seqmodel.report.page.scales import Scale
from seqmodel.report.page.tables import cells, collapsed, notes, scrolled

EXTENT = 1000
"""Width and height of the stretched part."""


class Axis(NamedTuple):
    """One of a chart's horizontal axes."""

    key: str
    """Its class in page.css is over-KEY."""
    name: str
    scale: Scale


@dataclass(frozen=True)
class Area:
    """Positions as shares of the chart's width from the left and of its height from the top.

    A point above or below the chart is placed at its edge.
    """

    x: Scale
    y: Scale

    def left(self, x: float) -> float:
        """The position of `x`, as a share of the width."""
        return self.x.share(x)

    def top(self, y: float) -> float:
        """The position of `y`, as a share of the height."""
        return min(1.0, max(0.0, 1 - self.y.share(y)))

    def line(self, points: Iterable[tuple[float, float]], **attributes: str) -> Markup:
        """A line through points, clipped at the chart's edges."""
        places = [
            f"{_short(EXTENT * self.left(x), 2)} {_short(EXTENT * (1 - self.y.share(y)), 2)}"
            for x, y in points
        ]
        # A zero-length line shows its round caps, so that a single point is visible.
        rest = "".join(f"L{place}" for place in places[1:]) or "h0"
        return tag("path", d=f"M{places[0]}{rest}", **attributes)

    def mark(self, marks: Marks, name: str, x: float, y: float) -> Markup:
        """The mark of the series `name` at a point."""
        return marks.use(name, x=_percent(self.left(x)), y=_percent(self.top(y)))


class Line(NamedTuple):
    """A row of a chart's table: its series, its cells, the positions of its points, its colour."""

    series: str
    texts: tuple[str, ...]
    lefts: tuple[float, ...]
    """On each axis, a share of the width."""
    tops: tuple[float, ...]
    """Shares of the height; the pointer aims at the first."""
    colour: str


def plot(axis: Axis, y: Scale, lines: Iterable[Markup], marked: Iterable[Markup]) -> Markup:
    """The SVG of a chart over one axis."""
    parts = []
    for value, text in y.ticks:
        place = _percent(1 - y.share(value))
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=place, y2=place))
        parts.append(tag("text", text, class_="y-tick", x="-8", y=place, dy="0.35em"))
    for value, text in axis.scale.ticks:
        place = _percent(axis.scale.share(value))
        parts.append(tag("line", class_="tick", x1=place, x2=place, y1="100%", y2="101.5%"))
        parts.append(tag("text", text, class_="x-tick", x=place, y="100%", dy="1.6em"))
    parts.append(tag("text", axis.name, class_="x-name", x="100%", y="100%", dy="3.1em"))
    parts.append(stretched(lines, f"0 0 {EXTENT} {EXTENT}"))
    return tag("svg", *parts, *marked, class_=f"axes over-{axis.key}", aria_hidden="true")


def stretched(lines: Iterable[Markup], box: str) -> Markup:
    """An SVG that fills its parent, whatever the proportions."""
    return tag("svg", *lines, viewBox=box, preserveAspectRatio="none", width="100%", height="100%")


def figure(
    label: str,
    y_name: str,
    axes: Sequence[Axis],
    plots: Sequence[Markup],
    legend: Markup,
    columns: Sequence[str],
    rows: Iterable[Line],
    number: int,
    remarks: Iterable[str] = (),
) -> Markup:
    """A chart: one plot for each axis, with legend, axis switch, remarks and table.

    `number` identifies it on the page.
    """
    names = " or ".join(axis.name for axis in axes)
    about = f"{label}: {y_name} over {names}. Its points are in the table below."
    kinds = [Column(name) for name in columns]
    points = scrolled(kinds, (_row(kinds, row) for row in rows), f"{label} as a table")
    return tag(
        "figure",
        tag("div", legend, _switch(axes, number), class_="above"),
        tag("div", tag("span", y_name), class_="y-name", aria_hidden="true"),
        tag("div", *plots, class_="plot", role="img", aria_label=about),
        notes(remarks),
        collapsed("The chart as a table", points),
        class_="chart",
    )


def _switch(axes: Sequence[Axis], number: int) -> Markup:
    if len(axes) == 1:
        return Markup()
    buttons = []
    for k, axis in enumerate(axes):
        place = f"chart-{number}-{axis.key}"
        attributes = {"name": f"chart-{number}", "id": place, "class_": f"choose-{axis.key}"}
        buttons.append(tag("input", type="radio", checked=not k, **attributes))
        buttons.append(tag("label", axis.key, for_=place))
    return tag("fieldset", tag("legend", "Over", class_="unseen"), *buttons, class_="switch")


def _row(columns: Sequence[Column], row: Line) -> Markup:
    at = " ".join(_short(EXTENT * share, 1) for share in (*row.lefts, *row.tops))
    first = tag("th", row.texts[0], scope="row")
    others = cells(columns, row.texts, frozenset())
    return tag("tr", first, others, class_=row.colour, data_at=at, data_series=row.series)


def _percent(share: float) -> str:
    return f"{_short(100 * share, 3)}%"


def _short(value: float, places: int) -> str:
    text = f"{value:.{places}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
