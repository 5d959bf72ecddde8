"""What a page of music begins with, what it saves, and what it says where there is no sound."""

import re
from dataclasses import replace

import mido
import numpy as np
import pytest
import soundfile
from playing import NOTES, STATUS, notes_in

from seqmodel.export.page.render import export_page
from seqmodel.sampling.sampler import Sampler

pytestmark = pytest.mark.usefixtures("silent_console")


def level(sound, rate, begin, end, frequency):
    """How strong a frequency is in these seconds."""
    part = sound[round(begin * rate) : round(end * rate)]
    turns = np.exp(-2j * np.pi * frequency / rate * np.arange(len(part)))
    return abs(np.mean(part * np.hanning(len(part)) * turns))


def test_music_is_saved_as_the_sound_of_each_instrument(chrome, page, tmp_path):
    """A4 at 0 s, C5 over the edge of a rendered part, E5 behind it, as the instrument sounds."""
    chrome.open(page)
    chrome.run("(location.href = '#seed=1&t=1&bpm=120&opening=69.0.4_72.36.8_76.48.4', 0)")
    chrome.wait("page.player.given.length === 3")
    chrome.run("(page.sound.volume = 0.1, 0)")  # which is of the room
    heard = chrome.play_until(54)
    over = {}
    for kind in chrome.run("Object.keys(INSTRUMENTS)"):
        chrome.choose("instrument", kind)
        sound, rate = soundfile.read(chrome.saved(tmp_path / kind, "wav"))
        assert (rate, sound.shape[1]) == (44_100, 2)
        assert len(sound) / rate == pytest.approx(heard / 8 + 1.5, abs=0.3)
        assert 0.1 < abs(sound).max() < 1
        mixed = sound.mean(axis=1)
        pitches = 440.0, 523.25, 659.26
        for begin, end, pitch in ((0.1, 0.5, 0), (4.6, 5.0, 1), (5.0, 5.4, 1), (6.1, 6.5, 2)):
            levels = [level(mixed, rate, begin, end, each) for each in pitches]
            assert int(np.argmax(levels)) == pitch, (kind, begin)
            assert levels[pitch] > 0.002
        assert level(mixed, rate, 3.0, 4.4, 440) < 1e-4
        over[kind] = level(mixed, rate, 0.1, 0.5, 880) / level(mixed, rate, 0.1, 0.5, 440)
    assert min(over["Piano"], over["Organ"]) > 0.1
    assert over["Music box"] < 0.05
    assert len({round(ratio, 2) for ratio in over.values()}) == 3


def test_this_piece_or_all_since_the_start_is_saved(chrome, page, tmp_path):
    chrome.open(page)
    assert chrome.run("document.querySelector('[data-suffix]').disabled")
    chrome.run("page.player.setPace(4)")
    chrome.play_until(3)
    while chrome.run("page.player.pieces.length") < 3:
        chrome.play_until(chrome.run("page.player.next") + 10)
    begins = chrome.run("page.player.pieces.at(-1).first")
    heard = chrome.play_until(begins + 12)
    told = chrome.run(NOTES)
    for part, first in (("all", 0), ("piece", begins)):
        file = mido.MidiFile(file=chrome.saved(tmp_path / part, "mid", part))
        assert (file.type, file.ticks_per_beat) == (1, 480)
        assert [m.tempo for m in file.tracks[0] if m.type == "set_tempo"] == [125_000]
        notes = [
            (120 * (begin - first), 120 * ((end or heard) - first), *of)
            for begin, end, *of, _ in told
            if begin >= first
        ]
        assert notes_in(file, "drawn") == sorted(notes) != []


def test_a_browser_without_sound_says_so_within_three_seconds(chrome, page):
    """Where none begins, and where it is suspended while it plays; and all goes on when it does.

    Time is counted by a timer of the page, which is as late as the page's own are.
    """
    chrome.open(page)
    begins = """(() => { window.took = 0; window.told = false;
      const status = document.querySelector('#status');
      const timer = setInterval(() => { took += 10;
        if (status.value.startsWith('No sound')) window.told = clearInterval(timer) ?? true;
      }, 10); })"""
    chrome.run("(window.real = AudioContext.prototype.resume, 0)")
    chrome.run("(AudioContext.prototype.resume = () => new Promise((on) => (window.on = on)), 0)")
    chrome.click("#play")
    chrome.run(f"page.sound.context.suspend().then({begins})")
    chrome.wait("told")
    assert chrome.run("took") < 3000
    chrome.run("real.call(page.sound.context).then(on)")
    chrome.wait(f"{STATUS} === 'Playing.'")
    chrome.run(f"page.sound.context.suspend().then({begins})")
    chrome.wait("told")
    assert chrome.run("took") < 3000
    chrome.run("real.call(page.sound.context)")
    chrome.wait(f"{STATUS} === 'Playing.'")
    chrome.run("(AudioContext.prototype.resume = real, 0)")


def test_a_page_begins_as_its_export_was_told(chrome, piano, page, tmp_path):
    """And asks for an opening in C if its music is in C."""
    run = replace(piano, frame=replace(piano.frame, transpose_to_c=True))
    path = tmp_path / "page.html"
    path.write_bytes(export_page(run, seed=7, temperature=0.85, tempo=60, title="A <b> title"))
    assert ["C major" in each.read_text("utf-8") for each in (path, page)] == [True, False]
    chrome.open(path)
    assert chrome.run("[page.linkParams(), document.title]") == [
        *("seed=7&t=0.85&bpm=60", "A <b> title")
    ]
    assert chrome.run("page.player.secondsPerFrame") == pytest.approx(1 / 4)
    temperature = "[page.player.temperature, document.querySelector('.value').textContent]"
    assert chrome.run(temperature) == [0.85, "0.85"]
    tempo = "document.querySelector('#tempo').getAttribute('aria-valuetext')"
    assert chrome.run(tempo) == "60 bpm"
    shell = chrome.run("[...document.querySelectorAll('dd')].at(-1).textContent")
    assert shell.endswith(" --seed 7 --temperature 0.85 --tempo 60")
    said = "document.querySelector('meta[property=\"og:title\"]').content"
    assert chrome.run(said) == "A <b> title"


@pytest.mark.usefixtures("unoptimised")
def test_by_default_a_page_begins_with_a_seed_that_sounds_at_once(piano):
    """The first such seed: for half of its first second at least."""
    page = export_page(piano).decode()
    (seed,) = re.findall(r'value="(\d+)" id="seed"', page)
    for each in range(1, int(seed) + 1):
        first = np.concatenate([*Sampler(piano.model).piece(8, seed=each)])
        assert (first.any(axis=1).sum() >= 4) == (each == int(seed))
