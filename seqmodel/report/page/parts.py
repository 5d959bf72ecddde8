"""Report pages: a title and sections of tables, charts and samples, as one file of HTML.

All are plain values. Text is never parsed: it is shown verbatim, with control characters escaped.
The names of series (curves, dots, rows and samples) determine their colours: a name has the same
colour and mark across the page. Curves that belong together, such as one for each seed, share a
`family`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from seqmodel.media.samples import Picture
from seqmodel.media.words import epochs_text, spaced
from seqmodel.report.page.charts import (
    SeriesStyles,
    Trace,
    chart_limit,
    picture_image,
    trace_drawer,
    worst_limit,
)
from seqmodel.report.page.markup import (
    Markup,
    collapsed,
    document,
    embedded,
    escaped,
    filled,
    joined,
    notes,
    resource,
    scrolled,
    tag,
)

MEDIA_TYPES = {"mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "wav": "audio/wav"}
SCRIPTS, LIVE = ("tables.js", "charts.js", "page.js"), ("live.js",)

TIME_UNITS = (120, 1.0, "seconds"), (7200, 60.0, "minutes"), (np.inf, 3600.0, "hours")
"""The length of a time axis up to which a unit is used, its seconds and its name."""
MAIN_COLUMNS = "epoch", "updates", "seconds", "train_nats_per_frame", "valid_nats_per_frame"
"""The first columns of a table of curves."""
TRAIN, VALID = 4, 5
"""The columns of nats per frame there."""


@dataclass(frozen=True)
class Row:
    """A row of a table; its first cell is its heading, and must be text."""

    cells: tuple[str | Trace, ...]
    """Traces are sparklines, such as a run's valid figures; all in a table share one scale."""
    strong: frozenset[int] = frozenset()
    """Indices of the cells to emphasise."""
    detail: str = ""
    """Small print below the text of the first cell."""
    series: str = ""
    """The series whose mark the row has; "" for none."""
    muted: bool = False
    """Whether it is only for comparison, such as a baseline."""


@dataclass(frozen=True)
class Table:
    """A table; rows have as many cells as there are columns."""

    columns: tuple[str, ...]
    """The first holds names, the others numbers."""
    rows: tuple[Row, ...]
    heading: str = ""
    notes: tuple[str, ...] = ()
    collapsed: bool = False
    """Whether only its heading is shown until it is opened."""
    text: tuple[str, ...] = ()
    """Other columns that hold text."""

    def markup(self, styles: SeriesStyles) -> Markup:
        kinds = [None, *(None if name in self.text else "number" for name in self.columns[1:])]
        draw = trace_drawer([c for row in self.rows for c in row.cells if not isinstance(c, str)])
        rows = []
        for row in self.rows:
            colour, cells = styles.colour(row.series), list[Markup]()
            for k, (cell, kind) in enumerate(zip(row.cells, kinds, strict=True)):
                text = _with_deviation(cell) if isinstance(cell, str) else draw(cell, colour)
                text = tag("strong", text) if k in row.strong else text
                cells.append(tag("td", text, class_=kind) if k else text)
            detail = tag("small", row.detail) if row.detail else ""
            first = tag("th", styles.key(row.series), cells[0], detail, scope="row")
            muted = "muted" if row.muted else None
            rows.append(tag("tr", first, *cells[1:], class_=muted, data_series=row.series or None))
        heads = (
            tag("th", name, scope="col", class_=kind)
            for name, kind in zip(self.columns, kinds, strict=True)
        )
        whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
        content = joined(scrolled(whole, self.heading), notes(self.notes))
        if self.collapsed:
            return collapsed(self.heading, content)
        return joined(tag("h3", self.heading) if self.heading else "", content)


def _with_deviation(text: str) -> Markup:
    """A cell's text, with a standard deviation below its mean."""
    mean, sign, deviation = text.partition(" ± ")
    if not sign:
        return escaped(text)
    return joined(mean, " ", tag("span", f"± {deviation}", class_="deviation"))


