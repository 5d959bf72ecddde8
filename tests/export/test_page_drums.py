"""A page of drums in a real browser: hits are heard, shown, saved and played by hand as hits."""

from pathlib import Path
from unittest.mock import ANY

import mido
import numpy as np
import pytest
from playing import Player

from seqmodel.media.music.frames import notes_of
from seqmodel.media.music.kit import SOUNDS
from seqmodel.media.music.writing import velocities
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Sampler

pytestmark = pytest.mark.usefixtures("silent_console")

NOTES = "page.player.notes.map((n) => [n.first, n.last, n.key + 35, n.velocity, n.given])"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, make_run) -> Run:
    options = {"model": "tied", "unit": "gru", "kit": True, "end": False}
    return make_run(tmp_path_factory.mktemp("run") / "a kit", **options)


@pytest.fixture(scope="module")
def page(run: Run, write_page) -> Path:
    return write_page(run)


def test_hits_are_those_of_sample_each_for_a_frame(chrome: Player, tmp_path: Path, run: Run,
                                                   page: Path):  # fmt: skip
    """Guards against hits that merge where a sound is struck in frame after frame, that are struck
    again where the page stops and goes on, and that are saved as a piano's notes."""
    chrome.open(page)
    chrome.run("page.player.setPace(4)")
    for frame in (5, 6, 24):
        heard = chrome.play_until(frame)
    piece = np.concatenate([*Sampler(run.model).piece(heard, seed=1)])
    notes = notes_of(piece)
    loud = velocities(notes, piece, run.frame.grid)
    pairs = zip(notes.tolist(), loud.tolist(), strict=True)
    expected = [[*note, velocity, False] for note, velocity in pairs]
    assert chrome.run(NOTES) == expected
    assert (piece[1:] & piece[:-1]).any()  # or nothing could have merged
    file = mido.MidiFile(file=chrome.saved(tmp_path / "saved"))
    saved = [m for track in file.tracks for m in track if m.type == "note_on"]
    assert {m.channel for m in saved} == {9}
    assert sorted(m.note for m in saved) == sorted(note[2] for note in expected)


def test_a_kit_sounds_and_falls_silent(chrome: Player, page: Path):
    chrome.open(page)
    chrome.click("#play")
    chrome.wait("page.player.position > 2")
    chrome.measure_loudness()
    chrome.wait("loudest > 0.05 && page.player.position > 20")
    assert chrome.run("loudest") < 1
    chrome.click("#play")
    chrome.wait(
        "(analyser.getFloatTimeDomainData(samples), Math.max(...samples.map(Math.abs)) < 1e-3)"
    )
    chrome.wait("page.sound.voices.size === 0")


def test_each_sound_has_a_key_with_its_name(chrome: Player, page: Path):
    chrome.open(page)
    labels = chrome.run("[...document.querySelectorAll('.key')].map((key) => key.textContent)")
    assert labels == [sound.name for sound in SOUNDS]
    cut = """[...document.querySelectorAll('.key')].filter((key) =>
      key.scrollHeight > key.clientHeight + 1).map((key) => key.textContent)"""
    assert chrome.run(cut) == []


def test_a_pad_that_lets_go_at_once_is_heard(chrome: Player, page: Path):
    """Guards against silence for a pad that sends the end of a hit right behind its beginning."""
    chrome.open(page)
    chrome.run("(page.player.beat = 1e6, 0)")  # or the model answers
    chrome.hold("a", 0.2)  # browsers let a page sound after a first touch
    chrome.wait("page.player.notes.length === 1")
    chrome.measure_loudness()
    chrome.wait("page.sound.voices.size === 0")
    chrome.run("loudest = 0")
    for after in (2, 3):
        chrome.run("(page.keyboard.hear(0x99, 38, 120), page.keyboard.hear(0x89, 38, 0))")
        chrome.wait(f"page.player.notes.length === {after}")
    chrome.wait("loudest > 0.05")
    assert [note[2:] for note in chrome.run(NOTES)] == [[36, 80, True], *[[38, 120, True]] * 2]


def test_an_opening_of_hits_is_continued(chrome: Player, run: Run, page: Path):
    """A long press is one hit; computer keys begin at the bass drum, a MIDI pad strikes its own."""
    chrome.open(page)
    chrome.run("(page.player.beat = 1e6, 0)")  # or the model answers
    for key in "aga":
        chrome.hold(key, 0.4)
    chrome.run("page.keyboard.hear(0x99, 42, 100)")
    chrome.run("page.keyboard.hear(0x99, 42, 0)")
    chrome.wait("page.player.notes.length === 4")
    chrome.click("#play")
    chrome.wait("page.player.position > page.player.pieces.at(-1)?.first + 40")
    chrome.click("#play")
    notes = chrome.run(NOTES)
    given = [note for note in notes if note[4]]
    assert [note[2] for note in given] == [36, 43, 36, 42]
    assert [note[1] - note[0] for note in given] == [1] * 4
    assert given[0] == [ANY, ANY, 36, 80, True]
    start, end = given[0][0], max(note[1] for note in given)
    prime = np.zeros((end - start, 47), np.uint8)
    for first, _, key, *_ in given:
        prime[first - start, key - 35] = 1
    drawn = np.concatenate([*Sampler(run.model).piece(200, seed=1, prime=prime)])
    right = [[end + first, key] for first, _, key in notes_of(drawn).tolist()]
    ours = [[note[0], note[2]] for note in notes if not note[4]]
    assert len(ours) > 5
    assert ours == right[: len(ours)]
