"""Scatter charts over a log scale."""

from seqmodel.report.page.charts import Area, Axis, Line, figure, plot
from seqmodel.report.page.marks import Marks, family, legend
from seqmodel.report.page.markup import Markup, joined
from seqmodel.report.page.parts import Cloud, Dot, Scatter
from seqmodel.report.page.scales import logarithmic, padded
from seqmodel.report.page.tables import heading, notes


def scatter_chart(part: Scatter, marks: Marks, number: int) -> Markup:
    """The chart; `number` identifies it on the page."""
    dots = [(cloud, dot) for cloud in part.clouds for dot in cloud.dots]
    if not dots:
        return joined(heading(part.heading), notes(("No points to show.", *part.notes)))
    axis = Axis("x", part.x_name, logarithmic(dot.x for _, dot in dots))
    y = padded(min(dot.y for _, dot in dots), max(dot.y for _, dot in dots))
    area = Area(axis.scale, y)
    chart = figure(
        part.heading,
        part.y_name,
        [axis],
        [plot(axis, y, [], [area.mark(marks, family(c), dot.x, dot.y) for c, dot in dots])],
        legend(marks, (family(cloud) for cloud, _ in dots)),
        ("run", part.x_name, part.y_name),
        [_row(cloud, dot, area, marks) for cloud, dot in dots],
        number,
    )
    return joined(heading(part.heading), chart, notes(part.notes))


def _row(cloud: Cloud, dot: Dot, area: Area, marks: Marks) -> Line:
    name = f"{cloud.name}, {dot.label}" if dot.label else cloud.name
    return Line(
        series=cloud.name,
        texts=(name, f"{dot.x:.4g}", f"{dot.y:.4f}"),
        lefts=(area.left(dot.x),),
        tops=(area.top(dot.y),),
        colour=marks.colour(family(cloud)),
    )
