"""Rendering a page to HTML: one file with no external references."""

from collections.abc import Sequence
from dataclasses import replace

from seqmodel.media.picture import Picture
from seqmodel.media.words import spaced
from seqmodel.report.page.charts import (
    TIME_UNITS,
    Marks,
    cut_off,
    picture_image,
    trace_drawer,
    worst_cut_off,
)
from seqmodel.report.page.markup import (
    Markup,
    collapsed,
    common_style,
    document,
    embedded,
    escaped,
    joined,
    notes,
    resource,
    scrolled,
    tag,
)
from seqmodel.report.page.parts import (
    Column,
    Curves,
    Facts,
    Page,
    Part,
    Row,
    Sample,
    Samples,
    Scatter,
    Table,
    Trace,
)

MEDIA_TYPES = {"mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "wav": "audio/wav"}

SCRIPTS, LIVE = ("tables.js", "charts.js", "page.js"), ("live.js",)
TRAIN, VALID = 4, 5
"""The columns of nats per frame in a table of curves."""
SHOWN = "epoch", "updates", "seconds", "train_nats_per_frame", "valid_nats_per_frame"
"""What stands in the columns before any others."""


def render(page: Page, *, live: bool = False) -> str:
    """The page as HTML, to be written as UTF-8; the same page gives the same text.

    If it is live, it asks where it came from for what has changed.
    """
    marks = Marks()
    lead = (tag("p", text, class_="lead") for text in page.lead)
    body = [tag("header", tag("h1", page.title), *lead)]
    for section in page.sections:
        parts = (_part(part, marks) for part in section.parts)
        body.append(tag("section", tag("h2", section.heading), notes(section.notes), *parts))
    script = Markup("".join(resource(__package__, name) for name in [*SCRIPTS, *LIVE[:live]]))
    return document(page.title, tag("main", *body), style=common_style(), script=script, live=live)


def _part(part: Part, marks: Marks) -> Markup:
    match part:
        case Table():
            return _table(part, marks)
        case Curves():
            return _curves(part, marks)
        case Scatter():
            return _scatter(part, marks)
        case Samples():
            return _samples(part, marks)
        case Facts():
            return _facts(part)


def _facts(part: Facts) -> Markup:
    items = (joined(tag("dt", name), tag("dd", value)) for name, value in part.items)
    details = (collapsed(heading, tag("pre", _lines(text))) for heading, text in part.details)
    return joined(tag("dl", *items), *details)


def _lines(text: str) -> Markup:
    return Markup("\n".join(map(escaped, text.split("\n"))))


def _table(part: Table, marks: Marks) -> Markup:
    kinds = [None, *(None if column.is_text else "number" for column in part.columns[1:])]
    draw = trace_drawer(cell for row in part.rows for cell in row.cells if isinstance(cell, Trace))
    rows = []
    for row in part.rows:
        colour, cells = marks.colour(row.series), list[Markup]()
        for k, (cell, kind) in enumerate(zip(row.cells, kinds, strict=True)):
            text = draw(cell, colour) if isinstance(cell, Trace) else _with_deviation(cell)
            text = tag("strong", text) if k in row.strong else text
            cells.append(tag("td", text, class_=kind) if k else text)
        detail = tag("small", row.detail) if row.detail else ""
        first = tag("th", marks.key(row.series), cells[0], detail, scope="row")
        muted = "muted" if row.muted else None
        rows.append(tag("tr", first, *cells[1:], class_=muted, data_series=row.series or None))
    heads = (
        tag("th", column.name, scope="col", class_=kind)
        for column, kind in zip(part.columns, kinds, strict=True)
    )
    whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    content = joined(scrolled(whole, part.heading), notes(part.notes))
    if part.collapsed:
        return collapsed(part.heading, content)
    return joined(tag("h3", part.heading) if part.heading else "", content)


def _with_deviation(text: str) -> Markup:
    """A cell's text; a standard deviation goes below its mean."""
    mean, sign, deviation = text.partition(" ± ")
    if not sign:
        return escaped(text)
    return joined(mean, " ", tag("span", f"± {deviation}", class_="deviation"))


# ---- charts --------------------------------------------------------------------------------------


def _curves(part: Curves, marks: Marks) -> Markup:
    curves = tuple(curve for curve in part.curves if curve.metrics)
    title = "Learning curves"
    if all(len(curve.metrics) == 1 for curve in curves):
        only = "One epoch makes no curve." if curves else "No complete epoch yet."
        return joined(tag("h3", title), notes([only]))
    longest = max(curve.seconds()[-1] for curve in curves)
    unit, time = next((s, name) for most, s, name in TIME_UNITS if longest < most)
    more = dict.fromkeys(
        name for curve in curves for line in curve.metrics for name in line if name not in SHOWN
    )
    names = ("run", "epoch", "updates", time, "train", "valid", *map(spaced, more))
    rows = [
        Row(
            (
                curve.name,
                f"{line['epoch']}" + " (best)" * (line["epoch"] == curve.best),
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
    kinds = {"valid": VALID, "train": TRAIN}
    both = "nats per frame: valid, and train dashed"
    nats = (
        {both: f"{VALID} {TRAIN}"}
        if part.train
        else {f"nats per frame on {kind}": str(column) for kind, column in kinds.items()}
    )
    shown = [
        curve.figures(kind) for curve in curves for kind in kinds if part.train or kind == "valid"
    ]
    most, remarks = cut_off(shown)
    figures = [_option(name, columns, most=most) for name, columns in nats.items()]
    figures += [_option(name, column) for column, name in enumerate(names[VALID + 1 :], VALID + 1)]
    over = [_option(name, column) for column, name in ((2, "updates"), (3, f"{time} of training"))]
    chart = _chart(title, names, rows, marks, over=over, figures=figures)
    return joined(chart, notes(remarks))


def _figure(value: float) -> str:
    """Whole numbers in full; charts are drawn from what is written."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _scatter(part: Scatter, marks: Marks) -> Markup:
    title, names = "Learning rates", ("run", "trial", "learning rate", "best valid, nats per frame")
    rows = [
        Row((cloud.name, dot.label, f"{dot.rate:.4g}", f"{dot.nats:.4f}"), series=cloud.name)
        for cloud in part.clouds
        for dot in cloud.points
    ]
    if not rows:
        return joined(tag("h3", title), notes(["No points to show."]))
    most = worst_cut_off([dot.nats for cloud in part.clouds for dot in cloud.points])
    figures, over = [_option(names[3], 3, most=most, dots=True)], [_option(names[2], 2, log=True)]
    return _chart(title, names, rows, marks, over=over, figures=figures)


def _option(text: str, column: int | str, **data: float | bool | None) -> Markup:
    """A choice of what to draw: its columns, and what charts.js should know of them."""
    known = {f"data_{name}": value for name, value in data.items()}
    return tag("option", text, value=column, **known)


def _chart(
    title: str,
    names: Sequence[str],
    rows: Sequence[Row],
    marks: Marks,
    *,
    over: Sequence[Markup],
    figures: Sequence[Markup],
) -> Markup:
    """A chart with its legend, and the table that it is drawn from, whose columns have these names.

    It shows one of the `figures` over one of `over`, which are options.
    """
    series = dict.fromkeys(row.series for row in rows)
    legend = (
        tag(
            "button",
            marks.key(name),
            name,
            class_="entry",
            type="button",
            value=name,
            aria_pressed="true",
        )
        for name in series
    )
    smooth = {"min": 0, "max": 0.95, "step": 0.05, "value": 0}
    options = (
        tag("label", "Figure ", tag("select", *figures, class_="of", autocomplete="off")),
        tag("label", "over ", tag("select", *over, class_="over", autocomplete="off")),
        tag("label", tag("input", type="checkbox", class_="log", autocomplete="off"), " log axes"),
        tag(
            "label",
            "smooth ",
            tag("input", type="range", class_="smooth", autocomplete="off", **smooth),
        ),
    )
    columns = tuple(Column(name, is_text=name == "trial") for name in names)
    table = Table(columns, tuple(rows), "The chart as a table", collapsed=True)
    figure = tag(
        "figure",
        tag("div", *legend, class_="legend"),
        tag("div", *options, class_="options"),
        tag("div", class_="plot"),
        _table(table, marks),
        class_="chart",
    )
    return joined(tag("h3", title), figure)


# ---- samples -------------------------------------------------------------------------------------


def _samples(part: Samples, marks: Marks) -> Markup:
    if not part.samples:
        return Markup()
    pictures = [sample.picture for sample in part.samples]
    axes = replace(
        pictures[0],
        seconds=max(picture.seconds for picture in pictures),
        bottom=min(picture.bottom for picture in pictures),
        top=max(picture.top for picture in pictures),
        levels=tuple(sorted({level for picture in pictures for level in picture.levels})),
    )
    figures = (_sample(sample, axes, marks) for sample in part.samples)
    return joined(tag("h3", "Samples"), notes(part.notes), *figures)


def _sample(sample: Sample, axes: Picture, marks: Marks) -> Markup:
    """A sample with the browser's own player; page.js shows in the picture where it is."""
    name, download = sample.caption, Markup()
    if sample.download is not None:
        file, content = sample.download
        source = embedded("application/octet-stream", content)
        download = tag("a", f"Save as .{file.rpartition('.')[2]}", download=file, href=source)
    image = picture_image(sample.picture, axes, marks.colour(sample.series))
    time = tag("div", tag("span", class_="cursor"), class_="time", data_seconds=axes.seconds)
    source = embedded(MEDIA_TYPES[sample.kind], sample.sound)
    return tag(
        "figure",
        tag("figcaption", marks.key(sample.series), tag("span", name), download),
        scrolled(tag("div", image, time, class_="picture"), f"Picture of {name}"),
        tag("audio", controls=True, preload="metadata", src=source, aria_label=name),
        class_="sample",
        data_series=sample.series or None,
    )
