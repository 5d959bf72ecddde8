"""Parts of an SVG of any width: lines, and the texts that keep their size."""

from collections.abc import Iterable

from seqmodel.report.page.markup import Markup, tag


def ruled(x: Iterable[tuple[float, str]], y: Iterable[tuple[float, str]]) -> list[Markup]:
    """Ticks below at shares of the width, and lines across at shares of the height, with texts."""
    parts = []
    for share, text in y:
        place = percent(share)
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=place, y2=place))
        parts.append(tag("text", text, class_="y-tick", x="-8", y=place, dy="0.35em"))
    for share, text in x:
        place = percent(share)
        parts.append(tag("line", class_="tick", x1=place, x2=place, y1="100%", y2="101.5%"))
        parts.append(tag("text", text, class_="x-tick", x=place, y="100%", dy="1.6em"))
    return parts


def path_through(width: float, height: float, places: Iterable[tuple[float, float]]) -> str:
    """The path of a line through places given as shares of the width and the height."""
    pairs = [f"{short(width * x, 2)} {short(height * y, 2)}" for x, y in places]
    # A zero-length line shows its round caps, so that a single point is visible.
    return f"M{pairs[0]}" + ("".join(f"L{pair}" for pair in pairs[1:]) or "h0")


def stretched(lines: Iterable[Markup], box: str) -> Markup:
    """An SVG that fills its parent, whatever the proportions."""
    return tag("svg", *lines, viewBox=box, preserveAspectRatio="none", width="100%", height="100%")


def percent(share: float) -> str:
    """A share as a length of CSS."""
    return f"{short(100 * share, 3)}%"


def short(value: float, places: int) -> str:
    """The number without trailing zeros."""
    text = f"{value:.{places}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
