"""Music as sound, checked by its equation, its silences and by mido's clock."""

import mido
import numpy as np
import pytest
import soundfile
from midi_tracks import notes, save, tempo

from seqmodel.media.music import writing
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.writing import RATE, listen, render, sample_count
from seqmodel.media.sound import to_levels

STEP = 0.125


def rendered(notes, frames, step=STEP, hollow=None):
    times = np.arange(frames + 1) * step
    rows = np.array(notes, np.int64).reshape(-1, 3)
    return np.concatenate(list(render(rows, times, np.ones(len(rows)), hollow)))


def by_the_equation(notes, frames, step=STEP, hollow=()):
    """The sum of all notes as the module's docstring has it, sine by sine, before soft clipping."""
    total = np.zeros(round(frames * step * RATE) + 4410)
    for note, (begin, end, pitch) in enumerate(notes):
        k = (np.array([1, 3, 5, 7]) if note in hollow else np.arange(1, 9))[:, None]
        start, stop = round(begin * step * RATE), round(end * step * RATE)
        n = np.arange(stop + 4410 - start)
        t, frequency = n / RATE, 440 * 2 ** ((pitch - 69) / 12)
        tau = 1.3 * 2 ** ((60 - pitch) / 18)
        loudness = np.where(k * frequency < 22_050, k**-1.5 / (k**-1.5).sum(), 0)
        sines = loudness * np.exp(-k * t / tau) * np.sin(2 * np.pi * k * frequency * t)
        rise = np.sin(np.pi / 2 * np.minimum(n / 220, 1)) ** 2
        fall = np.cos(np.pi / 2 * np.clip((n - (stop - start)) / 4410, 0, 1)) ** 2
        total[start : stop + 4410] += 0.2 * sines.sum(0) * rise * fall
    return total


NOTES = [(0, 1, 60), (0, 30, 24), (2, 3, 100), (3, 20, 64), (3, 4, 60), (13, 27, 67), (29, 30, 108)]


@pytest.mark.parametrize(("step", "block"), [(STEP, writing.BLOCK), (0.0771, 1000)])
def test_the_sound_is_what_the_equation_says(step, block, monkeypatch):
    """Guards tables, fades, and notes that are rendered in parts: none may be off by a sample."""
    monkeypatch.setattr(writing, "BLOCK", block)
    for some in ([], [1, 4, 6]) if step == STEP else ([1, 4, 6],):
        hollow = np.isin(np.arange(len(NOTES)), some) if some else None
        expected = by_the_equation(NOTES, 30, step, some)
        assert np.abs(expected).max() < 0.8
        sound = rendered(NOTES, 30, step, hollow)
        np.testing.assert_allclose(sound, expected, atol=1e-7)
        assert sound.dtype == np.float32
        assert len(sound) == sample_count(30 * step)  # as the header of a WAV has it
    silence = rendered([], 1, 0.000_01)
    assert len(silence) == sample_count(0.000_01) == 4410
    assert not silence.any()


@pytest.mark.parametrize("count", [88, 20])
def test_no_chord_clips(count):
    """Guards the loudest sound there can be, however many notes begin at once."""
    chord = [(0, 1, pitch) for pitch in range(21, 21 + count)]
    sound = rendered(chord, 1)
    assert np.abs(by_the_equation(chord, 1)).max() > 1.2  # it would clip
    assert 0.8 < np.abs(sound).max() < 1
    assert np.abs(to_levels(sound)).max() < 32_767


ONSETS = (96, 288, 480, 600)
"""In ticks, of eighth notes; the tempo changes at 384 and within the last note."""


@pytest.fixture
def song(tmp_path):
    """Four eighths with rests between, 96 ticks a beat, at 100, 50, then 200 beats a minute."""
    changes = [tempo(0, 600_000), tempo(384, 1_200_000), tempo(612, 300_000)]
    eighths = notes((tick, tick + 48, 60) for tick in ONSETS)
    return save(tmp_path / "song.mid", [changes + eighths], division=96, kind=0)


def heard(path):
    """When sound begins after silence, in seconds, and how long the file is."""
    sound, rate = soundfile.read(path)
    assert rate == 44_100
    loud = np.flatnonzero(sound)
    return loud[np.diff(loud, prepend=-rate) > rate / 50] / rate, len(sound) / rate


def test_a_midi_file_is_heard_at_its_own_tempos_or_at_a_given_one(song, tmp_path):
    """Guards against sound that drifts from the score at tempo changes between or within notes."""
    listen(song, {}, tmp_path / "song.wav")
    now, onsets = 0.0, []
    for message in mido.MidiFile(song):  # its times are in seconds
        now += message.time
        if message.type == "note_on":
            onsets.append(now)
    begins, length = heard(tmp_path / "song.wav")
    assert begins == pytest.approx(onsets, abs=0.001)
    assert length == pytest.approx(now + 0.1, abs=0.001)
    score = read_score(song.read_bytes())
    times = score.seconds_at(np.array([0, 96.5, 384, 612, 613]))
    assert times == pytest.approx([0, 96.5 * 0.6 / 96, 2.4, 2.4 + 2.85, 5.25 + 0.3 / 96])
    listen(song, {"tempo": 240}, tmp_path / "song.flac")
    begins, length = heard(tmp_path / "song.flac")
    assert begins == pytest.approx([tick / 96 / 4 for tick in ONSETS], abs=0.001)
    assert length == pytest.approx(648 / 96 / 4 + 0.1, abs=0.001)


def test_a_roll_is_heard_on_the_given_grid_at_the_given_tempo(tmp_path):
    roll = np.zeros((10, 88), np.uint8)
    roll[[2, 7], 50] = 1
    np.save(tmp_path / "roll.npy", roll)
    for options, step in (({}, 0.125), ({"steps_per_beat": 2, "tempo": 60}, 0.5)):
        listen(tmp_path / "roll.npy", options, tmp_path / "roll.wav")
        begins, length = heard(tmp_path / "roll.wav")
        assert begins == pytest.approx([2 * step, 7 * step], abs=0.001)
        assert length == pytest.approx(10 * step + 0.1, abs=0.001)
