"""A page in a real browser: drawing, switching axes, reading points, sound, phone screens."""

import re
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from chrome import Chrome

from seqmodel.data.dataset import Dataset
from seqmodel.experiment.output import write_results
from seqmodel.experiment.plan import Plan, default_space, sources_of, variants_of
from seqmodel.experiment.studies import Studies, open_storage
from seqmodel.experiment.worker import Worker
from seqmodel.media.definitions import Box, Level, Picture, Shades
from seqmodel.media.sound import write_sound
from seqmodel.report.page.parts import (
    Cloud,
    Column,
    Curve,
    Curves,
    Dot,
    Facts,
    Page,
    Point,
    Row,
    Sample,
    Samples,
    Scatter,
    Section,
    Table,
)
from seqmodel.report.page.render import render

SECONDS, RATE = 3.0, 44_100


def sound(kind: str) -> bytes:
    file, t = BytesIO(), np.arange(round(SECONDS * RATE)) / RATE
    write_sound(kind, file, [0.1 * np.sin(2 * np.pi * 440 * t).astype(np.float32)], RATE, len(t))
    return file.getvalue()


def curve(name: str, pace: float) -> Curve:
    points = [Point(10 * k, pace * k, 2 + 1 / k, 2.2 + 1 / k) for k in range(1, 11)]
    return Curve(name, tuple(points), 10)


def sample(name: str, kind: str) -> Sample:
    boxes = tuple(Box(k, 60 + k % 7, 1, 1) for k in range(24))
    shades = Shades(2, 3, bytes(range(0, 240, 40))) if kind == "flac" else None
    picture = Picture(SECONDS, 24, 58, 70, boxes, (Level(60, "C4"),), True, "a scale", shades)
    return Sample(name, picture, sound(kind), kind, name)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything, with very long texts."""
    columns = tuple(Column(name) for name in ("run", *"abcdefghij", "a name " * 5))
    table = Table(columns, (Row(("x" * 80, *["1,234.5678"] * 11)),), "Figures")
    clouds = Cloud("gru", (Dot(1e-4, 3.0), Dot(1e-3, 2.0))), Cloud("lstm", (Dot(3e-4, 2.5),))
    parts = (
        *(table, Curves((curve("gru", 2), curve("lstm", 5))), Scatter(clouds)),
        *(Samples((sample("gru", "mp3"), sample("lstm", "flac"))), Facts((("a", "b" * 200),))),
    )
    path = tmp_path_factory.mktemp("page") / "a page.html"
    path.write_text(render(Page("t" * 100, ("l" * 200,), (Section("s" * 90, parts),))), "utf-8")
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Path:
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


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    browser = Chrome(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def _silent_console(chrome: Chrome) -> Iterator[None]:
    """No test may leave an error or a warning in the console."""
    yield
    assert chrome.messages() == []


TIP = "document.querySelector('.chart .tip')"


def told(chrome: Chrome) -> list[str] | None:
    """The name and the figures next to the pointer; None if nothing is shown."""
    return chrome.run(
        f"{TIP}.hidden ? null : [...{TIP}.querySelectorAll('b, dd')].map((e) => e.textContent)"
    )


def test_a_page_is_drawn_and_loads_nothing_else(chrome: Chrome, page: Path):
    """Guards against styles or a script that the page's own policy blocks."""
    chrome.open(page)
    assert chrome.run("document.querySelector('main').getBoundingClientRect().width") <= 1200
    boxes = "[...document.querySelectorAll('.over-updates, .drawing')].map((e) => e.clientHeight)"
    assert all(height > 100 for height in chrome.run(boxes))
    assert chrome.run("document.querySelector('.mark').getBoundingClientRect().width") > 5
    loaded = "performance.getEntriesByType('resource').map((e) => e.name)"
    assert [name for name in chrome.run(loaded) if not name.startswith("data:")] == []


