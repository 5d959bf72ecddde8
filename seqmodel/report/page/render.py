"""Rendering a page to HTML: one file with no external references."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from itertools import count

from seqmodel.report.page.curves import curves_chart
from seqmodel.report.page.marks import Marks, definitions
from seqmodel.report.page.markup import Markup, escaped, joined, tag
from seqmodel.report.page.parts import Curves, Facts, Page, Part, Samples, Scatter, Section, Table
from seqmodel.report.page.samples import samples
from seqmodel.report.page.scatter import scatter_chart
from seqmodel.report.page.tables import collapsed, heading, notes, table


def render(page: Page) -> str:
    """The page as HTML, to be written as UTF-8.

    The same page gives the same text. Browsers are told to load nothing and to run no script but
    the page's own, identified by its hash.
    """
    style, script = _resource("page.css"), _resource("page.js")
    marks, numbers = Marks(page), count(1)
    lead = (tag("p", text, class_="lead") for text in page.lead)
    body = [tag("header", tag("h1", page.title), *lead)]
    body += [_section(section, marks, numbers) for section in page.sections]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),  # otherwise browsers request /favicon.ico
        tag("title", page.title),
        tag("style", style),
    ]
    content = joined(definitions(), tag("main", *body), tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', tag('head', *head), tag('body', content), lang='en')}\n"


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
    details = (collapsed(d.heading, tag("pre", _lines(d.text))) for d in part.details)
    return joined(heading(part.heading), tag("dl", *items), *details)


def _lines(text: str) -> Markup:
    """The text, escaped except for its line breaks."""
    return Markup("\n".join(map(escaped, text.split("\n"))))


def _resource(name: str) -> Markup:
    """A file of this folder, trusted and not escaped."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _policy(style: str, script: str) -> str:
    """Content Security Policy, level 2."""
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {allowed}; media-src data:; img-src data:"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}'"
