"""Learning curves: train and valid over updates or over time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from seqmodel.report.page.charts import Area, Axis, Line, figure, plot
from seqmodel.report.page.marks import Marks, family, legend
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Curve, Curves, Point
from seqmodel.report.page.scales import Scale, linear, padded, settled, time_unit
from seqmodel.report.page.tables import heading, notes

COLUMNS = ("run", "epoch", "updates", "seconds", "train", "valid")


class _View(NamedTuple):
    """The curves over one axis."""

    axis: Axis
    area: Area
    x_of: Callable[[Point], float]


def curves_chart(part: Curves, marks: Marks, number: int) -> Markup:
    """The chart, with a switch between its axes; `number` identifies it on the page."""
    curves = [curve for curve in part.curves if curve.points]
    if not curves:
        return joined(heading(part.heading), notes(("No complete epoch yet.", *part.notes)))
    y, remarks = _height(curves, part.train)
    views = _views([point for curve in curves for point in curve.points], y)
    rows = [
        _row(curve, epoch, views, marks, part.train)
        for curve in curves
        for epoch in range(1, len(curve.points) + 1)
    ]
    chart = figure(
        part.heading,
        part.unit if part.train else f"{part.unit} on valid",
        [view.axis for view in views],
        [_plot(curves, view, marks, part.train) for view in views],
        legend(marks, map(family, curves), *map(_kind, ("valid", "train") if part.train else ())),
        COLUMNS,
        rows,
        number,
        remarks,
    )
    return joined(heading(part.heading), chart, notes(part.notes))


def _views(points: Sequence[Point], y: Scale) -> list[_View]:
    updates = linear(0, max(point.update for point in points))
    unit, name = time_unit(max(point.seconds for point in points))
    time = linear(0, max(point.seconds for point in points) / unit)
    return [
        _View(Axis("updates", "updates", updates), Area(updates, y), lambda point: point.update),
        _View(
            Axis("time", f"{name} of training", time),
            Area(time, y),
            lambda point: point.seconds / unit,
        ),
    ]


def _plot(curves: Sequence[Curve], view: _View, marks: Marks, train: bool) -> Markup:
    lines, best = [], []
    for curve in curves:
        name, x = family(curve), [view.x_of(point) for point in curve.points]
        if train:
            points = zip(x, (point.train for point in curve.points), strict=True)
            lines.append(view.area.line(points, class_=f"train {marks.colour(name)}"))
        valid = zip(x, (point.valid for point in curve.points), strict=True)
        lines.append(view.area.line(valid, class_=f"valid {marks.colour(name)}"))
        if curve.best is not None:
            k = curve.best - 1
            best.append(view.area.mark(marks, name, x[k], curve.points[k].valid))
    return plot(view.axis, view.area.y, lines, best)


def _row(curve: Curve, epoch: int, views: Sequence[_View], marks: Marks, train: bool) -> Line:
    point, area = curve.points[epoch - 1], views[0].area
    best = " (best)" if epoch == curve.best else ""
    times = (f"{epoch}{best}", f"{point.update:,}", f"{point.seconds:,.1f}")
    return Line(
        series=curve.name,
        texts=(curve.name, *times, f"{point.train:.4f}", f"{point.valid:.4f}"),
        lefts=tuple(view.area.left(view.x_of(point)) for view in views),
        tops=tuple(map(area.top, (point.valid, point.train) if train else (point.valid,))),
        colour=marks.colour(family(curve)),
    )


def _height(curves: Sequence[Curve], train: bool) -> tuple[Scale, list[str]]:
    """The vertical axis, and remarks on it."""
    lines = [[p.valid for p in curve.points] for curve in curves]
    if train:
        lines += [[p.train for p in curve.points] for curve in curves]
    (low, top), high = settled(lines), max(map(max, lines))
    if top == high:
        return padded(low, high), []
    return padded(low, top), [f"The first epochs are off the chart, up to {high:.4f}."]


def _kind(name: str) -> Markup:
    """The legend entry for lines of one kind."""
    return tag("span", tag("span", class_=f"line {name}", aria_hidden="true"), name, class_="entry")
