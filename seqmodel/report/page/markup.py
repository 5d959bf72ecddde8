"""HTML that is well-formed and escaped by construction.

Whatever is not `Markup` is text, and is escaped on its way into an element or an attribute.
"""

import html

from seqmodel.media.words import printable

VOID = frozenset({"input", "link", "meta"})
"""Elements without content or end."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """The text as HTML; it is left as it is if it is HTML already."""
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text)))


def joined(*parts: str) -> Markup:
    """The parts one after the other."""
    return Markup("".join(map(escaped, parts)))


def tag(name: str, /, *content: str, **attributes: str | float | bool | None) -> Markup:
    """An element.

    Underscores in names of attributes stand for hyphens, but for a last one, which tells `class_`
    and `for_` from Python's words. True makes an attribute without a value, False and None none.
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
