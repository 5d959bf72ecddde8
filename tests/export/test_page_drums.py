"""A page of drums in a real browser: hits are heard, shown, saved and played by hand as hits."""

import io
from itertools import pairwise

import mido
import numpy as np
import pytest
import soundfile
from playing import MARKS, notes_in

from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import hold, marks_in, notes_of
from seqmodel.media.music.kit import PART_KEYS, SOUNDS
from seqmodel.media.music.metre import Signature
from seqmodel.media.music.parts import DRUMS
from seqmodel.media.music.writing import midi_bytes, velocities
from seqmodel.sampling.sampler import Sampler

NOTES = "page.player.notes.map((n) => [n.first, n.last, n.key + 35, n.velocity, n.given])"


@pytest.mark.usefixtures("silent_console", "unoptimised")
def test_hits_are_those_of_sample_each_for_a_frame(chrome, tmp_path, make_run, write_page):
    """Guards against hits that merge, are struck again after a stop, or saved as a piano's."""
    run = make_run(tmp_path / "a kit", model="tied", unit="gru", kit=True, end=False)
    page = write_page(run)
    chrome.open(page)
    labels = chrome.run("[...document.querySelectorAll('.key')].map((key) => key.textContent)")
    assert labels == [sound.name for sound in SOUNDS]
    assert "move them by twelve," in chrome.run("document.body.textContent")
    cut = """[...document.querySelectorAll('.key')].filter((key) =>
      key.scrollHeight > key.clientHeight + 1).map((key) => key.textContent)"""
    assert chrome.run(cut) == []
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
    hit = "{ key: 46, first: 0, last: 1, late: 0, velocity: 98 }"
    chrome.run(f"(page.player.restart(1n), page.player.notes.push({hit}), page.player.base = 9)")
    sound, rate = soundfile.read(chrome.saved(tmp_path / "triangle", "wav"))
    loud = [abs(sound[round(rate * at) :][: rate // 5]).max() for at in (0, 1, 1.5, 2, 3)]
    assert all(0.05 < after / before < 0.7 for before, after in pairwise(loud))  # rings on
    assert abs(sound[-rate // 5 :]).max() < 1e-4

    chrome.open(page, width=360, height=640)
    names = chrome.run(  # of the keys on screen
        """[...document.querySelectorAll('.key')].filter((key) => {
          const { left, right } = key.getBoundingClientRect();
          return left >= 0 && right <= 360; }).map((key) => key.textContent)"""
    )
    assert {"bass drum", "acoustic snare", "closed hi-hat"} <= {*names}
    chrome.open(page)
    chrome.run("(page.player.beat = 1e6, 0)")  # or the model answers
    chrome.press("a", 0.2)  # browsers let a page sound after a first touch
    chrome.wait("page.player.notes.length === 1")
    chrome.measure_loudness()
    chrome.wait("page.sound.voices.size === 0")
    chrome.run("loudest = 0")
    for after in (2, 3):
        chrome.run("(page.keyboard.onMidi(0x99, 38, 120), page.keyboard.onMidi(0x89, 38, 0))")
        chrome.wait(f"page.player.notes.length === {after}")
    chrome.wait("loudest > 0.05")
    assert [note[2:] for note in chrome.run(NOTES)] == [[36, 80, True], *[[38, 120, True]] * 2]


def test_what_was_given_or_has_rung_is_left_alone(chrome, tmp_path, make_run, write_page):
    """Guards an opening's notes moved by marks drawn for it, and hits repeated after a pause."""
    chrome.open(write_page(make_run(tmp_path, model="tied", unit="gru", onsets=True, **MARKS)))
    marks = "{ velocity: { 40: 9 }, timing: { 40: 0.4 }, part: { 40: 2 } }"
    frame = "Float64Array.from({ length: 176 }, (_, k) => k % 88 === 40)"
    drawn = (
        f"{{ frame: {frame}, marks: {marks}, number: 0, place: 0, given: Array(88).fill(true) }}"
    )
    chrome.run(f"(mute(), page.player.restart(1n), page.player.play({drawn}), 0)")
    ((late, part, velocity),) = chrome.run(
        "page.player.notes.map((n) => [n.late, n.part, n.velocity])"
    )
    assert (late, part) == (0, 0)
    assert velocity > 50
    held = "({ key: 15, first: 0, last: null, late: 0, velocity: 7 + part, part })"
    strike = "(pitch, velocity) => (struck.push(velocity), { release() {} })"
    chrome.run(
        f"""(page.player.restart(1n), page.player.notes.push(...[1, 2].map((part) => {held})),
        window.struck = [], page.sound.strike = {strike}, page.player.start(),
        page.player.stop(), 0)"""
    )
    assert chrome.run("struck") == [8]


@pytest.mark.usefixtures("silent_console")
def test_drums_on_rows_of_their_own_are_those_of_sample(chrome, tmp_path, make_run, write_page):
    """Guards kicks that sound or are saved as the top keys they lie on, or count as the melody."""
    marks = {"part": Levels.of_names(["Kit", "Lead"])}
    own = {"marks": marks, "programs": (DRUMS, 73), "drum_table": PART_KEYS}
    drum_keys = dict.fromkeys(range(90, 109), 9)
    run = make_run(tmp_path, model="tied", unit="gru", onsets=True, drum_keys=drum_keys, **own)
    chrome.open(write_page(run))
    strike = "(pitch, velocity, time, drum) => (struck.push([pitch, drum]), { release() {} })"
    chrome.run(f"(window.struck = [], window.mute = () => (page.sound.strike = {strike}), 0)")
    chrome.play_until(40)
    frames = np.concatenate([*Sampler(run.model).piece(64, seed=1)])
    for numbers in marks_in(frames).values():
        numbers[:] = hold(numbers, frames)
    data = midi_bytes(
        frames, run.frame.grid, metre=[Signature(0, 4, 4)], parts=run.frame.parts,
        drum_table=PART_KEYS,
    )  # fmt: skip
    files = mido.MidiFile(file=io.BytesIO(data)), mido.MidiFile(file=chrome.saved(tmp_path / "a"))
    now, struck = 120 * chrome.run("Math.ceil(page.player.position)"), chrome.run("struck")
    for name, is_drum in zip(marks["part"].names, (True, False), strict=True):
        expected, saved = (
            sorted((first, *rest) for first, _, *rest in notes_in(file, name)) for file in files
        )
        assert [note for note in expected if note[0] < now] == saved != []
        heard = {pitch for pitch, drum in struck if drum == is_drum}
        assert {pitch for _, pitch, _ in saved} <= heard <= {pitch for _, pitch, _ in expected}