def test_pointing_at_a_chart_shows_the_nearest_point(chrome: Chrome, page: Path):
    chrome.open(page)
    assert told(chrome) is None
    chrome.hover(".chart .plot", 0.31, 0.5)
    assert told(chrome) == ["gru", "3", "30", "6.0", "2.3333", "2.5333"]
    spot = "document.querySelector('.chart .spot').getBoundingClientRect()"
    plot = "document.querySelector('.chart .plot').getBoundingClientRect()"
    middle = f"({spot}.left + {spot}.width / 2 - {plot}.left) / {plot}.width"
    assert chrome.run(middle) == pytest.approx(0.3, abs=0.002)
    chrome.hover("h1")
    assert told(chrome) is None


def test_the_axis_can_be_switched_to_time(chrome: Chrome, page: Path):
    """Checks both what is drawn and where points are looked up."""
    chrome.open(page)
    shown = "getComputedStyle(document.querySelector('.over-{}')).display !== 'none'"
    assert chrome.run(shown.format("updates"))
    assert not chrome.run(shown.format("time"))
    chrome.click(".choose-time + label")
    assert chrome.run(shown.format("time"))
    assert not chrome.run(shown.format("updates"))
    chrome.hover(".chart .plot", 0.6, 0.5)  # 30 of 50 seconds: no point of gru is that late
    assert told(chrome) == ["lstm", "6", "60", "30.0", "2.1667", "2.3667"]


def test_points_are_reached_by_keyboard_and_announced(chrome: Chrome, page: Path):
    chrome.open(page)
    chrome.run("document.querySelector('.chart .plot').focus()")
    assert told(chrome)[:2] == ["gru", "1"]
    for key, expected in [
        ("ArrowRight", ["gru", "2"]),
        ("ArrowDown", ["lstm", "2"]),
        ("ArrowLeft", ["lstm", "1"]),
        ("ArrowUp", ["gru", "1"]),
        ("End", ["lstm", "10 (best)"]),
        ("ArrowRight", ["lstm", "10 (best)"]),
    ]:
        chrome.press(key)
        assert told(chrome)[:2] == expected, key
    said = chrome.run("document.querySelector('.chart output').value")
    assert said == "lstm, epoch 10 (best), updates 100, seconds 50.0, train 2.1000, valid 2.3000"
    chrome.press("Escape")
    assert told(chrome) is None


def test_dots_of_a_scatter_chart_can_be_read(chrome: Chrome, page: Path):
    chrome.open(page)
    chrome.hover(".chart:has(.over-x) .plot", 0.95, 0.95)
    tip = "document.querySelector('.chart:has(.over-x) .tip').textContent"
    assert chrome.run(tip) == "grulearning rate0.001best valid, nats per frame2.0000"


AUDIO = "document.querySelectorAll('audio')"


@pytest.mark.parametrize("number", [0, 1])
def test_a_sample_plays_and_its_cursor_follows(chrome: Chrome, page: Path, number: int):
    """Both mp3 and flac; the position moves only if the browser decodes the sound."""
    chrome.open(page)
    assert chrome.run(f"[...{AUDIO}].every((audio) => audio.paused)")
    figure = f":nth-child({number + 1} of .sample)"
    button = f"document.querySelector('{figure} button')"
    assert chrome.run(f"{button}.ariaLabel") == f"Play {['gru', 'lstm'][number]}"
    chrome.click(f"{figure} button")
    chrome.wait(f"{AUDIO}[{number}].currentTime > 0.2")
    assert chrome.run(f"{AUDIO}[{number}].duration") == pytest.approx(SECONDS, abs=0.1)
    assert chrome.run(f"{button}.ariaLabel").startswith("Pause")
    chrome.wait(f"parseFloat(document.querySelector('{figure} .cursor').style.left) > 5")
    chrome.click(f"{figure} button")
    assert chrome.run(f"{AUDIO}[{number}].paused")


