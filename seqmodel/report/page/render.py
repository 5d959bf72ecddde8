"""Rendering a page to HTML: one file with no external references."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from seqmodel.media.picture import Picture
from seqmodel.report.page.charts import (
    Marks,
    curves_image,
    picture_image,
    scatter_image,
    trace_drawer,
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


def render(page: Page) -> str:
    """The page as HTML, to be written as UTF-8; the same page gives the same text."""
    marks = Marks()
    lead = (tag("p", text, class_="lead") for text in page.lead)
    body = [tag("header", tag("h1", page.title), *lead)]
    for section in page.sections:
        parts = (_part(part, marks) for part in section.parts)
        body.append(tag("section", tag("h2", section.heading), notes(section.notes), *parts))
    script = resource(__package__, "page.js")
    return document(page.title, tag("main", *body), style=common_style(), script=script)


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
        rows.append(tag("tr", first, *cells[1:], class_="muted" if row.muted else None))
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
    title, names = "Learning curves", ("run", "epoch", "updates", "seconds", "train", "valid")
    if all(len(curve.metrics) == 1 for curve in curves):
        only = "One epoch makes no curve." if curves else "No complete epoch yet."
        return joined(tag("h3", title), notes([only]))
    rows = [
        Row(
            (
                curve.name,
                f"{line['epoch']}" + " (best)" * (line["epoch"] == curve.best),
                f"{line['updates']:,}",
                f"{seconds:,.1f}",
                f"{line['train_nats_per_frame']:.4f}",
                f"{line['valid_nats_per_frame']:.4f}",
            ),
            series=curve.family or curve.name,
        )
        for curve in curves
        for line, seconds in zip(curve.metrics, curve.seconds(), strict=True)
    ]
    image, remarks = curves_image(replace(part, curves=curves), marks)
    return joined(_chart(title, image, names, rows, marks), notes(remarks))


def _scatter(part: Scatter, marks: Marks) -> Markup:
    title, names = "Learning rates", ("run", "learning rate", "best valid, nats per frame")
    rows = [
        Row((f"{cloud.name}, {dot.label}", f"{dot.rate:.4g}", f"{dot.nats:.4f}"), series=cloud.name)
        for cloud in part.clouds
        for dot in cloud.points
    ]
    if not rows:
        return joined(tag("h3", title), notes(["No points to show."]))
    return _chart(title, scatter_image(part, marks), names, rows, marks)


def _chart(
    title: str, image: Markup, names: Iterable[str], rows: Sequence[Row], marks: Marks
) -> Markup:
    """A chart with its legend, and a table of its points, whose columns have these names."""
    series = dict.fromkeys(row.series for row in rows)
    legend = (tag("span", marks.key(name), name, class_="entry") for name in series)
    figure = tag(
        "figure",
        tag("div", *legend, class_="legend"),
        scrolled(image, title),
        class_="chart",
    )
    columns = tuple(map(Column, names))
    table = Table(columns, tuple(rows), "The chart as a table", collapsed=True)
    return joined(tag("h3", title), figure, _table(table, marks))


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
    )