# ---- charts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """The learning curve of a run."""

    name: str
    metrics: Sequence[Mapping[str, Any]]
    """The lines of its metrics.jsonl, for epochs and for looks at valid within them."""
    best: float | None
    """The epoch, or fraction of one, after which valid is best, if it has a line."""
    family: str = ""
    """The name that determines its colour and mark; "" for its own name."""

    @property
    def best_line(self) -> int | None:
        """The index of that line."""
        return next((k for k, line in enumerate(self.metrics) if line["epoch"] == self.best), None)

    def figures(self, kind: str) -> list[float]:
        return [line[f"{kind}_nats_per_frame"] for line in self.metrics]

    def seconds(self) -> list[float]:
        return [*accumulate(line["seconds"] for line in self.metrics)]


@dataclass(frozen=True)
class Curves:
    """Learning curves over updates and over time."""

    curves: tuple[Curve, ...]
    train: bool = True
    """Whether train is drawn too; with many curves it would hide them, so only the table has it."""

    def markup(self, styles: SeriesStyles) -> Markup:
        """The chart of whatever the metrics contain."""
        curves = tuple(curve for curve in self.curves if curve.metrics)
        title = "Learning curves"
        if all(len(curve.metrics) == 1 for curve in curves):
            only = "One epoch makes no curve." if curves else "No complete epoch yet."
            return joined(tag("h3", title), notes([only]))
        longest = max(curve.seconds()[-1] for curve in curves)
        unit, time = next((s, name) for most, s, name in TIME_UNITS if longest < most)
        lines = [line for curve in curves for line in curve.metrics]
        more = dict.fromkeys(name for line in lines for name in line if name not in MAIN_COLUMNS)
        names = ("run", "epoch", "updates", time, "train", "valid", *map(spaced, more))
        rows = [
            Row(
                (
                    curve.name,
                    epochs_text(line["epoch"]) + " (best)" * (line["epoch"] == curve.best),
                    f"{line['updates']:,}",
                    f"{seconds / unit:,.{1 if unit == 1 else 3}f}",
                    f"{line['train_nats_per_frame']:.4f}",
                    f"{line['valid_nats_per_frame']:.4f}",
                    *(_figure(line[name]) if name in line else "" for name in more),
                ),
                frozenset({VALID} if line["epoch"] == curve.best else ()),
                series=curve.family or curve.name,
            )
            for curve in curves
            for line, seconds in zip(curve.metrics, curve.seconds(), strict=True)
        ]
        nats, kinds = {"nats per frame: valid, and train dashed": f"{VALID} {TRAIN}"}, ["valid"]
        if self.train:
            kinds.append("train")
        else:
            nats = {f"nats per frame on {names[column]}": f"{column}" for column in (VALID, TRAIN)}
        most, remarks = chart_limit([curve.figures(kind) for curve in curves for kind in kinds])
        figures = [_option(name, columns, most=most) for name, columns in nats.items()]
        figures += [_option(name, k) for k, name in enumerate(names) if k > VALID]
        over = [_option("updates", 2), _option(f"{time} of training", 3)]
        return joined(_chart(title, names, rows, styles, over, figures), notes(remarks))


