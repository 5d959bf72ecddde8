"""Charts: SVG whose text keeps its size at any width, and a table of the points.

A chart's SVG has no viewBox: ticks and marks are placed by percentages, and lines are in a
nested, stretched SVG of 1000 by 1000. Each row of the table holds the positions of its points
(data-at: x on each axis, then each y from the top, in thousandths of the chart); with its cells,
that is all page.js needs to show them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqmodel.report.page.markup import Markup, collapsed, heading, joined, notes, scrolled, tag
from seqmodel.report.page.parts import Cloud, Curve, Curves, Scatter, Trace

EXTENT = 1000
"""Width and height of the stretched part of a chart."""
TRACE = 100, 24
"""Width and height of a trace."""
TRACE_POINTS = 50
"""At most: more cannot be told apart in a cell."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HEADROOM = 0.05
"""Share of the data's height left free above and below it."""
STEEP, CUT = 3.0, 2.0
"""If the first epochs make a chart more than STEEP times as high as the others do, it is cut off at
CUT times that height: there would be no room to tell the others apart."""
FIRST = 5
"""The first epochs of a curve are the first 1/FIRST of them."""
LOG_ROOM = 1.5
"""The factor by which a log scale extends beyond its values."""

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
        """The CSS class of the series' colour; "" for no series."""
        return f"series-{self._number(name) % COLOURS}" if name else ""

    def use(self, name: str, **attributes: str) -> Markup:
        """The series' shape, for use within an SVG."""
        number = self._number(name)
        # Each time the colours repeat, the shapes shift by one against them.
        shape = (number + number // COLOURS) % len(SHAPES)
        return tag("use", href=f"#mark-{shape}", class_=f"mark {self.colour(name)}", **attributes)

    def key(self, name: str) -> Markup:
        """The series' shape, for use within text; nothing for no series."""
        if not name:
            return Markup()
        return tag("svg", self.use(name), class_="key", viewBox="-7 -7 14 14", aria_hidden="true")


def definitions() -> Markup:
    """The shapes that `Marks.use` refers to, needed once per page."""
    shapes = (tag("path", id=f"mark-{k}", d=shape) for k, shape in enumerate(SHAPES))
    return tag("svg", tag("defs", *shapes), class_="definitions", aria_hidden="true")


class Scale(NamedTuple):
    """An axis from `low` to `high`."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """The position of `value`: 0 at the low end, 1 at the high end; not clipped."""
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, most: int = 6) -> Scale:
    """A linear axis from exactly `low` to `high`, or around them if they are equal.

    Its ticks, at most `most`, are 1, 2 or 5 times a power of ten apart.
    """
    if not low < high:
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    least = (high - low) / (most - 1) * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= least)
    places = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = (round(k * step, places) for k in range(first, last + 1))
    return Scale(low, high, tuple((value, f"{value:,.{places}f}") for value in values))


def padded(low: float, high: float) -> Scale:
    """A vertical axis with some room below `low` and above `high`."""
    room = HEADROOM * (high - low)
    return linear(low - room, high + room, most=8)


def settled(curves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The lowest value of curves, and the highest to show: first epochs may lie above it."""
    low, high = min(map(min, curves)), max(map(max, curves))
    rest = max(max(line[len(line) // FIRST :]) for line in curves)
    if rest == low or high - low <= STEEP * (rest - low):
        return low, high
    return low, low + CUT * (rest - low)


def logarithmic(values: Sequence[float]) -> Scale:
    """An axis of logarithms to base ten around positive values, with at least two ticks.

    Its ticks are the powers of ten; if fewer than two are near the values, it runs from the tick
    below the values to the one above, and has ticks at twice and five times each power too.
    """
    low, high = min(values) / LOG_ROOM, max(values) * LOG_ROOM
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [tick for tick in _steps(powers, (1,)) if low <= tick[0] <= high]
    if len(ticks) < 2:
        steps = _steps(powers, (1, 2, 5))
        first = max(k for k, (value, _) in enumerate(steps) if value < min(values))
        last = min(k for k, (value, _) in enumerate(steps) if value > max(values))
        ticks = steps[first : last + 1]
        low, high = ticks[0][0], ticks[-1][0]
    logs = tuple((math.log10(value), text) for value, text in ticks)
    return Scale(math.log10(low), math.log10(high), logs)


def _steps(powers: Iterable[int], factors: Sequence[int]) -> list[tuple[float, str]]:
    return [
        (k * 10.0**power, (f"{k}·" if k > 1 else "") + f"10{str(power).translate(SUPERSCRIPTS)}")
        for power in powers
        for k in factors
    ]


class Axis(NamedTuple):
    """One of a chart's horizontal axes."""

    key: str
    """Its class in page.css is over-KEY."""
    name: str
    scale: Scale


class Spot(NamedTuple):
    """A point of a series on a chart, and its row in the table."""

    xs: tuple[float, ...]
    """On each axis."""
    ys: tuple[float, ...]
    """For each kind of line; the pointer aims at the first."""
    cells: tuple[str, ...]
    marked: bool


def curves_chart(part: Curves, marks: Marks, number: int) -> Markup:
    """The curves, with a switch between axes; `number` identifies the chart on the page."""
    curves = [curve for curve in part.curves if curve.points]
    if all(len(curve.points) == 1 for curve in curves):
        only = "One epoch makes no curve." if curves else "No complete epoch yet."
        return joined(heading(part.heading), notes((only, *part.notes)))
    kinds = ("valid", "train") if part.train else ("valid",)
    lines = [[getattr(p, kind) for p in curve.points] for kind in kinds for curve in curves]
    (low, high), top = settled(lines), max(map(max, lines))
    off = [f"The first epochs are off the chart, up to {top:.4f}."] if top > high else []
    seconds, time = _time_unit(max(curve.points[-1].seconds for curve in curves))
    series = []
    for curve in curves:
        spots = []
        for epoch, point in enumerate(curve.points, 1):
            ys = tuple(getattr(point, kind) for kind in kinds)
            best = epoch == curve.best
            cells = (
                curve.name,
                f"{epoch} (best)" if best else f"{epoch}",
                f"{point.update:,}",
                f"{point.seconds:,.1f}",
                f"{point.train:.4f}",
                f"{point.valid:.4f}",
            )
            spots.append(Spot((point.update, point.seconds / seconds), ys, cells, best))
        series.append((curve, spots))
    ends = [max(spots[-1].xs[k] for _, spots in series) for k in range(2)]
    return _chart(
        (part.heading, part.unit if part.train else f"{part.unit} on valid"),
        [
            Axis("updates", "updates", linear(0, ends[0])),
            Axis("time", f"{time} of training", linear(0, ends[1])),
        ],
        padded(low, high),
        series,
        ("run", "epoch", "updates", "seconds", "train", "valid"),
        (*off, *part.notes),
        marks,
        number,
        kinds,
    )


def _time_unit(seconds: float) -> tuple[float, str]:
    """The unit for a time axis of this length: its seconds and its name."""
    if seconds < 120:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 7200 else (3600.0, "hours")


def scatter_chart(part: Scatter, marks: Marks, number: int) -> Markup:
    """The points; `number` identifies the chart on the page."""
    dots = [dot for cloud in part.clouds for dot in cloud.points]
    if not dots:
        return joined(heading(part.heading), notes(("No points to show.", *part.notes)))
    series = []
    for cloud in part.clouds:
        spots = []
        for dot in cloud.points:
            name = f"{cloud.name}, {dot.label}" if dot.label else cloud.name
            cells = (name, f"{dot.x:.4g}", f"{dot.y:.4f}")
            spots.append(Spot((math.log10(dot.x),), (dot.y,), cells, True))
        if spots:
            series.append((cloud, spots))
    return _chart(
        (part.heading, part.y_name),
        [Axis("x", part.x_name, logarithmic([dot.x for dot in dots]))],
        padded(min(dot.y for dot in dots), max(dot.y for dot in dots)),
        series,
        ("run", part.x_name, part.y_name),
        part.notes,
        marks,
        number,
    )


def _chart(
    names: tuple[str, str],
    axes: Sequence[Axis],
    y: Scale,
    series: Sequence[tuple[Curve | Cloud, Sequence[Spot]]],
    columns: Sequence[str],
    remarks: Iterable[str],
    marks: Marks,
    number: int,
    kinds: Sequence[str] = (),
) -> Markup:
    """A chart with legend, axis switch, table and notes.

    Args:
        names: its heading and the name of the vertical axis.
        axes: the reader chooses one.
        y: the vertical axis.
        series: with their points.
        columns: of the table.
        remarks: below it.
        marks: of the page.
        number: identifies the chart on the page.
        kinds: of lines through the points, classes in page.css; none: only marks.
    """
    title, y_name = names
    over = " or ".join(axis.name for axis in axes)
    about = f"{title}: {y_name} over {over}. Its points are in the table below."
    entries = dict.fromkeys(one.family or one.name for one, _ in series)
    keys = [tag("span", marks.key(name), name, class_="entry") for name in entries]
    for kind in kinds if len(kinds) > 1 else ():
        line = tag("span", class_=f"line {kind}", aria_hidden="true")
        keys.append(tag("span", line, kind, class_="entry"))
    rows = []
    for one, spots in series:
        colour = marks.colour(one.family or one.name)
        for spot in spots:
            places = [axis.scale.share(x) for axis, x in zip(axes, spot.xs, strict=True)]
            places += [_within(1 - y.share(value)) for value in spot.ys]
            at = " ".join(_short(EXTENT * share, 1) for share in places)
            cells = [tag("td", text, class_="number") for text in spot.cells[1:]]
            cells.insert(0, tag("th", spot.cells[0], scope="row"))
            rows.append(tag("tr", *cells, class_=colour, data_at=at, data_series=one.name))
    heads = [tag("th", columns[0], scope="col")]
    heads += [tag("th", name, scope="col", class_="number") for name in columns[1:]]
    plots = (_plot(k, axis, y, series, kinds, marks) for k, axis in enumerate(axes))
    figure = tag(
        "figure",
        tag("div", tag("div", *keys, class_="legend"), _switch(axes, number), class_="above"),
        tag("div", tag("span", y_name), class_="y-name", aria_hidden="true"),
        tag("div", *plots, class_="plot", role="img", aria_label=about),
        collapsed("The chart as a table", scrolled(heads, rows, f"{title} as a table")),
        class_="chart",
    )
    return joined(heading(title), figure, notes(remarks))


def _plot(
    k: int,
    axis: Axis,
    y: Scale,
    series: Sequence[tuple[Curve | Cloud, Sequence[Spot]]],
    kinds: Sequence[str],
    marks: Marks,
) -> Markup:
    """The SVG over axis k."""
    lines, marked = list[Markup](), list[Markup]()
    for one, spots in series:
        name = one.family or one.name
        lefts = [axis.scale.share(spot.xs[k]) for spot in spots]
        for n, kind in reversed([*enumerate(kinds)]):  # the first on top
            tops = (1 - y.share(spot.ys[n]) for spot in spots)
            path = _path_through(EXTENT, EXTENT, zip(lefts, tops, strict=True))
            lines.append(tag("path", d=path, class_=f"{kind} {marks.colour(name)}"))
        for spot, left in zip(spots, lefts, strict=True):
            if spot.marked:
                top = _within(1 - y.share(spot.ys[0]))
                marked.append(marks.use(name, x=_percent(left), y=_percent(top)))
    parts = ruled(
        [(axis.scale.share(value), text) for value, text in axis.scale.ticks],
        [(1 - y.share(value), text) for value, text in y.ticks],
    )
    parts.append(tag("text", axis.name, class_="x-name", x="100%", y="100%", dy="3.1em"))
    parts.append(stretched(lines, f"0 0 {EXTENT} {EXTENT}"))
    return tag("svg", *parts, *marked, class_=f"axes over-{axis.key}", aria_hidden="true")


def _within(top: float) -> float:
    """Where a point is shown: at the chart's edge if it is above or below."""
    return min(1.0, max(0.0, top))


def _switch(axes: Sequence[Axis], number: int) -> Markup:
    if len(axes) == 1:
        return Markup()
    buttons = []
    for k, axis in enumerate(axes):
        place = f"chart-{number}-{axis.key}"
        attributes = {"name": f"chart-{number}", "id": place, "class_": f"choose-{axis.key}"}
        buttons.append(tag("input", type="radio", checked=not k, **attributes))
        buttons.append(tag("label", axis.key, for_=place))
    return tag("fieldset", tag("legend", "Over", class_="unseen"), *buttons, class_="switch")


def trace_drawer(traces: Iterable[Trace]) -> Callable[[Trace, str], Markup]:
    """The function that draws a table's traces, on one scale, given the class of their colour."""
    drawn = [trace.values for trace in traces if trace.values] or [(0.0,)]
    y, longest = padded(*settled(drawn)), max(map(len, drawn))

    def draw(trace: Trace, colour: str) -> Markup:
        if not trace.values:
            return Markup()
        count, (width, height) = len(trace.values), TRACE
        places = [
            (k / max(longest - 1, 1), max(0.0, 1 - y.share(trace.values[k])))
            for k in np.linspace(0, count - 1, min(count, TRACE_POINTS)).round().astype(int)
        ]
        return tag(
            "svg",
            tag("path", class_="valid", d=_path_through(width, height, places)),
            class_=f"trace {colour}".strip(),
            viewBox=f"0 0 {width} {height}",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"from {trace.values[0]:.4f} to {trace.values[-1]:.4f}",
        )

    return draw


def ruled(x: Iterable[tuple[float, str]], y: Iterable[tuple[float, str]]) -> list[Markup]:
    """Ticks below at shares of the width, and lines across at shares of the height, with texts."""
    parts = []
    for share, text in y:
        place = _percent(share)
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=place, y2=place))
        parts.append(tag("text", text, class_="y-tick", x="-8", y=place, dy="0.35em"))
    for share, text in x:
        place = _percent(share)
        parts.append(tag("line", class_="tick", x1=place, x2=place, y1="100%", y2="101.5%"))
        parts.append(tag("text", text, class_="x-tick", x=place, y="100%", dy="1.6em"))
    return parts


def stretched(lines: Iterable[Markup], box: str) -> Markup:
    """An SVG that fills its parent, whatever the proportions."""
    return tag("svg", *lines, viewBox=box, preserveAspectRatio="none", width="100%", height="100%")


def _path_through(width: float, height: float, places: Iterable[tuple[float, float]]) -> str:
    """The path of a line through places given as shares of the width and the height."""
    pairs = [f"{_short(width * x, 2)} {_short(height * y, 2)}" for x, y in places]
    # A zero-length line shows its round caps, so that a single point is visible.
    return f"M{pairs[0]}" + ("".join(f"L{pair}" for pair in pairs[1:]) or "h0")


def _percent(share: float) -> str:
    return f"{_short(100 * share, 3)}%"


def _short(value: float, places: int) -> str:
    """The number without trailing zeros."""
    text = f"{value:.{places}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
