"""Reads report pages back: a tree of elements, and the values shown in charts."""

import base64
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    content: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.content)

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())

    def all(self, name: str = "", kind: str = "") -> list["Element"]:
        """The elements below this one, of a given name and class."""
        found = []
        for part in self.content:
            if isinstance(part, Element):
                if name in ("", part.name) and (not kind or kind in part.classes):
                    found.append(part)
                found += part.all(name, kind)
        return found

    def one(self, name: str = "", kind: str = "") -> "Element":
        (found,) = self.all(name, kind)
        return found


class _Parser(HTMLParser):
    """Fails if an element is not closed, or closed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page", {})]

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), f"an attribute twice: {attributes}"
        element = Element(tag, dict(attributes))
        self.open[-1].content.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop().name == tag

    def handle_data(self, data):
        self.open[-1].content.append(data)


def read(page: str) -> Element:
    """The page as a tree; AssertionError if it is not well-formed."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    (root,) = parser.open
    return root


def rows(table: Element) -> list[list[str]]:
    """The cells of a table, its header first; a detail follows a bar."""
    found = []
    for row in table.all("tr"):
        cells = [cell for cell in row.content if isinstance(cell, Element)]
        found.append([_set_off(cell) for cell in cells])
    return found


def _set_off(cell: Element) -> str:
    detail = "".join(small.text for small in cell.all("small"))
    return f"{cell.text.removesuffix(detail)}|{detail}" if detail else cell.text


def sounds(page: Element) -> list[bytes]:
    """The embedded audio files."""
    return [embedded(audio.attributes["src"]) for audio in page.all("audio")]


def embedded(source: str | None) -> bytes:
    """The content of a data: URI."""
    return base64.b64decode((source or "").partition(",")[2])


def number(text: str) -> float:
    return float(text.replace(",", "").rstrip("%"))


def power(text: str) -> float:
    """A tick such as 2·10⁻³."""
    factor, _, ten = text.rpartition("·")
    exponent = ten.removeprefix("10").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return float(factor or 1) * 10.0 ** int(exponent)


def ticks(plot: Element, axis: str, value=number) -> tuple[list[float], list[float]]:
    """The positions of an axis's ticks, in percent, and their values."""
    found = plot.all("text", f"{axis}-tick")
    return [number(t.attributes[axis]) for t in found], [value(t.text) for t in found]


def path(drawn: Element) -> list[tuple[float, float]]:
    """The points of a line."""
    pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", drawn.attributes["d"])
    return [(float(x), float(y)) for x, y in pairs]


def boxes(drawn: Element) -> list[tuple[float, float, float, float]]:
    """The boxes of a picture: left, top, width, height."""
    d = drawn.attributes["d"]
    found = re.findall(r"M([-\d.e]+) ([-\d.e]+)h([-\d.e]+)v([-\d.e]+)h-([-\d.e]+)z", d)
    assert sum(len(f"M{a} {b}h{c}v{e}h-{f}z") for a, b, c, e, f in found) == len(d)
    assert all(c == f for _, _, c, _, f in found)
    return [(float(a), float(b), float(c), float(e)) for a, b, c, e, _ in found]