def _figure(value: float) -> str:
    """A number as text, integers in full; charts are drawn from the written values."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


class Dot(NamedTuple):
    """A run in a scatter chart."""

    series: str
    rate: float
    nats: float
    """Nats per frame on valid, in the best epoch."""
    label: str = ""


@dataclass(frozen=True)
class Scatter:
    """Best figures on valid over learning rates."""

    dots: tuple[Dot, ...]

    def markup(self, styles: SeriesStyles) -> Markup:
        title = "Learning rates"
        names = ("run", "trial", "learning rate", "best valid, nats per frame")
        if not self.dots:
            return joined(tag("h3", title), notes(["No points to show."]))
        rows = [
            Row((series, label, f"{rate:.4g}", f"{nats:.4f}"), series=series)
            for series, rate, nats, label in self.dots
        ]
        most = worst_limit([dot.nats for dot in self.dots])
        figures, over = _option(names[3], 3, most=most, dots=True), _option(names[2], 2, log=True)
        return _chart(title, names, rows, styles, [over], [figures])


def _option(text: str, column: int | str, **data: float | bool | None) -> Markup:
    """A choice of what to draw: its columns, and what charts.js needs to know about them."""
    known = {f"data_{name}": value for name, value in data.items()}
    return tag("option", text, value=column, **known)


def _chart(
    title: str,
    names: Sequence[str],
    rows: Sequence[Row],
    styles: SeriesStyles,
    over: Sequence[Markup],
    figures: Sequence[Markup],
) -> Markup:
    """A chart with its legend, and the table it is drawn from, with columns of these names.

    It shows one of the options `figures` over one of the options `over`.
    """
    entry: dict[str, str] = {"class_": "entry", "type": "button", "aria_pressed": "true"}
    legend = (
        tag("button", styles.key(name), name, value=name, **entry)
        for name in dict.fromkeys(row.series for row in rows)
    )
    text, heading = ("trial",), "The chart as a table"
    table = Table(tuple(names), tuple(rows), heading, collapsed=True, text=text).markup(styles)
    drawn = {"legend": joined(*legend), "figures": joined(*figures), "over": joined(*over)}
    return filled(resource(__package__, "chart.html"), title=title, table=table, **drawn)


# ---- samples -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A piece to look at and to listen to."""

    caption: str
    picture: Picture
    sound: bytes
    """The bytes of a complete file."""
    kind: str
    """The format of the sound: mp3, flac, ogg or wav."""
    series: str = ""
    """The series whose colour and mark it has; "" for none."""
    download: tuple[str, bytes] | None = None
    """A file to save, such as the MIDI of the music: its name and content."""

    def markup(self, styles: SeriesStyles, axes: Picture) -> Markup:
        """The sample with the browser's player; page.js shows its position in the picture."""
        download = Markup()
        if self.download is not None:
            file, written = self.download
            source = embedded("application/octet-stream", written)
            download = tag("a", f"Save as .{file.rpartition('.')[2]}", download=file, href=source)
        content = filled(
            resource(__package__, "sample.html"),
            caption=self.caption,
            key=styles.key(self.series),
            download=download,
            image=picture_image(self.picture, axes, styles.colour(self.series)),
            seconds=axes.seconds,
            source=embedded(MEDIA_TYPES[self.kind], self.sound),
        )
        return tag("figure", content, class_="sample", data_series=self.series or None)


@dataclass(frozen=True)
class Samples:
    """Samples, stacked for comparison."""

    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()

    def markup(self, styles: SeriesStyles) -> Markup:
        """All samples over the same axes; nothing if there are none."""
        if not self.samples:
            return Markup("")
        pictures = [sample.picture for sample in self.samples]
        axes = replace(
            pictures[0],
            seconds=max(picture.seconds for picture in pictures),
            bottom=min(picture.bottom for picture in pictures),
            top=max(picture.top for picture in pictures),
            ticks=dict(sorted(tick for picture in pictures for tick in picture.ticks.items())),
        )
        figures = (sample.markup(styles, axes) for sample in self.samples)
        return joined(tag("h3", "Samples"), notes(self.notes), *figures)


# ---- the whole -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """The provenance of something: names and values."""

    items: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...] = ()
    """Headings and long texts, such as a run's settings, collapsed until they are opened."""

    def markup(self, _: SeriesStyles) -> Markup:
        items = (joined(tag("dt", name), tag("dd", value)) for name, value in self.items)
        texts = [(head, "\n".join(map(escaped, text.split("\n")))) for head, text in self.details]
        details = (collapsed(heading, tag("pre", Markup(text))) for heading, text in texts)
        return joined(tag("dl", *items), *details)


Part = Table | Curves | Scatter | Samples | Facts


@dataclass(frozen=True)
class Section:
    """Parts that belong together, such as all those about one dataset."""

    heading: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    def markup(self, styles: SeriesStyles) -> Markup:
        parts = (part.markup(styles) for part in self.parts)
        return tag("section", tag("h2", self.heading), notes(self.notes), *parts)


@dataclass(frozen=True)
class Page:
    """A page; everything but its title can be empty."""

    title: str
    lead: tuple[str, ...] = ()
    """The opening paragraphs: the main results."""
    sections: tuple[Section, ...] = ()


def render(page: Page, *, live: bool = False) -> str:
    """The page as HTML, to be written as UTF-8; the same page gives the same text.

    A live page asks its server for changes.
    """
    styles = SeriesStyles()
    lead = (tag("p", text, class_="lead") for text in page.lead)
    body = [tag("header", tag("h1", page.title), *lead)]
    body += [section.markup(styles) for section in page.sections]
    script = Markup("".join(resource(__package__, name) for name in [*SCRIPTS, *LIVE[:live]]))
    return document(page.title, tag("main", *body), script, live=live)
