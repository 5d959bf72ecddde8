"""Pages, read back with html.parser: what was given is shown, and nothing is external."""

import base64
import hashlib
import re
from dataclasses import replace
from io import BytesIO

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import boxes, drawing, read, rows

from seqmodel.media.samples import Picture
from seqmodel.report.page import charts
from seqmodel.report.page.parts import (
    MAIN_COLUMNS,
    Curve,
    Curves,
    Dot,
    Facts,
    Page,
    Row,
    Sample,
    Samples,
    Scatter,
    Section,
    Table,
    render,
)


def curve(name, valid, *, family="", pace=8.5):
    lines = (
        (k, 25 * k, pace + 2 * (k - 1), nats - 0.5 / k, nats) for k, nats in enumerate(valid, 1)
    )
    metrics = [dict(zip(MAIN_COLUMNS, line, strict=True)) for line in lines]
    return Curve(name, metrics, int(np.argmin(valid)) + 1, family)


PICTURE = Picture(
    seconds=2.5,
    width=10,
    bottom=57.5,
    top=66.5,
    boxes=((0, 59.5, 2, 1), (2, 59.5, 3, 1), (1, 63.5, 9, 1)),
    ticks={60: "C4"},
    summary="three notes",
)
PICTURES = (PICTURE, replace(PICTURE, heatmap=np.array([[0], [255]], np.uint8)))
SAMPLE = Sample(
    *("gru: 10 frames", PICTURE, b"\xff\xfe// no real sound //", "mp3", "gru"),
    download=("gru.mid", b"MThd // no real notes //"),
)
CURVES = Curves((curve("gru", [3.0, 2.5, 2.25, 2.3]), curve("lstm", [3.5, 2.0, 1.75], pace=20)))
SCATTER = Scatter((Dot("gru", 6.2e-6, 4.0, "draw 1"), Dot("tanh", 1e-4, 2.25, "draw 1")))
TABLE = Table(
    ("run", "valid"),
    (Row(("lstm", "1.75"), frozenset({1}), "of 36", "lstm"), Row(("repeat", "4.4"), muted=True)),
    "Figures",
)


def page(*parts, **rest):
    return Page("A page", sections=(Section("All", parts),), **rest)


def shown(*parts):
    return read(render(page(*parts)))


# ---- text ---------------------------------------------------------------------------------------

TEXT = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["<script>alert(1)</script>", "</title>", '" onload="x', "&amp;", "a\x1b[31m\nb", "\udcff", "'"]
)


