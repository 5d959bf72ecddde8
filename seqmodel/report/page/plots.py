"""The charts of a page: learning curves over updates or time, and points over a log scale."""

from collections.abc import Sequence

from seqmodel.report.page.charts import Axis, Chart, Series, Spot
from seqmodel.report.page.marks import Marks, family
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Curve, Curves, Scatter
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
    unit, name = time_unit(max(point.seconds for point in points))
    return Chart(
        part.heading,
        part.unit if part.train else f"{part.unit} on valid",
        [
            Axis("updates", "updates", linear(0, max(point.update for point in points))),
            Axis(
                *("time", f"{name} of training"),
                linear(0, max(point.seconds for point in points) / unit),
            ),
        ],
        padded(low, high),
        [_curve(curve, unit, kinds) for curve in curves],
        ("run", "epoch", "updates", "seconds", "train", "valid"),
        kinds,
        [*map(_kind, kinds)] if part.train else [],
        [f"The first epochs are off the chart, up to {top:.4f}."] if top > high else [],
        part.notes,
    ).drawn(marks, number)


def _curve(curve: Curve, unit: float, kinds: Sequence[str]) -> Series:
    spots = []
    for epoch, point in enumerate(curve.points, 1):
        best = epoch == curve.best
        times = (f"{epoch}{' (best)' * best}", f"{point.update:,}", f"{point.seconds:,.1f}")
        texts = (curve.name, *times, f"{point.train:.4f}", f"{point.valid:.4f}")
        heights = tuple(getattr(point, kind) for kind in kinds)
        spots.append(Spot(texts, (point.update, point.seconds / unit), heights, best))
    return Series(curve.name, family(curve), spots)


def _kind(name: str) -> Markup:
    """The legend entry for lines of one kind."""
    return tag("span", tag("span", class_=f"line {name}", aria_hidden="true"), name, class_="entry")


def scatter_chart(part: Scatter, marks: Marks, number: int) -> Markup:
    """The points; `number` identifies the chart on the page."""
    dots = [dot for cloud in part.clouds for dot in cloud.dots]
    if not dots:
        return joined(heading(part.heading), notes(("No points to show.", *part.notes)))
    series = []
    for cloud in part.clouds:
        spots = [
            Spot(
                (cloud.name + f", {dot.label}" * bool(dot.label), f"{dot.x:.4g}", f"{dot.y:.4f}"),
                *((dot.x,), (dot.y,), True),
            )
            for dot in cloud.dots
        ]
        series += [Series(cloud.name, family(cloud), spots)] if spots else []
    return Chart(
        part.heading,
        part.y_name,
        [Axis("x", part.x_name, logarithmic(dot.x for dot in dots))],
        padded(min(dot.y for dot in dots), max(dot.y for dot in dots)),
        series,
        ("run", part.x_name, part.y_name),
        notes=part.notes,
    ).drawn(marks, number)
