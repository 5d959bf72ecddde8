"""A page in a real browser: drawing, sound, phone screens."""

import json
import shutil
from dataclasses import replace
from io import BytesIO
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from seqmodel.experiment.jobs import Worker
from seqmodel.experiment.output import write_results
from seqmodel.experiment.plan import Plan, default_space, sources_of, variants_of
from seqmodel.experiment.studies import Studies, open_storage
from seqmodel.files import write_file
from seqmodel.media.samples import Picture
from seqmodel.media.sound import write_sound
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
from seqmodel.report.run_page import UNKNOWN
from seqmodel.report.watching import make_server

SECONDS, RATE = 3.0, 44_100


def sound(kind):
    file, t = BytesIO(), np.arange(round(SECONDS * RATE)) / RATE
    write_sound(kind, file, [0.1 * np.sin(2 * np.pi * 440 * t).astype(np.float32)], RATE, len(t))
    return file.getvalue()


def curve(name, pace):
    lines = ((k, 10 * k, pace, 2 + 1 / k, 2.2 + 1 / k) for k in range(1, 11))
    return Curve(name, [dict(zip(MAIN_COLUMNS, line, strict=True)) for line in lines], 10)


def sample(name, kind):
    boxes = [(k, 60 + k % 7, 1, 1) for k in range(24)]
    shades = np.arange(0, 240, 40, np.uint8).reshape(3, 2) if kind == "flac" else None
    picture = Picture(SECONDS, 24, 58, 70, boxes, {60: "C4"}, "a scale", shades)
    return Sample(name, picture, sound(kind), kind, name)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """One of everything, with very long texts."""
    columns = ("run", *"abcdefghij", "a name " * 5)
    table = Table(columns, (Row(("x" * 80, *["1,234.5678"] * 11)),), "Figures")
    dots = Dot("gru", 1e-4, 3.0), Dot("gru", 1e-3, 2.0), Dot("lstm", 3e-4, 2.5)
    parts = (table, Curves((curve("gru", 2), curve("lstm", 5))), Scatter(dots))
    parts += Samples((sample("gru", "mp3"), sample("lstm", "flac"))), Facts((("a", "b" * 200),))
    path = tmp_path_factory.mktemp("page") / "a page.html"
    path.write_text(render(Page("t" * 100, ("l" * 200,), (Section("s" * 90, parts),))), "utf-8")
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory, dataset):
    """The page of a comparison: two units, two trials of each, two seeds of each winner."""
    folder = tmp_path_factory.mktemp("experiment")
    settings = {"model": "frame-wise", "hidden": 4, "epochs": 3, "batch_size": 4}
    space = default_space("paper", paper=False)
    sources, variants = sources_of([dataset.folder]), variants_of(["tanh", "gru"], [])
    plan = Plan(sources, variants, settings, "paper", 2, 2, space)
    studies = Studies.begin(open_storage(folder, None), "e", plan)
    Worker(studies, folder).work()
    write_results(studies, folder, "seqmodel compare tiny")
    return folder / "report.html"


pytestmark = pytest.mark.usefixtures("silent_console")


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_is_drawn_and_loads_nothing_else(chrome, page, dark):
    """Guards against styles or a script that the page's policy blocks, and black on black."""
    chrome.open(page, dark=dark)
    assert chrome.run("document.querySelector('main').getBoundingClientRect().width") <= 1200
    sizes = "[...document.images].map((e) => [e.complete, e.naturalWidth > 100, e.clientHeight])"
    assert all(done and drawn and high > 100 for done, drawn, high in chrome.run(sizes))
    assert chrome.run("document.images.length") == 2
    assert chrome.run("document.querySelector('.key text').getBoundingClientRect().width") > 5
    loaded = "performance.getEntriesByType('resource').map((e) => e.name)"
    assert [name for name in chrome.run(loaded) if not name.startswith("data:")] == []
    for part in (".key", ".plot > svg", ".picture img"):
        found = chrome.run(f"getComputedStyle(document.querySelector('{part}')).filter")
        assert found.startswith("invert(1)") is dark, part


AUDIO = "document.querySelectorAll('audio')"


@pytest.mark.parametrize("number", [0, 1])
def test_a_click_on_a_picture_plays_from_there(chrome, page, number):
    """One at a time, mp3 and flac; the cursor and the place clicked are where that second is."""
    chrome.open(page)
    assert chrome.run(f"[...{AUDIO}].every((audio) => audio.paused)")
    chrome.run(f"{AUDIO}.forEach((audio) => {{ audio.playbackRate = 0.1; }})")  # not over too soon
    figure = f":nth-child({number + 1} of .sample)"
    chrome.click(f":nth-child({2 - number} of .sample) .time", 0.1)
    chrome.click(f"{figure} .time", 0.5)
    chrome.wait(f"{AUDIO}[{number}].currentTime > 1.55")
    assert chrome.run(f"{AUDIO}[{number}].duration") == pytest.approx(SECONDS, abs=0.1)
    assert chrome.run(f"[...{AUDIO}].map((audio) => audio.paused)") == [number == 1, number == 0]
    chrome.run(f"{AUDIO}[{number}].pause()")
    chrome.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    share = chrome.run(f"parseFloat(document.querySelector('{figure} .cursor').style.left)") / 100
    at = chrome.run(f"{AUDIO}[{number}].currentTime")
    assert share == pytest.approx(at / SECONDS, abs=0.02)


