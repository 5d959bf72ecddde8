"""Reads report pages back: a tree of elements, and the values shown in charts."""

import base64
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote

VOID = {"meta", "link", "input", "img"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    content: list["Element | str"] = field(default_factory=list)

    @property
    def text(self):
        """What can be read: not what is drawn."""
        texts = (p if isinstance(p, str) else p.text for p in self.content if not _is_drawn(p))
        return "".join(texts)

    @property
    def classes(self):
        return set((self.attributes.get("class") or "").split())

    def all(self, name="", kind=""):
        """The elements below this one, of a given name and class."""
        found = []
        for part in self.content:
            if isinstance(part, Element):
                if name in ("", part.name) and (not kind or kind in part.classes):
                    found.append(part)
                found += part.all(name, kind)
        return found

    def one(self, name="", kind=""):
        (found,) = self.all(name, kind)
        return found


def _is_drawn(part):
    return isinstance(part, Element) and part.name == "svg"


class _Parser(HTMLParser):
    """Fails if an element is not closed, or closed twice."""

    def __init__(self):
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


def read(page):
    """The page as a tree; AssertionError if it is not well-formed."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    (root,) = parser.open
    return root


def rows(table):
    """The cells of a table, its header first; a detail follows a bar."""
    found = []
    for row in table.all("tr"):
        cells = [cell for cell in row.content if isinstance(cell, Element)]
        found.append([_set_off(cell) for cell in cells])
    return found


def _set_off(cell):
    detail = "".join(small.text for small in cell.all("small"))
    return f"{cell.text.removesuffix(detail)}|{detail}" if detail else cell.text


def sounds(page):
    """The embedded audio files."""
    return [embedded(audio.attributes["src"]) for audio in page.all("audio")]


def embedded(source):
    """The content of a data: URI."""
    return base64.b64decode((source or "").partition(",")[2])


def drawing(image):
    """The SVG that an image holds."""
    head, _, content = image.attributes["src"].partition(",")
    assert head == "data:image/svg+xml"
    return read(unquote(content)).one("svg")


def group(svg, name):
    """The group of a name: `axes_1` is the first chart of a drawing, `patch_2` its frame."""
    (found,) = [each for each in svg.all("g") if each.attributes.get("id") == name]
    return found


def places(path):
    """The points of a line, y downwards."""
    pairs = re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path.attributes["d"])
    return [(float(x), float(y)) for x, y in pairs]


def boxes(image, kind="boxes"):
    """The boxes of a picture, as shares of its axes: left, bottom, width, height."""
    svg = drawing(image)
    (left, bottom), _, (right, top), *_ = places(group(svg, "patch_2").one("path"))
    corners = places(group(svg, kind).one("path"))
    return [
        (
            (x - left) / (right - left),
            (bottom - y) / (bottom - top),
            (far - x) / (right - left),
            (y - high) / (bottom - top),
        )
        for (x, y), (far, high) in zip(corners[::4], corners[2::4], strict=True)
    ]
