"""Pictures of samples, drawn by matplotlib, and sparklines; the colours and shapes of series.

`charts.js` draws charts from what is written here. Everything is drawn dark on a transparent
background, which page.css inverts on dark pages.
"""

from collections.abc import Callable, Sequence
from urllib.parse import quote

import numpy as np

from seqmodel.evaluation.evaluate import draw_picture
from seqmodel.media.samples import Picture
from seqmodel.plots import svg_text
from seqmodel.report.page.markup import Markup, tag

Trace = tuple[float, ...]
"""The values of a sparkline."""

COLOURS = "#17478f", "#a93a0b", "#21a07c", "#c565d6", "#a08318", "#12809d", "#4a4a4a"
"""Distinct under every kind of colour blindness (CIE76 of at least 10 per Machado et al. 2009, at
least 17 among the first four), each with a contrast of at least 3 to the background, also when both
are inverted."""
SHAPES = "●■▲◆▼✚⬟"
"""Distinguish series without colours."""
GREY = "#5a636e"

AXES = 0.05, 0.22, 0.94, 0.74
"""In a sample's picture: left, bottom, width, height as shares of it; `.time` in page.css."""
INK, SHADES = ("#00000000", "#000000"), 32
"""The colours of the quietest and the loudest cells of a spectrogram, and the number of shades."""

TRACE = 100, 24
"""Width and height of a trace."""
TRACE_POINTS = 50
"""At most: more would be indistinguishable in a cell."""
STEEP, CUT = 3.0, 2.0
"""If the first epochs make a chart more than STEEP times as high as the others do, it is cut off at
CUT times that height: otherwise the others would be indistinguishable."""
FIRST = 5
"""The first epochs of a curve are the first 1/FIRST of them."""
HEADROOM = 0.05
"""Share of the data's height left free above and below it."""


class SeriesStyles:
    """The colour and shape of each series of a page, assigned in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def _style(self, name: str) -> tuple[str, str]:
        number = self._numbers.setdefault(name, len(self._numbers))
        # Each time the colours repeat, the shapes shift by one against them.
        shape = SHAPES[(number + number // len(COLOURS)) % len(SHAPES)]
        return COLOURS[number % len(COLOURS)], shape

    def colour(self, name: str) -> str:
        return self._style(name)[0] if name else GREY

    def key(self, name: str) -> Markup:
        """The series' shape, for use within text; nothing for no series."""
        if not name:
            return Markup()
        colour, character = self._style(name)
        shape = tag("text", character, x="7", y="12", fill=colour)
        return tag("svg", shape, class_="key", viewBox="0 0 14 14", aria_hidden="true")


def chart_limit(curves: Sequence[Sequence[float]]) -> tuple[float | None, list[str]]:
    """The limit for curves whose first epochs would need most of a chart, and a remark."""
    (_, high), top = _settled_range(curves), max(map(max, curves))
    if top <= high:
        return None, []
    return high, [f"The first epochs are off the chart, up to {top:.4f}."]


def _settled_range(curves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The lowest value of curves, and the highest to show, which first epochs may exceed."""
    low, high = min(map(min, curves)), max(map(max, curves))
    rest = max(max(line[len(line) // FIRST :]) for line in curves)
    if rest == low or high - low <= STEEP * (rest - low):
        return low, high
    return low, low + CUT * (rest - low)


def worst_limit(values: Sequence[float]) -> float | None:
    """The limit for values whose worst tenth would need most of a chart."""
    low, most, high = np.quantile(values, (0, 0.9, 1))
    return float(most) if most > low and high - low > STEEP * (most - low) else None


def picture_image(picture: Picture, shared: Picture, colour: str) -> Markup:
    """A sample's picture, with the time span, levels and heights of `shared`."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2))
    axes = figure.add_axes(AXES)
    ink = LinearSegmentedColormap.from_list("ink", INK, SHADES)
    draw_picture(axes, picture, picture.seconds, colour=colour, given=GREY, shades=ink)
    axes.set(xlim=(0, shared.seconds), ylim=(shared.bottom, shared.top), xlabel="seconds")
    axes.set_yticks([*shared.ticks], [*shared.ticks.values()])
    content = quote(svg_text(figure), safe=" /:;,=()'")  # shorter than base64
    return tag("img", src=f"data:image/svg+xml,{content}", alt=picture.summary)


def trace_drawer(traces: Sequence[Trace]) -> Callable[[Trace, str], Markup]:
    """The function that draws a table's traces in a colour, all on one scale."""
    drawn = [trace for trace in traces if trace] or [(0.0,)]
    (low, high), longest = _settled_range(drawn), max(map(len, drawn))
    room = HEADROOM * (high - low) or abs(low) / 10 or 1.0
    low, high = low - room, high + room

    def draw(trace: Trace, colour: str) -> Markup:
        if not trace:
            return Markup()
        count, (width, height) = len(trace), TRACE
        chosen = np.linspace(0, count - 1, min(count, TRACE_POINTS)).round().astype(int)
        x = chosen * width / max(longest - 1, 1)
        y = height * (high - np.array(trace)[chosen]) / (high - low)
        places = [f"{a:.4g},{max(0, b):.4g}" for a, b in zip(x, y, strict=True)]
        # The last point twice: one point would show nothing, a line of length 0 shows its caps.
        return tag(
            "svg",
            tag("polyline", points=" ".join([*places, places[-1]]), stroke=colour),
            class_="trace",
            viewBox=f"0 0 {width} {height}",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"from {trace[0]:.4f} to {trace[-1]:.4f}",
        )

    return draw
