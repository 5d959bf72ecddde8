"""Tables, and the notes below parts of a page."""

from collections.abc import Iterable, Sequence

from seqmodel.report.page.marks import Marks
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Column, Row, Table


def table(part: Table, marks: Marks) -> Markup:
    """A table below its heading, or behind it where it is collapsed."""
    rows = (_row(row, part.columns, marks) for row in part.rows)
    content = joined(scrolled(part.columns, rows, part.heading), notes(part.notes))
    if part.collapsed:
        return collapsed(part.heading, content)
    return joined(heading(part.heading), content)


def scrolled(columns: Sequence[Column], rows: Iterable[Markup], label: str) -> Markup:
    """A table that scrolls by itself where it is wider than the page."""
    first, *others = columns
    names = [tag("th", first.name, scope="col")]
    names += [tag("th", column.name, scope="col", class_=_kind(column)) for column in others]
    content = tag("table", tag("thead", tag("tr", *names)), tag("tbody", *rows))
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def cells(columns: Sequence[Column], texts: Sequence[str], strong: frozenset[int]) -> Markup:
    """The cells of a row behind its first."""
    written = []
    for k, (column, text) in enumerate(zip(columns, texts, strict=True)):
        if k:
            content = tag("strong", text) if k in strong else text
            written.append(tag("td", content, class_=_kind(column)))
    return joined(*written)


def collapsed(heading: str, content: Markup) -> Markup:
    """What is shown once its heading is clicked."""
    return tag("details", tag("summary", heading), content)


def heading(text: str) -> Markup:
    """The heading of a part, if it has one."""
    return tag("h3", text) if text else Markup()


def notes(texts: Iterable[str]) -> Markup:
    """A paragraph for each text."""
    return joined(*(tag("p", text, class_="note") for text in texts))


def _row(row: Row, columns: Sequence[Column], marks: Marks) -> Markup:
    key = marks.key(row.series) if row.series else ""
    name = tag("strong", row.cells[0]) if 0 in row.strong else row.cells[0]
    detail = tag("small", row.detail) if row.detail else ""
    first = tag("th", key, name, detail, scope="row")
    others = cells(columns, row.cells, row.strong)
    return tag("tr", first, others, class_="muted" if row.muted else None)


def _kind(column: Column) -> str | None:
    return None if column.is_text else "number"