def test_a_click_on_a_picture_plays_from_there(chrome: Chrome, page: Path):
    """Also checks that only one sample plays at a time."""
    chrome.open(page)
    chrome.click(".sample button")
    chrome.click(":nth-child(2 of .sample) .picture", 0.5)
    chrome.wait(f"{AUDIO}[1].currentTime > 1.6")
    assert chrome.run(f"{AUDIO}[1].currentTime") < SECONDS
    assert chrome.run(f"[...{AUDIO}].map((audio) => audio.paused)") == [True, False]


def test_a_short_sample_ends_before_the_axis_does(chrome: Chrome, tmp_path: Path):
    """On the axis that all share, each place is the same second: of the cursor, and of a click."""
    whole, half = sample("gru", "mp3"), sample("lstm", "flac")
    half = replace(half, picture=replace(half.picture, seconds=SECONDS / 2))
    path = tmp_path / "page.html"
    path.write_text(render(Page("t", sections=(Section("s", (Samples((whole, half)),)),))), "utf-8")
    chrome.open(path)
    widths = [f"document.querySelectorAll('.picture{e}')[1].clientWidth" for e in (" input", "")]
    assert chrome.run(" / ".join(widths)) == pytest.approx(0.5, abs=0.01)
    chrome.click(":nth-child(2 of .sample) .picture", 0.75)
    assert chrome.run(f"[...{AUDIO}].every((audio) => audio.paused)")
    chrome.click(":nth-child(2 of .sample) .picture", 0.25)
    chrome.wait(f"{AUDIO}[1].currentTime > 0.75")
    assert chrome.run(f"{AUDIO}[1].currentTime") < SECONDS / 2
    place = "parseFloat(document.querySelectorAll('.cursor')[1].style.left)"
    assert 25 <= chrome.run(place) <= 50


def test_a_sound_that_cannot_be_played_is_reported(chrome: Chrome, tmp_path: Path):
    broken = replace(sample("gru", "mp3"), sound=b"no sound")
    path = tmp_path / "page.html"
    path.write_text(render(Page("t", sections=(Section("s", (Samples((broken,)),)),))), "utf-8")
    chrome.open(path)
    chrome.click(".sample button")
    said = "document.querySelector('.sample .note')"
    chrome.wait(f"{said} !== null")
    assert chrome.run(f"{said}.textContent") == "This browser cannot play the sound."
    assert chrome.run("document.querySelector('.sample button').ariaLabel") == "Play gru"


@pytest.mark.parametrize("width", [360, 1200])
def test_no_page_scrolls_sideways(chrome: Chrome, page: Path, width: int):
    """For phones: content that is too wide scrolls on its own, or wraps.

    Also guards against figures that cover the curves, or move them as they appear.
    """
    chrome.open(page, width=width)
    top = "document.querySelector('.chart .plot').offsetTop"
    before = chrome.run(top)
    page_width = "['scrollWidth', 'clientWidth'].map((name) => document.documentElement[name])"
    for place in (0.01, 0.5, 0.99):
        chrome.hover(".chart .plot", place, 0.5)
        assert told(chrome) is not None
        assert chrome.run(f"{TIP}.getBoundingClientRect().bottom") <= chrome.run(
            "document.querySelector('.chart .plot').getBoundingClientRect().top"
        )
        assert chrome.run(top) == before
        scrolled, seen = chrome.run(page_width)
        assert scrolled == seen <= width


def test_a_spectrogram_is_drawn_in_the_colour_of_text(chrome: Chrome, page: Path):
    """Guards against black on a dark page, and an image that the page's own policy refuses."""
    image = "document.querySelector('.shades')"
    for dark, shown in ((False, "none"), (True, "invert(1)")):
        chrome.open(page, dark=dark)
        assert chrome.run(f"getComputedStyle({image}).filter") == shown
        assert chrome.run(f"{image}.decode().then(() => true)")
        box = "getBoundingClientRect().width"
        covered = chrome.run(f"{image}.{box} / document.querySelector('.drawing').{box}")
        assert covered == pytest.approx(2 / 24, abs=1e-3)


