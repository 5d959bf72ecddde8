"""Colours and marks of series: the same for the same name across the whole page."""

from collections.abc import Iterable

from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Cloud, Curve

COLOURS = 7
"""Defined in page.css, from `.series-0` on."""

SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",  # circle
    "M-4.5-4.5h9v9h-9z",  # square
    "M0-6l5.6 9.8h-11.2z",  # triangle
    "M0-6.2l6.2 6.2-6.2 6.2-6.2-6.2z",  # diamond
    "M0 6l-5.6-9.8h11.2z",  # triangle, upside down
    "M-1.9-5.6h3.8v3.7h3.7v3.8h-3.7v3.7h-3.8v-3.7h-3.7v-3.8h3.7z",  # cross
    "M0-5.8l5.5 4-2.1 6.5h-6.8l-2.1-6.5z",  # pentagon
)
"""Centred on (0, 0); they tell series apart without colours."""


class Marks:
    """The colour and shape of each series of a page, assigned in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def colour(self, name: str) -> str:
        """The CSS class of the series' colour."""
        return f"series-{self._number(name) % COLOURS}"

    def use(self, name: str, **attributes: str) -> Markup:
        """The series' shape, for use within an SVG."""
        number = self._number(name)
        # Each time the colours repeat, the shapes shift by one against them.
        shape = (number + number // COLOURS) % len(SHAPES)
        return tag("use", href=f"#mark-{shape}", class_=f"mark {self.colour(name)}", **attributes)

    def key(self, name: str) -> Markup:
        """The series' shape, for use within text."""
        return tag("svg", self.use(name), class_="key", viewBox="-7 -7 14 14", aria_hidden="true")


def definitions() -> Markup:
    """The shapes that `Marks.use` refers to, needed once per page."""
    shapes = (tag("path", id=f"mark-{k}", d=shape) for k, shape in enumerate(SHAPES))
    return tag("svg", tag("defs", *shapes), class_="definitions", aria_hidden="true")


def family(series: Curve | Cloud) -> str:
    """The name that determines the colour and the mark."""
    return series.family or series.name


def legend(marks: Marks, names: Iterable[str], *more: str) -> Markup:
    """The legend of a chart: the keys of its series, then `more` entries."""
    keys = (tag("span", marks.key(name), name, class_="entry") for name in dict.fromkeys(names))
    return tag("div", joined(*keys, *more), class_="legend")
