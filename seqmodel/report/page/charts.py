"""Charts: SVG whose text keeps its size at any width, and a table of the points.

A chart's SVG has no viewBox: ticks and marks are placed by percentages, and lines are in a
nested, stretched SVG of 1000 by 1000. Each row of the table holds the positions of its points
(data-at: x on each axis, then each y from the top, in thousandths of the chart); with its cells,
that is all page.js needs to show them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqmodel.report.page.marks import Marks, family, legend
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Cloud, Column, Curve
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
    x_of: Callable[[Any], float]
    """The place of a point."""

    def share(self, point: Any) -> float:
        """How far along the axis a point is."""
        return self.scale.share(self.x_of(point))


@dataclass(frozen=True)
class Chart:
    """Points of series over one or more axes."""

    heading: str
    y_name: str
    axes: Sequence[Axis]
    y: Scale
    series: Sequence[Curve] | Sequence[Cloud]
    ys_of: Callable[[Any], Sequence[float]]
    """The heights of a point, one for each kind of line; the pointer aims at the first."""
    is_marked: Callable[[Any, int], bool]
    """Whether point k of a series has a mark."""
    columns: Sequence[str]
    """Of the table."""
    texts: Callable[[Any, int], tuple[str, ...]]
    """The row of point k of a series."""
    lines: Sequence[str] = ()
    """The kinds of lines through the points, classes in page.css; none: only marks."""
    keys: Sequence[Markup] = ()
    """Further entries of the legend."""
    notes: Sequence[str] = ()

    def drawn(self, marks: Marks, number: int) -> Markup:
        """The chart with legend, axis switch, table and notes; `number` identifies it."""
        names = " or ".join(axis.name for axis in self.axes)
        about = f"{self.heading}: {self.y_name} over {names}. Its points are in the table below."
        kinds = [Column(name) for name in self.columns]
        rows = (
            self._row(one, k, kinds, marks) for one in self.series for k in range(len(one.points))
        )
        points = scrolled(kinds, rows, f"{self.heading} as a table")
        known = legend(marks, map(family, self.series), *self.keys)
        plots = (self._plot(axis, marks) for axis in self.axes)
        figure = tag(
            "figure",
            tag("div", known, _switch(self.axes, number), class_="above"),
            tag("div", tag("span", self.y_name), class_="y-name", aria_hidden="true"),
            tag("div", *plots, class_="plot", role="img", aria_label=about),
            collapsed("The chart as a table", points),
            class_="chart",
        )
        return joined(heading(self.heading), figure, notes(self.notes))

    def _plot(self, axis: Axis, marks: Marks) -> Markup:
        """The SVG over one axis."""
        lines, marked = list[Markup](), list[Markup]()
        for one in self.series:
            name, lefts = family(one), [axis.share(point) for point in one.points]
            tops = [[1 - self.y.share(y) for y in self.ys_of(point)] for point in one.points]
            for n, kind in reversed([*enumerate(self.lines)]):  # the first on top
                path = path_through(EXTENT, EXTENT, zip(lefts, (t[n] for t in tops), strict=True))
                lines.append(tag("path", d=path, class_=f"{kind} {marks.colour(name)}"))
            for k, (left, (top, *_)) in enumerate(zip(lefts, tops, strict=True)):
                if self.is_marked(one, k):
                    marked.append(marks.use(name, x=percent(left), y=percent(_within(top))))
        parts = ruled(
            [(axis.scale.share(value), text) for value, text in axis.scale.ticks],
            [(1 - self.y.share(value), text) for value, text in self.y.ticks],
        )
        parts.append(tag("text", axis.name, class_="x-name", x="100%", y="100%", dy="3.1em"))
        parts.append(stretched(lines, f"0 0 {EXTENT} {EXTENT}"))
        return tag("svg", *parts, *marked, class_=f"axes over-{axis.key}", aria_hidden="true")

    def _row(self, one: Curve | Cloud, k: int, columns: Sequence[Column], marks: Marks) -> Markup:
        """The row of a series' point k in the table."""
        point, texts = one.points[k], self.texts(one, k)
        tops = (_within(1 - self.y.share(y)) for y in self.ys_of(point))
        places = (*(axis.share(point) for axis in self.axes), *tops)
        at = " ".join(short(EXTENT * share, 1) for share in places)
        cell = tag("th", texts[0], scope="row")
        others, colour = cells(columns, texts, frozenset()), marks.colour(family(one))
        return tag("tr", cell, others, class_=colour, data_at=at, data_series=one.name)


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
