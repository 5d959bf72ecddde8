"""Samples: their pictures, a box per note or a spectrogram; how far distributions are apart."""

from collections import Counter

import numpy as np
import pytest

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.samples import total_variation


def test_notes_are_boxes_and_restruck_ones_are_separate():
    """Guards against restruck notes that look like one, and losing notes held from before."""
    frames = np.zeros((6, 176), np.uint8)
    frames[0:5, 39] = 1  # middle C sounds for five frames,
    frames[[0, 2], 88 + 39] = 1  # struck twice
    frames[0:2, 60] = 1  # A5, held from before the beginning
    definition = PianoRollFrames(Grid.of_seconds("0.25"), onsets=True)
    picture = MUSIC.picture(frames, definition)
    assert sorted(picture.boxes) == [[0, 59.5, 2, 1], [0, 80.5, 2, 1], [2, 59.5, 3, 1]]
    assert (picture.width, picture.seconds) == (6, 1.5)
    assert (picture.bottom, picture.top) == (57.5, 83.5)
    assert [*picture.ticks.items()] == [(60, "C4"), (72, "C5")]
    assert picture.summary == "piano-roll: 3 notes from C4 to A5 in 6 frames"


def test_silence_has_a_picture_too():
    picture = MUSIC.picture(np.zeros((4, 88), np.uint8), PianoRollFrames(Grid.of_beats(4)))
    assert not picture.boxes
    assert picture.bottom < 60 < picture.top
    assert picture.summary == "piano-roll: 0 notes in 4 frames"


def shades(samples, rate=8000):
    """The picture of raw samples, and its shades (rows, columns)."""
    picture = AUDIO.picture(samples.astype(np.float32)[:, None], AudioFrames(rate, 1, 20))
    return picture, picture.heatmap


@pytest.mark.parametrize("rate", [8000, 44_100])
def test_a_tone_is_at_its_time_and_frequency_in_a_spectrogram(rate):
    """Guards against pictures upside down, back to front, or shifted by half a window."""
    t = np.arange(2 * rate) / rate
    tone = np.where(t < 0.5, 0.0, np.where(t < 1, np.sin(2 * np.pi * 500 * t), 0.0))
    tone += np.where(t < 1.5, 0.0, np.sin(2 * np.pi * 3000 * t))
    picture, grid = shades(0.3 * tone, rate)
    assert (picture.seconds, picture.bottom, picture.top) == (2.0, 0.0, rate / 2000)
    assert grid.shape == (128, 400)
    first, second = grid[:, 110:190], grid[:, 310:390]
    khz = rate / 2000 * (1 - (np.arange(128) + 0.5) / 128)  # at the middle of each row
    for part, hertz in ((first, 500), (second, 3000)):
        assert abs(khz[part.mean(1).argmax()] - hertz / 1000) <= rate / 2000 / 128
    loud = (grid > 150).any(0)
    assert abs(int(np.flatnonzero(loud)[0]) - 100) <= 2  # at half a second
    assert abs(int(np.flatnonzero(~loud & (np.arange(400) > 110))[0]) - 200) <= 2
    assert (grid[:, :90] == 0).all()
    assert (grid[:, 210:290] == 0).all()


def test_pictures_of_sound_share_a_scale():
    """Guards against a quiet sample that looks as loud as a real piece: -90 to -10 dB."""
    sine = np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000)
    for level in (0, -20, -40, -80, -120):
        _, grid = shades(10 ** (level / 20) * sine)
        expected = np.clip(255 * (level + 90) / 80, 0, 255)
        assert abs(int(grid[:, 100].max()) - expected) <= 1
    noise = np.random.default_rng(1).normal(size=80_000)  # as loud in a long stretch as in a short
    means = [shades(0.1 * noise[:n])[1].mean() for n in (4000, 80_000)]
    assert means[0] == pytest.approx(means[1], rel=0.1)


@pytest.mark.parametrize("samples", [1, 17, 100, 5000])
def test_silence_and_the_shortest_sounds_have_a_spectrogram(samples):
    picture, grid = shades(np.zeros(samples))
    assert (grid == 0).all()
    assert picture.summary.endswith("Hz, from -90 to -10 dB; silent")
    picture, grid = shades(np.full(samples, 0.5))
    assert grid.shape[1] == -(-samples // -(-samples // 400))
    assert picture.summary.endswith("RMS -6.0 dB, peak 0.5000")


def test_total_variation_by_hand():
    """Half of the mass moves from 1 to 2 and 3; disjoint distributions are 1 apart."""
    one, other = Counter({1: 6, 2: 2}), Counter({1: 1, 2: 2, 3: 1})
    assert total_variation(one, other) == pytest.approx((0.5 + 0.25 + 0.25) / 2)
    assert total_variation(other, one) == total_variation(one, other)
    assert total_variation(one, one) == 0
    assert total_variation(Counter({1: 3}), Counter({2: 5})) == 1
    assert total_variation(one, Counter()) == total_variation(Counter(), one) == 1
    assert total_variation(Counter(), Counter()) == 0


def test_the_order_of_values_does_not_matter():
    """Names are in another order with each hash seed: the last bit must not differ with it."""
    counts = [(7 * k % 11, 5 * k % 13) for k in range(1, 10)]
    found = set()
    for step in range(1, 10):  # 1 to 9 times step modulo 11 are other places in a set
        one, other = Counter(), Counter()
        for k, (a, b) in enumerate(counts, 1):
            one[k * step % 11], other[k * step % 11] = a, b
        found.add(total_variation(one, other))
    assert len(found) == 1