def visible(text):
    """The text, with unprintable characters escaped as in Python."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


EVERYTHING = (
    *(replace(TABLE, notes=("n",)), CURVES, SCATTER),
    Samples(tuple(replace(SAMPLE, picture=picture) for picture in PICTURES)),
)
FACTS = Facts((("a", "b"),), (("c", "d"),))
KNOWN = read(render(page(*EVERYTHING, FACTS, lead=("l",)))).all()


@settings(max_examples=20, deadline=None)
@given(TEXT, TEXT, TEXT)
def test_every_text_is_shown_verbatim(a, b, c):
    """Guards against a name that becomes markup, or hides control characters, in any place."""
    parts = (
        Table((a, b), (Row((c, a), detail=b, series=c),), b, (c,)),
        Curves((curve(a, [2.0, 1.0], family=b),)),
        Scatter((Dot(b, 0.1, 1.0, c),)),
        Samples((replace(SAMPLE, caption=a, series=b, download=(c, b"")),), (b,)),
        Facts(((a, b),), ((c, a),)),
    )
    with pytest.MonkeyPatch.context() as patch:  # a drawing takes a tenth of a second
        patch.setattr(charts, "svg_text", lambda figure: "<svg></svg>")
        written = render(Page(a, (b, c), (Section(b, parts, (c,)),)))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", written)
    tree = read(written)
    assert {e.name for e in tree.all()} <= {e.name for e in KNOWN}
    attributes = {name for e in tree.all() for name in e.attributes}
    assert attributes <= {name for e in KNOWN for name in e.attributes}
    a, b, c = visible(a), visible(b), visible(c)
    assert tree.one("title").text == tree.one("h1").text == a
    assert [p.text for p in tree.all("p", "lead")] == [b, c]
    assert tree.one("h2").text == b
    assert [p.text for p in tree.all("p", "note")] == [c, c, b]
    figures, points, dots = map(rows, tree.all("table"))
    assert figures == [[a, b], [f"{c}|{b}" if b else c, a]]
    assert [row[0] for row in points[1:]] == [a, a]
    assert dots[1:] == [[b, c, "0.1", "1.0000"]]
    assert tree.one("figcaption").one("span").text == a
    assert tree.one("audio").attributes["aria-label"] == a
    assert [part.text for part in tree.all("dl")[-1].all()] == [a, b]
    assert tree.all("summary")[-1].text == c


# ---- nothing from outside -----------------------------------------------------------------------


def test_a_page_is_self_contained_and_always_the_same():
    """Guards against a reference to anything outside, and scripts other than the page's own."""
    written = render(page(*EVERYTHING))
    assert render(page(*EVERYTHING)) == written
    outside = re.sub(r'"data:(audio/mpeg;base64|image/svg.xml),[^"]*"', "", written)
    assert len(outside) < len(written)
    assert "//" not in outside
    assert not re.search(r"https?:|url\(|@import|fetch|XMLHttp|import\(", outside)
    tree = read(written)
    for element in tree.all():
        for name in ("src", "href", "srcset", "action", "data", "poster", "style"):
            value = element.attributes.get(name, "#")
            assert value.startswith(("#", "data:")), (element.name, name, value)
        assert not [name for name in element.attributes if name.startswith("on")]
    policy = next(m.attributes for m in tree.all("meta") if "http-equiv" in m.attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy["content"].split(";"))
    for kind in ("script", "style"):
        digest = hashlib.sha256(tree.one(kind).text.encode()).digest()
        assert rules[f"{kind}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert rules["default-src"] == "'none'"
    assert rules["media-src"] == rules["img-src"] == "data:"


# ---- charts -------------------------------------------------------------------------------------


def test_the_table_of_a_chart_has_every_point():
    """With whatever else was measured, each in a column, and a choice of the chart."""
    first, *rest = CURVES.curves
    more = {"frames_per_second": 1_234_567}
    rated = [{**line, "learning_rate": 0.05 / line["epoch"], **more} for line in first.metrics]
    tree = shown(replace(CURVES, curves=(replace(first, metrics=rated), *rest)), SCATTER)
    curves, dots = map(rows, tree.all("table"))
    names = ["run", "epoch", "updates", "seconds", "train", "valid", "learning rate"]
    names.append("frames per second")
    assert curves[0] == names
    assert [row[0] for row in curves[1:]] == ["gru"] * 4 + ["lstm"] * 3
    assert curves[2] == ["gru", "2", "50", "19.0", "2.2500", "2.5000", "0.025", "1,234,567"]
    assert curves[3][:6] == ["gru", "3 (best)", "75", "31.5", "2.0833", "2.2500"]
    assert curves[5] == ["lstm", "1", "25", "20.0", "3.0000", "3.5000", "", ""]
    assert dots[1] == ["gru", "draw 1", "6.2e-06", "4.0000"]
    choices = [[option.text for option in select.all("option")] for select in tree.all("select")]
    assert choices[0] == ["nats per frame: valid, and train dashed", *names[-2:]]
    over = ["updates", "seconds of training"]
    assert choices[1:] == [over, ["best valid, nats per frame"], ["learning rate"]]
    first = shown(replace(CURVES, train=False)).all("select")[0]
    names = [f"nats per frame on {split}" for split in ("valid", "train")]
    assert [option.text for option in first.all("option")] == names


def test_steep_first_epochs_are_cut_off_with_a_note():
    """Guards against a chart whose first epoch leaves no room for all others."""
    figures = [90.0, 4.0, 3.0, 2.5, 2.2, 2.1, 2.05, 2.0, 1.99, 1.98]
    tree = shown(Curves((curve("gru", figures),)))
    assert [note.text for note in tree.all("p", "note")] == [
        "The first epochs are off the chart, up to 90.0000."
    ]
    nats = tree.one("select", "of").all("option")[0].attributes
    assert float(nats["data-most"]) < 10


ONE = "One epoch makes no curve."


@pytest.mark.parametrize(
    ("epochs", "remark"),
    [((1,), ONE), ((1, 1), ONE), ((1, 2), None), ((0, 1), ONE), ((0,), "No complete epoch yet.")],
)
def test_one_epoch_makes_no_chart(epochs, remark):
    """Guards against a chart of a single dot; beside a curve it is shown."""
    curves = tuple(
        replace(curve(f"run {k}", [3.0] * 2), metrics=curve("", [3.0] * 2).metrics[:count])
        for k, count in enumerate(epochs)
    )
    tree = shown(Curves(curves))
    assert len(tree.all("figure")) == (remark is None)
    said = [note.text for note in tree.all("p", "note")]
    assert said == ([] if remark is None else [remark])


def test_without_a_point_there_is_no_chart():
    tree = shown(Scatter(()))
    assert (len(tree.all("figure")), len(tree.all("p", "note"))) == (0, 1)


# ---- samples ------------------------------------------------------------------------------------


def test_a_sample_holds_its_sound_and_its_boxes():
    """Guards against changed bytes, and boxes that are not where their notes are."""
    given = replace(PICTURE, boxes=PICTURE.boxes[:1], given=PICTURE.boxes[1:])
    figure = shown(Samples((replace(SAMPLE, picture=given),))).one("figure")
    head, _, data = figure.one("audio").attributes["src"].partition(",")
    assert head == "data:audio/mpeg;base64"
    assert base64.b64decode(data) == SAMPLE.sound
    link = figure.one("a")
    assert (link.text, link.attributes["download"]) == ("Save as .mid", "gru.mid")
    file = link.attributes["href"].partition("base64,")[2]
    assert base64.b64decode(file) == SAMPLE.download[1]
    image = figure.one("img")
    drawn = boxes(image) + boxes(image, "given")
    told = [(x / 10, (y - 57.5) / 9, wide / 10, high / 9) for x, y, wide, high in PICTURE.boxes]
    np.testing.assert_allclose(drawn, told, atol=1e-5)
    assert image.attributes["alt"] == "three notes"


def test_pictures_side_by_side_share_their_axes():
    """Guards against a short piece as wide as a long one, and octaves of different heights."""
    higher = replace(PICTURE, seconds=10.0, width=20, top=78.5, ticks={60: "C4", 72: "C5"})
    tree = shown(Samples(tuple(replace(SAMPLE, picture=p) for p in (PICTURE, higher))))
    for figure, share in zip(tree.all("figure", "sample"), (2.5 / 10, 10 / 20), strict=True):
        box = boxes(figure.one("img"))[0]
        assert box == pytest.approx((0, 2 / 21, 2 / 10 * share, 1 / 21), abs=1e-5)
        assert figure.one("div", "time").attributes["data-seconds"] == "10.0"
        levels = [text.text for text in drawing(figure.one("img")).all("text")]
        assert {"C4", "C5"} < set(levels)


def test_shades_fill_the_picture():
    """Checks the pixels of the image, decoded: transparent where it is quiet, black where loud."""
    cells = np.array([[0, 100, 255], [30, 60, 90]], np.uint8)
    picture = replace(PICTURE, width=3, heatmap=cells, boxes=())
    svg = drawing(shown(Samples((replace(SAMPLE, picture=picture),))).one("img"))
    head, _, data = svg.one("image").attributes["xlink:href"].partition(",")
    assert head == "data:image/png;base64"
    pixels = matplotlib.image.imread(BytesIO(base64.b64decode(data)), format="png")
    assert (pixels[:, :, :3] == 0).all()
    np.testing.assert_allclose(255 * pixels[:, :, 3], cells, atol=8)


# ---- tables -------------------------------------------------------------------------------------


def test_a_table_has_headers_emphasis_and_marks():
    """Checks what a screen reader needs of a table, which may be behind its heading."""
    table = shown(TABLE).one("table")
    assert [(c.text, c.attributes["scope"]) for c in table.all("th")] == [
        *(("run", "col"), ("valid", "col"), ("lstmof 36", "row"), ("repeat", "row"))
    ]
    assert [s.text for s in table.all("strong")] == ["1.75"]
    assert [row.classes for row in table.all("tr")] == [set(), set(), {"muted"}]
    region = shown(TABLE).one("div", "scroll").attributes
    assert (region["role"], region["tabindex"], region["aria-label"]) == ("group", "0", "Figures")
    details = shown(replace(TABLE, collapsed=True)).one("details")
    assert details.one("summary").text == "Figures"
    assert "open" not in details.attributes
