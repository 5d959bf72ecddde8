"""Samples: a picture over time and its sound, both embedded."""

from base64 import b64encode
from dataclasses import replace

from seqmodel.media.definitions import Box, Picture
from seqmodel.plots import shades_png
from seqmodel.report.page.marks import Marks
from seqmodel.report.page.markup import Markup, joined, tag
from seqmodel.report.page.parts import Sample, Samples
from seqmodel.report.page.scales import linear
from seqmodel.report.page.svg import ruled, stretched
from seqmodel.report.page.tables import heading, notes

MEDIA_TYPES = {"mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "wav": "audio/wav"}

GAP = 0.15
"""In units of time, left free after each box where boxes are separate objects."""

PLAY, PAUSE = "M-4-6l11 6-11 6z", "M-5-6h4v12h-4zM1-6h4v12h-4z"


def samples(part: Samples, marks: Marks) -> Markup:
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
    key = marks.key(sample.series) if sample.series else ""
    colour = marks.colour(sample.series) if sample.series else ""
    icon = tag(
        "svg",
        tag("path", class_="play", d=PLAY),
        tag("path", class_="pause", d=PAUSE),
        viewBox="-10 -10 20 20",
        aria_hidden="true",
    )
    button = tag("button", icon, type="button", hidden=True, aria_label=f"Play {name}")
    scale = {"min": "0", "max": f"{picture.seconds:.3f}", "step": "0.01", "value": "0"}
    seek = tag("input", type="range", hidden=True, aria_label=f"Position in {name}", **scale)
    cursor = tag("span", class_="cursor", hidden=True)
    source = _embedded(MEDIA_TYPES[sample.kind], sample.sound)
    sound = tag("audio", controls=True, preload="none", src=source, aria_label=name)
    above = tag("figcaption", button, key, tag("span", name), _download(sample))
    drawing, whole = _drawing(picture, axes), f"{axes.seconds:.3f}"
    shown = tag("div", drawing, cursor, seek, class_="picture", data_seconds=whole)
    return tag("figure", above, shown, sound, class_=f"sample {colour}".strip())


def _embedded(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode('ascii')}"


def _download(sample: Sample) -> Markup:
    if sample.download is None:
        return Markup()
    name, content = sample.download
    source = _embedded("application/octet-stream", content)
    return tag("a", f"Save as .{name.rpartition('.')[2]}", download=name, href=source)


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
        source = _embedded("image/png", shades_png(*picture.shades))
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