# ---- charts and tables -------------------------------------------------------------------------

POINTS = """[...document.querySelectorAll('.plot polyline')].map((line) => [
  line.getAttribute('stroke'), line.getAttribute('stroke-dasharray') !== null,
  [...line.points].map((point) => [point.x, point.y])])"""
CHOOSE = """((part, value) => { const input = document.querySelector(part);
  input.checked = value; if (value !== true) input.value = value;
  input.dispatchEvent(new Event('input', { bubbles: true })); })"""


def on_one_scale(drawn, told):
    """Checks that all the points of lines are where their figures are, but for a scale."""
    assert [len(points) for *_, points in drawn] == [len(line) for line in told]
    places = np.concatenate([points for *_, points in drawn])
    for at, figures in zip(places.T, np.concatenate(told).T, strict=True):
        scale = np.polyfit(at, figures, 1)
        np.testing.assert_allclose(np.polyval(scale, at), figures, atol=1e-3 * np.ptp(figures))


def test_lines_are_where_their_figures_are(chrome, tmp_path):
    """Over updates and time, smooth, in logarithms, of other figures, of a table that is sorted."""
    curves = tuple(
        replace(one, metrics=[{**line, "rate": k / line["epoch"]} for line in one.metrics])
        for k, one in enumerate((curve("gru", 2), curve("lstm", 5)), 1)
    )
    path = tmp_path / "page.html"
    path.write_text(render(Page("t", sections=(Section("s", (Curves(curves),)),))), "utf-8")
    chrome.open(path)
    chrome.wait("document.querySelector('.plot svg')")
    updates = [[line["updates"] for line in one.metrics] for one in curves for _ in "vt"]
    seconds = [one.seconds() for one in curves for _ in "vt"]
    nats = [one.figures(kind) for one in curves for kind in ("valid", "train")]
    drawn = chrome.run(POINTS)
    assert [dashed for _, dashed, _ in drawn] == [False, True] * 2
    assert len({colour for colour, *_ in drawn}) == 2
    on_one_scale(drawn, [[*zip(*line, strict=True)] for line in zip(updates, nats, strict=True)])
    assert chrome.run("document.querySelectorAll('.plot svg svg text').length") == 2  # the best
    chrome.run(f"{CHOOSE}('.over', '3')")
    chrome.run("document.querySelector('details').open = true")
    chrome.click("th:nth-child(6) button")
    on_one_scale(
        chrome.run(POINTS), [[*zip(*line, strict=True)] for line in zip(seconds, nats, strict=True)]
    )
    chrome.run(f"{CHOOSE}('.log', true)")
    chrome.run(f"{CHOOSE}('.smooth', 0.5)")
    smooth = []
    for line in nats:
        halves = [[0.5 ** (k - j) for j in range(k + 1)] for k in range(len(line))]
        smooth.append([np.average(line[: len(h)], weights=h) for h in halves])
    logs = [np.log([at, heights]).T for at, heights in zip(seconds, smooth, strict=True)]
    on_one_scale(chrome.run(POINTS), logs)
    chrome.run(f"{CHOOSE}('.of', '6')")
    chrome.run(f"{CHOOSE}('.smooth', 0)")
    rates = [[line["rate"] for line in one.metrics] for one in curves]
    on_one_scale(
        chrome.run(POINTS),
        [np.log([*zip(*line, strict=True)]) for line in zip(seconds[::2], rates, strict=True)],
    )


