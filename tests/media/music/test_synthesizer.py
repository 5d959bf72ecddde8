"""Sound checked by its spectrum, its silences and the equation that defines it."""

import numpy as np
import pytest

from seqmodel.media.music import writing
from seqmodel.media.music.writing import RATE, render, sample_count
from seqmodel.media.sound import to_levels

STEP = 0.125


def rendered(notes, frames, step=STEP, hollow=None):
    times = np.arange(frames + 1) * step
    rows = np.array(notes, np.int64).reshape(-1, 3)
    return np.concatenate(list(render(rows, times, np.ones(len(rows)), hollow)))


def at(seconds):
    return round(seconds * RATE)


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


def frequency_of(sound):
    """The strongest frequency, interpolated between the bins of a long spectrum."""
    size = 2**20
    spectrum = np.log(np.abs(np.fft.rfft(sound * np.hanning(len(sound)), size)) + 1e-12)
    peak = int(spectrum.argmax())
    left, middle, right = spectrum[peak - 1 : peak + 2]
    return (peak + 0.5 * (left - right) / (left - 2 * middle + right)) * RATE / size


@pytest.mark.parametrize(
    ("pitch", "hertz"),
    [(21, 27.5), (60, 261.626), (70, 466.164), (108, 4186.01)],
)
def test_the_spectrum_peaks_at_the_frequency_of_the_note(pitch, hertz):
    """Guards against tuning off by a note or an octave, by printed tables of equal temperament."""
    assert frequency_of(rendered([(0, 32, pitch)], 32)) == pytest.approx(hertz, rel=1e-4)


NOTES = [(0, 1, 60), (0, 30, 24), (2, 3, 100), (3, 20, 64), (3, 4, 60), (13, 27, 67), (29, 30, 108)]


@pytest.mark.parametrize(("step", "block"), [(STEP, writing.BLOCK), (0.0771, 1000)])
def test_the_sound_is_what_the_equation_says(step, block, monkeypatch):
    """Guards tables, fades, and notes that are rendered in parts: none may be off by a sample."""
    monkeypatch.setattr(writing, "BLOCK", block)
    for some in ([], [1, 4, 6]) if step == STEP else ([1, 4, 6],):
        hollow = np.isin(np.arange(len(NOTES)), some) if some else None
        expected = by_the_equation(NOTES, 30, step, some)
        assert np.abs(expected).max() < 0.8
        np.testing.assert_allclose(rendered(NOTES, 30, step, hollow), expected, atol=1e-7)


@pytest.mark.parametrize("count", [88, 20])
def test_no_chord_clips(count):
    """Guards the loudest sound there can be, however many notes begin at once."""
    chord = [(0, 1, pitch) for pitch in range(21, 21 + count)]
    sound = rendered(chord, 1)
    assert np.abs(by_the_equation(chord, 1)).max() > 1.2  # it would clip
    assert 0.8 < np.abs(sound).max() < 1
    assert np.abs(to_levels(sound)).max() < 32_767


@pytest.mark.parametrize(("frames", "step"), [(1, 0.125), (7, 0.0771), (100, 1 / 3), (1, 0.000_01)])
def test_a_piece_lasts_as_long_as_its_frames_and_the_last_fade(frames, step):
    """Guards the header of a WAV, which is written first: lengths may not be off by a sample."""
    for notes in ([], [(0, 1, 60)], [(0, frames, 108)]):
        sound = rendered(notes, frames, step)
        assert len(sound) == sample_count(frames * step) == round(frames * step * RATE) + 4410
        assert sound.dtype == np.float32
        assert sound.any() == bool(notes)
