"""Single-file HTML documents, well-formed and escaped by construction.

Anything that is not `Markup` is text, and is escaped when put into an element or attribute.
"""

import html
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from string import Template

from seqmodel.media.words import printable

VOID = frozenset({"img", "meta"})
"""The elements used here that have no content or end tag."""


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """The text as HTML; unchanged if it is already `Markup`."""
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text)))


def joined(*parts: str) -> Markup:
    """The parts, escaped and concatenated."""
    return Markup("".join(map(escaped, parts)))


def filled(template: str, **parts: str | float) -> Markup:
    """An HTML template with the parts, escaped, in place of $names."""
    texts = {name: escaped(p if isinstance(p, str) else str(p)) for name, p in parts.items()}
    return Markup(Template(template).substitute(texts))


def tag(name: str, /, *content: str, **attributes: str | float | bool | None) -> Markup:
    """An element; True gives an attribute without a value, False and None omit it.

    Underscores in attribute names stand for hyphens, except a trailing one, as in `class_`.
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


def notes(texts: Iterable[str]) -> Markup:
    """A paragraph for each text."""
    return joined(*(tag("p", text, class_="note") for text in texts))


def collapsed(heading: str, content: Markup) -> Markup:
    """Content that is shown when its heading is clicked."""
    return tag("details", tag("summary", heading), content)


def scrolled(content: Markup, label: str) -> Markup:
    """Content that scrolls on its own if it is wider than the page."""
    return tag("div", content, class_="scroll", tabindex=0, role="group", aria_label=label)


def embedded(kind: str, content: bytes) -> str:
    """The URI of content embedded in the document itself."""
    return f"data:{kind};base64,{b64encode(content).decode('ascii')}"


def document(
    title: str,
    body: Markup,
    script: Markup,
    *,
    style: str = "",
    wasm: bool = False,
    live: bool = False,
    description: str = "",
    icon: str = "data:,",  # otherwise browsers request /favicon.ico
) -> str:
    """A document as text, to be written as UTF-8; the script runs at the end of the body.

    Its style is that of every page, plus `style`. Link previews show the description under the
    title; services do not fetch data: URLs, so there is no picture.

    The Content Security Policy allows browsers to load nothing and to run no script but this one,
    identified by its hash, and WebAssembly that it compiles, if any, also in Workers. The script of
    a live page may query the server that it came from.
    """
    style = Markup(resource(__package__, "page.css") + style)
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    allowed += " 'wasm-unsafe-eval'; worker-src blob:" if wasm else ""
    policy = f"default-src 'none'; {allowed}; media-src data:; img-src data:"
    policy += "; connect-src 'self'" if live else ""
    preview = []
    if description:
        graph = {"og:title": title, "og:description": description, "og:type": "website"}
        preview.append(tag("meta", name="description", content=description))
        preview += [tag("meta", property=name, content=text) for name, text in graph.items()]
    inside: dict[str, str] = {"title": title, "icon": icon, "policy": policy, "body": body}
    inside |= {"preview": joined(*preview), "style": style, "script": script}
    return filled(resource(__package__, "document.html"), **inside)


def resource(package: str, name: str) -> Markup:
    """A file of a package, trusted and not escaped."""
    return Markup(files(package).joinpath(name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}'"
