"""The charts of a page: learning curves over updates or time, and points over a log scale."""

from math import log10
from operator import attrgetter

from seqmodel.report.page.charts import Axis, Chart
from seqmodel.report.page.marks import Marks
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Cloud, Curve, Curves, Scatter
from seqmodel.report.page.scales import linear, logarithmic, padded, settled, time_unit
from seqmodel.report.page.tables import heading, notes


def curves_chart(part: Curves, marks: Marks, number: int) -> Markup:
    """The curves, with a switch between axes; `number` identifies the chart on the page.

    One epoch makes no curve, unless beside those of other runs.
    """
    curves = [curve for curve in part.curves if curve.points]
    if all(len(curve.points) == 1 for curve in curves):
        said = "One epoch makes no curve." if curves else "No complete epoch yet."
        return joined(heading(part.heading), notes((said, *part.notes)))
    points = [point for curve in curves for point in curve.points]
    kinds = ("valid", "train") if part.train else ("valid",)
    lines = [[getattr(p, kind) for p in c.points] for kind in kinds for c in curves]
    (low, high), top = settled(lines), max(map(max, lines))
    off = [f"The first epochs are off the chart, up to {top:.4f}."] if top > high else []
    longest = max(point.seconds for point in points)
    unit, name = time_unit(longest)
    updates = linear(0, max(point.update for point in points))
    return Chart(
        part.heading,
        part.unit if part.train else f"{part.unit} on valid",
        [
            Axis("updates", "updates", updates, lambda point: point.update),
            Axis(
                *("time", f"{name} of training", linear(0, longest / unit)),
                lambda point: point.seconds / unit,
            ),
        ],
        padded(low, high),
        curves,
        attrgetter("valid", "train") if part.train else lambda point: (point.valid,),
        lambda curve, k: k + 1 == curve.best,
        ("run", "epoch", "updates", "seconds", "train", "valid"),
        _epoch,
        kinds,
        [*map(_kind, kinds)] if part.train else [],
        (*off, *part.notes),
    ).drawn(marks, number)


def _epoch(curve: Curve, k: int) -> tuple[str, ...]:
    point, best = curve.points[k], " (best)" if k + 1 == curve.best else ""
    times = (f"{k + 1}{best}", f"{point.update:,}", f"{point.seconds:,.1f}")
    return (curve.name, *times, f"{point.train:.4f}", f"{point.valid:.4f}")


def _kind(name: str) -> Markup:
    """The legend entry for lines of one kind."""
    return tag("span", tag("span", class_=f"line {name}", aria_hidden="true"), name, class_="entry")


def scatter_chart(part: Scatter, marks: Marks, number: int) -> Markup:
    """The points; `number` identifies the chart on the page."""
    dots = [dot for cloud in part.clouds for dot in cloud.points]
    if not dots:
        return joined(heading(part.heading), notes(("No points to show.", *part.notes)))
    return Chart(
        part.heading,
        part.y_name,
        [Axis("x", part.x_name, logarithmic(dot.x for dot in dots), lambda dot: log10(dot.x))],
        padded(min(dot.y for dot in dots), max(dot.y for dot in dots)),
        [cloud for cloud in part.clouds if cloud.points],
        lambda dot: (dot.y,),
        lambda cloud, k: True,
        ("run", part.x_name, part.y_name),
        _dot,
        notes=part.notes,
    ).drawn(marks, number)


def _dot(cloud: Cloud, k: int) -> tuple[str, ...]:
    dot = cloud.points[k]
    name = f"{cloud.name}, {dot.label}" if dot.label else cloud.name
    return (name, f"{dot.x:.4g}", f"{dot.y:.4f}")
