"""Charts: SVG whose text keeps its size at any width, and a table of the points.

A chart's SVG has no viewBox: ticks and marks are placed by percentages, and lines are in a
nested, stretched SVG of 1000 by 1000. Each row of the table holds the positions of its points
(data-at: x on each axis, then each y from the top, in thousandths of the chart); with its cells,
that is all page.js needs to show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqmodel.report.page.marks import Marks, legend
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Column
from seqmodel.report.page.scales import Scale
from seqmodel.report.page.svg import path_through, percent, ruled, short, stretched
from seqmodel.report.page.tables import cells, collapsed, heading, notes, scrolled

EXTENT = 1000
"""Width and height of the stretched part."""


class Axis(NamedTuple):
    """One of a chart's horizontal axes."""

    key: str
    """Its class in page.css is over-KEY."""
    name: str
    scale: Scale


class Spot(NamedTuple):
    """A point of a chart, and the row of its table."""

    texts: tuple[str, ...]
    """The row's cells."""
    x: tuple[float, ...]
    """On each axis."""
    y: tuple[float, ...]
    """One for each kind of line; the pointer aims at the first."""
    marked: bool


class Series(NamedTuple):
    """Points of one name, in order."""

    name: str
    family: str
    """The name that determines its colour and mark."""
    spots: Sequence[Spot]


@dataclass(frozen=True)
class Chart:
    """Series over one or more axes."""

    heading: str
    y_name: str
    axes: Sequence[Axis]
    y: Scale
    series: Sequence[Series]
    columns: Sequence[str]
    """Of the table."""
    lines: Sequence[str] = ()
    """The kinds of the lines through each y of a series, classes in page.css; none: only marks."""
    keys: Sequence[Markup] = ()
    """Further entries of the legend."""
    remarks: Sequence[str] = ()
    notes: Sequence[str] = ()

    def drawn(self, marks: Marks, number: int) -> Markup:
        """The chart with legend, axis switch, remarks and table; `number` identifies it."""
        names = " or ".join(axis.name for axis in self.axes)
        about = f"{self.heading}: {self.y_name} over {names}. Its points are in the table below."
        kinds = [Column(name) for name in self.columns]
        rows = (self._row(one, spot, kinds, marks) for one in self.series for spot in one.spots)
        points = scrolled(kinds, rows, f"{self.heading} as a table")
        known = legend(marks, (one.family for one in self.series), *self.keys)
        plots = (self._plot(k, marks) for k in range(len(self.axes)))
        figure = tag(
            "figure",
            tag("div", known, _switch(self.axes, number), class_="above"),
            tag("div", tag("span", self.y_name), class_="y-name", aria_hidden="true"),
            tag("div", *plots, class_="plot", role="img", aria_label=about),
            notes(self.remarks),
            collapsed("The chart as a table", points),
            class_="chart",
        )
        return joined(heading(self.heading), figure, notes(self.notes))

    def _plot(self, k: int, marks: Marks) -> Markup:
        """The SVG over axis `k`."""
        axis, lines, marked = self.axes[k], list[Markup](), list[Markup]()
        for one in self.series:
            x = [axis.scale.share(spot.x[k]) for spot in one.spots]
            tops = [[1 - self.y.share(y) for y in spot.y] for spot in one.spots]
            for n, kind in reversed([*enumerate(self.lines)]):  # the first on top
                path = path_through(EXTENT, EXTENT, zip(x, (top[n] for top in tops), strict=True))
                lines.append(tag("path", d=path, class_=f"{kind} {marks.colour(one.family)}"))
            for spot, left, (top, *_) in zip(one.spots, x, tops, strict=True):
                if spot.marked:
                    place = {"x": percent(left), "y": percent(_within(top))}
                    marked.append(marks.use(one.family, **place))
        parts = ruled(
            [(axis.scale.share(value), text) for value, text in axis.scale.ticks],
            [(1 - self.y.share(value), text) for value, text in self.y.ticks],
        )
        parts.append(tag("text", axis.name, class_="x-name", x="100%", y="100%", dy="3.1em"))
        parts.append(stretched(lines, f"0 0 {EXTENT} {EXTENT}"))
        return tag("svg", *parts, *marked, class_=f"axes over-{axis.key}", aria_hidden="true")

    def _row(self, one: Series, spot: Spot, kinds: Sequence[Column], marks: Marks) -> Markup:
        """A row of the table."""
        lefts = [axis.scale.share(x) for axis, x in zip(self.axes, spot.x, strict=True)]
        tops = [_within(1 - self.y.share(y)) for y in spot.y]
        at = " ".join(short(EXTENT * share, 1) for share in (*lefts, *tops))
        first = tag("th", spot.texts[0], scope="row")
        others = cells(kinds, spot.texts, frozenset())
        colour = marks.colour(one.family)
        return tag("tr", first, others, class_=colour, data_at=at, data_series=one.name)


def _within(top: float) -> float:
    """Where a point is shown: at the chart's edge if it is above or below."""
    return min(1.0, max(0.0, top))


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
