"""HTML that is well-formed and escaped by construction.

Anything that is not `Markup` is text, and is escaped when put into an element or attribute.
"""

import html
from string import Template

from seqmodel.media.words import printable

VOID = frozenset({"input", "link", "meta"})
"""Elements without content or end tag."""


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """The text as HTML; unchanged if it is `Markup` already."""
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text)))


def joined(*parts: str) -> Markup:
    """The parts, escaped and concatenated."""
    return Markup("".join(map(escaped, parts)))


def filled(template: str, **parts: str | float) -> Markup:
    """A template that is HTML, with the parts, escaped, in place of $names."""
    texts = {name: escaped(p if isinstance(p, str) else str(p)) for name, p in parts.items()}
    return Markup(Template(template).substitute(texts))


def tag(name: str, /, *content: str, **attributes: str | float | bool | None) -> Markup:
    """An element.

    Underscores in attribute names stand for hyphens, except a trailing one, which distinguishes
    `class_` and `for_` from Python keywords. True gives an attribute without a value; False and
    None omit it.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*content)}</{name}>")


def _attribute(name: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'
