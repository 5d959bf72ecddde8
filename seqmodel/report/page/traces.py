"""Traces: sparklines in the cells of a table, all on one scale."""

from collections.abc import Callable, Iterable, Sequence

from seqmodel.report.page.markup import Markup, tag
from seqmodel.report.page.parts import Row, Trace
from seqmodel.report.page.scales import padded, settled
from seqmodel.report.page.svg import path_through

WIDTH, HEIGHT = 100, 24
MOST = 50
"""Points of a trace at most: more cannot be told apart in a cell."""


def trace_drawer(rows: Iterable[Row]) -> Callable[[Trace, str], Markup]:
    """Return the function that draws the rows' traces, given the class of their colour."""
    traces = [cell.values for row in rows for cell in row.cells if isinstance(cell, Trace)]
    traces = [values for values in traces if values]
    if not traces:
        return lambda trace, colour: Markup()
    low, top = settled(traces)
    y, longest = padded(low, top), max(map(len, traces))

    def draw(trace: Trace, colour: str) -> Markup:
        if not trace.values:
            return Markup()
        places = [
            (k / max(longest - 1, 1), max(0.0, 1 - y.share(trace.values[k])))
            for k in _thinned(len(trace.values))
        ]
        return tag(
            "svg",
            tag("path", class_="valid", d=path_through(WIDTH, HEIGHT, places)),
            class_=f"trace {colour}".strip(),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"from {trace.values[0]:.4f} to {trace.values[-1]:.4f}",
        )

    return draw


def _thinned(count: int) -> Sequence[int]:
    """At most MOST of the numbers below `count`, the first and the last among them."""
    if count <= MOST:
        return range(count)
    return [round(k * (count - 1) / (MOST - 1)) for k in range(MOST)]
