"""Tables with traces, sparklines in their cells, and the notes below parts of a page."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from seqmodel.report.page.marks import Marks
from seqmodel.report.page.markup import Markup, escaped, joined, tag
from seqmodel.report.page.parts import Column, Row, Table, Trace
from seqmodel.report.page.scales import padded, settled
from seqmodel.report.page.svg import path_through

WIDTH, HEIGHT = 100, 24
"""Of a trace."""
MOST = 50
"""Points of a trace at most: more cannot be told apart in a cell."""


def table(part: Table, marks: Marks) -> Markup:
    """A table below its heading, or hidden behind it if collapsed."""
    draw = _trace_drawer(part.rows)
    rows = (_row(row, part.columns, marks, draw) for row in part.rows)
    content = joined(scrolled(part.columns, rows, part.heading), notes(part.notes))
    if part.collapsed:
        return collapsed(part.heading, content)
    return joined(heading(part.heading), content)


def scrolled(columns: Sequence[Column], rows: Iterable[Markup], label: str) -> Markup:
    """A table that scrolls on its own if it is wider than the page."""
    first, *others = columns
    names = [tag("th", first.name, scope="col")]
    names += [tag("th", column.name, scope="col", class_=_kind(column)) for column in others]
    content = tag("table", tag("thead", tag("tr", *names)), tag("tbody", *rows))
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def cells(columns: Sequence[Column], texts: Sequence[str], strong: frozenset[int]) -> Markup:
    """The cells of a row after its first."""
    written = []
    for k, (column, text) in enumerate(zip(columns, texts, strict=True)):
        if k:
            content = _content(text)
            if k in strong:
                content = tag("strong", content)
            written.append(tag("td", content, class_=_kind(column)))
    return joined(*written)


def collapsed(heading: str, content: Markup) -> Markup:
    """Content that is shown once its heading is clicked."""
    return tag("details", tag("summary", heading), content)


def heading(text: str) -> Markup:
    """The heading of a part, if it has one."""
    return tag("h3", text) if text else Markup()


def notes(texts: Iterable[str]) -> Markup:
    """A paragraph for each text."""
    return joined(*(tag("p", text, class_="note") for text in texts))


def _row(
    row: Row, columns: Sequence[Column], marks: Marks, draw: Callable[[Trace, str], Markup]
) -> Markup:
    key = marks.key(row.series) if row.series else ""
    colour = marks.colour(row.series) if row.series else ""
    texts = [draw(cell, colour) if isinstance(cell, Trace) else cell for cell in row.cells]
    name = tag("strong", texts[0]) if 0 in row.strong else texts[0]
    detail = tag("small", row.detail) if row.detail else ""
    first = tag("th", key, name, detail, scope="row")
    others = cells(columns, texts, row.strong)
    return tag("tr", first, others, class_="muted" if row.muted else None)


def _content(text: str) -> Markup:
    """A cell's text; a standard deviation goes below its mean."""
    mean, sign, deviation = text.partition(" ± ")
    if isinstance(text, Markup) or not sign:
        return escaped(text)
    return joined(mean, " ", tag("span", f"± {deviation}", class_="deviation"))


def _kind(column: Column) -> str | None:
    return None if column.is_text else "number"


def _trace_drawer(rows: Iterable[Row]) -> Callable[[Trace, str], Markup]:
    """The function that draws the rows' traces, on one scale, given the class of their colour."""
    found = [cell.values for row in rows for cell in row.cells if isinstance(cell, Trace)]
    traces = [*filter(None, found)] or [(0.0,)]
    low, top = settled(traces)
    y, longest = padded(low, top), max(map(len, traces))

    def draw(trace: Trace, colour: str) -> Markup:
        if not trace.values:
            return Markup()
        count = len(trace.values)
        places = [
            (k / max(longest - 1, 1), max(0.0, 1 - y.share(trace.values[k])))
            for k in np.linspace(0, count - 1, min(count, MOST)).round().astype(int).tolist()
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
