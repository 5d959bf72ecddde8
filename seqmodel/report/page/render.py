"""Rendering a page to HTML: one file with no external references."""

from collections.abc import Iterator
from itertools import count

from seqmodel.report.page.document import common_style, document, resource
from seqmodel.report.page.marks import Marks, definitions
from seqmodel.report.page.markup import Markup, escaped, joined, tag
from seqmodel.report.page.parts import Curves, Facts, Page, Part, Samples, Scatter, Section, Table
from seqmodel.report.page.plots import curves_chart, scatter_chart
from seqmodel.report.page.samples import samples
from seqmodel.report.page.tables import collapsed, heading, notes, table


def render(page: Page) -> str:
    """The page as HTML, to be written as UTF-8.

    The same page gives the same text; see `document` for what browsers may load and run.
    """
    marks, numbers = Marks(), count(1)
    lead = (tag("p", text, class_="lead") for text in page.lead)
    body = [tag("header", tag("h1", page.title), *lead)]
    body += [_section(section, marks, numbers) for section in page.sections]
    content = joined(definitions(), tag("main", *body))
    script = resource(__package__, "page.js")
    return document(page.title, content, style=common_style(), script=script)


def _section(section: Section, marks: Marks, numbers: Iterator[int]) -> Markup:
    parts = (_part(part, marks, numbers) for part in section.parts)
    return tag("section", tag("h2", section.heading), notes(section.notes), *parts)


def _part(part: Part, marks: Marks, numbers: Iterator[int]) -> Markup:
    match part:
        case Table():
            return table(part, marks)
        case Curves():
            return curves_chart(part, marks, next(numbers))
        case Scatter():
            return scatter_chart(part, marks, next(numbers))
        case Samples():
            return samples(part, marks)
        case Facts():
            return _facts(part)


def _facts(part: Facts) -> Markup:
    items = (joined(tag("dt", name), tag("dd", value)) for name, value in part.items)
    details = (collapsed(heading, tag("pre", _lines(text))) for heading, text in part.details)
    return joined(heading(part.heading), tag("dl", *items), *details)


def _lines(text: str) -> Markup:
    """The text, escaped except for its line breaks."""
    return Markup("\n".join(map(escaped, text.split("\n"))))