def test_runs_are_sorted_found_and_hidden(chrome, tmp_path):
    """By numbers, times and names, unknown ones last; a search is in all tables and charts."""
    columns = ("run", "valid", "time")
    cells = (
        ("gru 2", "9.5", "1 min 05 s"),
        ("gru 10", "1,000.25", "1 h 02 min"),
        ("tanh", UNKNOWN, "9.1 s"),
    )
    rows = (*(Row(c, detail=f"of {k}", series=c[0]) for k, c in enumerate(cells)),
            Row(("repeat", "7.5", ""), muted=True))  # fmt: skip
    shown = (Table(columns, rows, "t"), Curves(tuple(curve(c[0], 2) for c in cells)))
    path = tmp_path / "page.html"
    path.write_text(render(Page("t", sections=(Section("s", shown),))), "utf-8")
    chrome.open(path)
    names = """[...document.querySelector('tbody').rows].filter((row) => !row.hidden)
      .map((row) => row.cells[0].firstChild.nextSibling?.data ?? row.textContent)"""
    chrome.wait("document.querySelector('.plot svg')")
    for column, ascending, descending in (
        (2, [0, 1, 2], [1, 0, 2]), (3, [2, 0, 1], [1, 0, 2]), (1, [0, 1, 2], [2, 1, 0])
    ):  # fmt: skip
        for order in (ascending, descending):
            chrome.click(f"th:nth-child({column}) button")
            told = [cells[k][0] for k in order]
            assert chrome.run(names)[:3] == told, (column, order)
            assert "repeat" in chrome.run(names)[3]
    colours = """new Set([...document.querySelectorAll('polyline')]
      .map((line) => line.attributes.stroke.value)).size"""
    assert chrome.run(colours) == 3
    chrome.click(".entry:nth-child(1)")
    assert chrome.run(colours) == 2
    assert chrome.run("document.querySelector('.entry').ariaPressed") == "false"
    assert len(chrome.run(names)) == 4
    for sought, left in (("gru", 1), ("of 2", 1), ("GRU 10", 1), ("", 2)):
        chrome.run(f"{CHOOSE}('[type=search]', '{sought}')")
        assert chrome.run(colours) == left
    chrome.click(".entry:nth-child(1)")
    assert chrome.run(colours) == 3


def test_a_page_follows_training(chrome, run_folder, tmp_path):
    """Guards against figures that stand still, lost choices, other sites that read."""
    folder = tmp_path / "run"
    server = make_server([folder], "seqmodel report run --watch", lambda line: None)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/"
        chrome.visit(address)
        lead = "[...document.querySelectorAll('.lead')].map((e) => e.textContent).join()"
        assert f"there is no run {folder}." in chrome.run(lead)
        shutil.copytree(run_folder, folder)
        metrics = folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines()
        points = "document.querySelectorAll('.chart tbody tr').length"
        chrome.wait(f"{points} === {len(lines)}")
        chrome.run("(window.same = true, document.querySelector('.entry').click(), 0)")
        last = json.loads(lines[-1])
        more = json.dumps({**last, "epoch": last["epoch"] + 1, "updates": 2 * last["updates"]})
        write_file(metrics, "\n".join([*lines, more, ""]).encode())
        chrome.wait(f"{points} === {len(lines) + 1}")
        assert chrome.run("window.same")
        assert chrome.run("document.querySelectorAll('.chart tbody tr:not([hidden])').length") == 0
        chrome.click(".entry")
        drawn = chrome.run("document.querySelector('.plot polyline').points.length")
        assert drawn == len(lines) + 1
        assert str(folder) not in chrome.run(lead)
        assert urlopen(address).status == 200
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(address, headers={"Host": "elsewhere.example"}))
    finally:
        chrome.visit("about:blank")  # or it asks on
        server.shutdown()
        thread.join()
        server.server_close()


# ---- the page of a comparison -------------------------------------------------------------------

CONTRASTS = """[...document.querySelectorAll('main *')]
  .filter((e) => e.checkVisibility() && !e.closest('svg') && [...e.childNodes].some(
    (n) => n.nodeType === Node.TEXT_NODE && n.data.trim()))
  .map((element) => {
    const light = (text) => {
      const part = (n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
      const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((n) => part(n / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let ground = element;
    while (/, 0\\)$/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
    const ink = getComputedStyle(element).color;
    const both = [light(ink), light(getComputedStyle(ground).backgroundColor)];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  })"""
"""The contrast of every visible text, as WCAG 2 defines it."""


@pytest.mark.parametrize(("width", "dark"), [(360, True), (390, False), (1280, False)])
def test_a_comparison_can_be_read_anywhere(chrome, compared, page, width, dark):
    """Guards against tables wider than a phone, pale text, and what screen readers cannot name."""
    for path in (page, compared):
        chrome.open(path, width=width, dark=dark)
        chrome.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
        page_width = "['scrollWidth', 'clientWidth'].map((name) => document.documentElement[name])"
        scrolled, seen = chrome.run(page_width)
        assert scrolled == seen <= width
        assert width > 500 or chrome.covered() == []  # by the first column
    contrasts = chrome.run(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts) >= 4.5
    box = "e.getBoundingClientRect()"
    traces = "[...document.querySelectorAll('.trace polyline')]"
    sizes = chrome.run(f"{traces}.map((e) => [{box}.width, {box}.height])")
    assert len(sizes) == 8
    assert all(60 < wide < 140 and 0 <= high < 40 for wide, high in sizes)
    found = chrome.run(
        "[...document.querySelectorAll('img, audio, th, [role], [tabindex]')].map((e) => "
        "e.ariaLabel || e.alt || e.textContent.trim() || e.outerHTML)"
    )
    assert len(found) > 40
    assert [name for name in found if name.startswith("<")] == []