def test_a_page_is_dark_if_the_system_asks_for_dark(chrome: Chrome, page: Path):
    colours = "['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name])"
    seen = []
    for dark in (False, True):
        chrome.open(page, dark=dark)
        seen.append([int(text[4:-1].split(", ")[0]) for text in chrome.run(colours)])
    (light_ground, light_text), (dark_ground, dark_text) = seen
    assert min(light_ground, dark_text) > 200
    assert max(dark_ground, light_text) < 50


# ---- the page of a comparison -------------------------------------------------------------------

CONTRASTS = """[...document.querySelectorAll('main *')]
  .filter((e) => e.checkVisibility() && [...e.childNodes].some(
    (n) => n.nodeType === Node.TEXT_NODE && n.data.trim()))
  .map((element) => {
    const light = (text) => {
      const part = (n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
      const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((n) => part(n / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let ground = element;
    while (/, 0\\)$/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
    const style = getComputedStyle(element);
    const ink = element.closest('svg') ? style.fill : style.color;
    const both = [light(ink), light(getComputedStyle(ground).backgroundColor)];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  })"""
"""The contrast of every visible text, as WCAG 2 defines it."""


@pytest.mark.parametrize(("width", "dark"), [(360, True), (390, False), (1280, False)])
def test_a_comparison_can_be_read_anywhere(chrome: Chrome, compared: Path, width: int, dark: bool):
    """Guards against tables that widen the page on a phone, and text too pale in the dark."""
    chrome.open(compared, width=width, dark=dark)
    chrome.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    page_width = "['scrollWidth', 'clientWidth'].map((name) => document.documentElement[name])"
    scrolled, seen = chrome.run(page_width)
    assert scrolled == seen <= width
    contrasts = chrome.run(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts) >= 4.5
    traces = "[...document.querySelectorAll('.trace path')].map((e) => e.getBoundingClientRect())"
    sizes = chrome.run(f"{traces}.map((box) => [box.width, box.height])")
    assert len(sizes) == 8
    assert all(60 < wide < 140 and 0 <= high < 40 for wide, high in sizes)


def test_the_curves_of_a_comparison_show_their_points(chrome: Chrome, compared: Path):
    chrome.open(compared, width=390)
    chrome.hover(".chart .plot", 0.99, 0.5)
    name, epoch, *_ = told(chrome)
    assert name.split(", ")[0] in ("tanh", "gru")
    assert name.split(", ")[1] in ("seed 1", "seed 2")
    assert epoch.startswith("3")
    chrome.hover(".chart:has(.over-x) .plot", 0.9, 0.5)
    tip = "document.querySelector('.chart:has(.over-x) .tip').textContent"
    assert re.match(r"(tanh|gru), trial \d, completelearning rate\d", chrome.run(tip))


def test_the_samples_of_winners_play(chrome: Chrome, compared: Path):
    """One for each unit, music that the model itself made; played by keyboard alone."""
    chrome.open(compared, width=390)
    captions = "[...document.querySelectorAll('.sample figcaption')].map((e) => e.textContent)"
    names = [text.split(":")[0] for text in chrome.run(captions)]
    assert names == ["tanh", "gru", "A real piece, 0.mid of valid"]
    chrome.run("document.querySelector(':nth-child(2 of .sample) button').focus()")
    chrome.press(" ")
    chrome.wait(f"{AUDIO}[1].currentTime > 0.2")
    chrome.wait(
        "parseFloat(document.querySelector(':nth-child(2 of .sample) .cursor').style.left) > 0"
    )
    assert chrome.run(f"{AUDIO}[0].paused")


def test_all_controls_have_a_name(chrome: Chrome, compared: Path):
    """Guards against buttons, sliders and charts that a screen reader cannot name."""
    chrome.open(compared)
    found = chrome.run(
        "[...document.querySelectorAll('button, input, audio, th, [role], [tabindex]')].map((e) => "
        "e.ariaLabel || e.textContent.trim() || document.querySelector(`label[for='${e.id}']`)"
        "?.textContent || e.outerHTML)"
    )
    assert len(found) > 40
    assert [name for name in found if name.startswith("<")] == []
