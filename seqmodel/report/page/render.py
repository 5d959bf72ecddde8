"""Rendering a page to HTML: one file with no external references."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from seqmodel.media.definitions import Box, Picture
from seqmodel.plots import shades_png
from seqmodel.report.page.charts import (
    Marks,
    curves_chart,
    definitions,
    linear,
    ruled,
    scatter_chart,
    stretched,
    trace_drawer,
)
from seqmodel.report.page.markup import (
    Markup,
    collapsed,
    common_style,
    document,
    embedded,
    escaped,
    heading,
    joined,
    notes,
    resource,
    scrolled,
    tag,
)
from seqmodel.report.page.parts import (
    Curves,
    Facts,
    Page,
    Part,
    Sample,
    Samples,
    Scatter,
    Section,
    Table,
    Trace,
)

MEDIA_TYPES = {"mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "wav": "audio/wav"}

GAP = 0.15
"""In units of time, left free after each box where boxes are separate objects."""

PLAY, PAUSE = "M-4-6l11 6-11 6z", "M-5-6h4v12h-4zM1-6h4v12h-4z"


def render(page: Page) -> str:
    """The page as HTML, to be written as UTF-8.

    The same page gives the same text; see `document` for what browsers may load and run.
    """
    marks, numbers = Marks(), count(1)
    lead = (tag("p", text, class_="lead") for text in page.lead)
    body = [tag("header", tag("h1", page.title), *lead)]
    body += [_section(section, marks, numbers) for section in page.sections]
    content = joined(definitions(), tag("main", *body))
    script = resource(__package__, "page.js")
    return document(page.title, content, style=common_style(), script=script)


def _section(section: Section, marks: Marks, numbers: Iterator[int]) -> Markup:
    parts = (_part(part, marks, numbers) for part in section.parts)
    return tag("section", tag("h2", section.heading), notes(section.notes), *parts)


def _part(part: Part, marks: Marks, numbers: Iterator[int]) -> Markup:
    match part:
        case Table():
            return _table(part, marks)
        case Curves():
            return curves_chart(part, marks, next(numbers))
        case Scatter():
            return scatter_chart(part, marks, next(numbers))
        case Samples():
            return _samples(part, marks)
        case Facts():
            return _facts(part)


def _facts(part: Facts) -> Markup:
    items = (joined(tag("dt", name), tag("dd", value)) for name, value in part.items)
    details = (collapsed(heading, tag("pre", _lines(text))) for heading, text in part.details)
    return joined(heading(part.heading), tag("dl", *items), *details)


def _lines(text: str) -> Markup:
    """The text, escaped except for its line breaks."""
    return Markup("\n".join(map(escaped, text.split("\n"))))


def _table(part: Table, marks: Marks) -> Markup:
    """A table below its heading, or hidden behind it if collapsed."""
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
    content = joined(scrolled(heads, rows, part.heading), notes(part.notes))
    if part.collapsed:
        return collapsed(part.heading, content)
    return joined(heading(part.heading), content)


def _with_deviation(text: str) -> Markup:
    """A cell's text; a standard deviation goes below its mean."""
    mean, sign, deviation = text.partition(" ± ")
    if not sign:
        return escaped(text)
    return joined(mean, " ", tag("span", f"± {deviation}", class_="deviation"))


def _samples(part: Samples, marks: Marks) -> Markup:
    """All samples, one below another, over the same seconds and between the same heights."""
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
    return joined(heading(part.heading), notes(part.notes), *figures)


def _sample(sample: Sample, axes: Picture, marks: Marks) -> Markup:
    """A sample with the browser's own player, which page.js replaces with the picture's."""
    name, picture = sample.caption, sample.picture
    icon = tag(
        "svg",
        tag("path", class_="play", d=PLAY),
        tag("path", class_="pause", d=PAUSE),
        viewBox="-10 -10 20 20",
        aria_hidden="true",
    )
    button = tag("button", icon, type="button", hidden=True, aria_label=f"Play {name}")
    key, download = marks.key(sample.series), Markup()
    if sample.download is not None:
        file, content = sample.download
        source = embedded("application/octet-stream", content)
        download = tag("a", f"Save as .{file.rpartition('.')[2]}", download=file, href=source)
    scale = {"min": "0", "max": f"{picture.seconds:.3f}", "step": "0.01", "value": "0"}
    seek = tag("input", type="range", hidden=True, aria_label=f"Position in {name}", **scale)
    cursor, whole = tag("span", class_="cursor", hidden=True), f"{axes.seconds:.3f}"
    source = embedded(MEDIA_TYPES[sample.kind], sample.sound)
    return tag(
        "figure",
        tag("figcaption", button, key, tag("span", name), download),
        tag("div", _drawing(picture, axes), cursor, seek, class_="picture", data_seconds=whole),
        tag("audio", controls=True, preload="none", src=source, aria_label=name),
        class_=f"sample {marks.colour(sample.series)}".strip(),
    )


def _drawing(picture: Picture, axes: Picture) -> Markup:
    """The picture as an SVG of any width, with the seconds, levels and heights of `axes`."""
    height = axes.top - axes.bottom
    parts = ruled(
        [(value / axes.seconds, f"{text} s") for value, text in linear(0, axes.seconds).ticks],
        [((axes.top - level.y) / height, level.name) for level in axes.levels],
    )
    drawn = [tag("path", class_="boxes", d=_boxes(picture, picture.boxes, axes.top))]
    if picture.given:
        given = _boxes(picture, picture.given, axes.top)
        drawn.append(tag("path", class_="boxes given", d=given))
    if picture.shades is not None:
        source = embedded("image/png", shades_png(*picture.shades))
        size = {"width": f"{picture.shades.columns}", "height": f"{picture.top - picture.bottom:g}"}
        size["y"] = f"{axes.top - picture.top:g}"
        image = tag("image", class_="shades", href=source, preserveAspectRatio="none", **size)
        drawn.append(image)
    width = picture.width * axes.seconds / picture.seconds
    parts.append(stretched(drawn, f"0 0 {width:g} {height:g}"))
    return tag("svg", *parts, class_="drawing", role="img", aria_label=picture.summary)


def _boxes(picture: Picture, boxes: tuple[Box, ...], top: float) -> str:
    """Boxes as one path, each M x y h width v height h -width z from its upper left corner."""
    gap = GAP if picture.apart else 0.0
    written = []
    for box in boxes:
        width, y = box.width - gap, top - box.y - box.height
        written.append(f"M{box.x:g} {y:.5g}h{width:g}v{box.height:.5g}h{-width:g}z")
    return "".join(written)
