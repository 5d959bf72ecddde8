"""What the training split says of recordings, by hand, and what free running corrects."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from guards import guarded
from noise import in_memory
from scipy import stats
from sounds import forgetting, mean_size, voice

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.model.sound import survey as surveys
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.predictors import FULL, predictors_at
from seqmodel.model.sound.steering import no_statistics
from seqmodel.model.sound.survey import corrected, courses, survey

__all__ = ["guarded"]  # buffers are guarded in every test here

CPU = torch.device("cpu")
HALF = {"rtol": 1e-3, "atol": 1e-4}


def test_training_says_how_usual_grids_are():
    """By hand: two coarse ones of three that sound; a float recording has none."""
    coarse, fine = np.array([256, -512, 0]), np.array([3, 4])

    def grids_of(*pieces):
        return survey([piece / FULL for piece in pieces], 8000)[:2]

    assert grids_of(coarse, fine, np.zeros(3), coarse * 2, coarse) == (3.5 / 5, 256)
    assert grids_of(fine, coarse / 300) == (0.5 / 3, 1)
    assert grids_of(np.zeros(2)) == grids_of() == (0.5, 1)
    assert grids_of(np.array([-32768])) == (0.75, 32768)
    encoder = SoundEncoder(8000, 1)
    encoder.start_at(in_memory(AudioFrames(8000, 1), np.int16(coarse), np.int16(fine)))
    assert encoder.state_dict()["known"].tolist()[:2] == [0.5, 256]
    told = encoder.encode_next(encoder.start(torch.zeros(1), 2)).inputs[0]
    assert told[:, -4:-2].tolist() == [[0.5, 256 / 32768]] * 2


def density_of(pieces, rate=8000):
    """Of the loudness in octaves of all pieces, end to end."""
    line = FULL * np.concatenate(pieces)
    loudness = np.log2(mean_size(line, forgetting(rate, 0.0125), 300) + 1)
    return stats.gaussian_kde(loudness, 0.6 / loudness.std(ddof=1))


def slopes_of(density):
    ends = (density.logpdf(np.arange(16) + sign * 1e-4) for sign in (1, -1))
    return np.subtract(*ends) / 2e-4 / math.log(2)


def told_of(pieces):
    """The features of every eighth sample of all pieces, end to end, by kind."""
    predictors, known = predictors_at(8000), no_statistics(16)
    line = torch.from_numpy(np.concatenate(pieces)).unsqueeze(1)
    told, _ = compiled_inputs(predictors, known, line, predictors.start_memory(known.grid, 1, CPU))
    return {name: told[::8, 0, part].numpy() for name, part in predictors.columns.items()}


def log_periods_of(pieces):
    """Of the share of sound with each period: what lies between two nodes counts for both."""
    peak, octave = told_of(pieces)["period"].T[-2:]
    counts = np.full(17, 0.0)
    for place in np.clip(15 + 5 * octave[peak > 0.3], 0, 15):
        node, rest = int(place), place % 1
        counts[node : node + 2] += 1 - rest, rest
    return np.log(counts[:16] / len(peak) + 1e-3)


def test_the_survey_says_how_loud_and_sharp_train_is():
    """Guards against a push away from what is usual, or none beyond all that was heard."""
    pieces = [voice(T, seed=T)[:, 0].numpy() * size for T, size in ((900, -1), (700, 0.02))]
    known, slopes = survey(pieces, 8000), slopes_of(density_of(pieces))
    level = np.exp(2 * (told_of(pieces)["loudness"][:, 0] + 2))[200 // 50 :]
    assert known.roughest == pytest.approx(np.quantile(level, 0.995), rel=1e-5)
    steps = np.diff(FULL * np.concatenate(pieces), prepend=0)
    sharp = mean_size(steps, forgetting(8000, 0.002), 300) + 1
    assert known.sharpest == pytest.approx(np.quantile(sharp, 0.9995))
    samples, kept = FULL * np.concatenate(pieces), forgetting(8000, 0.05) ** np.arange(1600)
    dc = (1 - kept[1]) * np.convolve(samples, kept)[:1600]
    loud = mean_size(samples, forgetting(8000, 0.0125), 300) + 1
    assert known.loudest == pytest.approx(np.quantile(loud, 0.9995))
    assert known.most_dc == pytest.approx(np.quantile(abs(dc), 0.9995))
    np.testing.assert_allclose(known.slopes, slopes.clip(-5, 5), atol=0.1)
    np.testing.assert_allclose(known.pushes, (0.06 * slopes).clip(-0.2, 0.2), atol=0.01)
    assert known.pushes[0] > 0 > known.pushes[15]
    assert not survey(pieces, 8000, steered=False).pushes.any()


def test_the_survey_says_how_usual_periods_are():
    """Guards against nodes that are not where the compiled steering reads them."""
    pieces = [voice(T, seed=T)[:, 0].numpy() for T in (900, 700)]
    known = survey(pieces, 8000)
    np.testing.assert_allclose(known.periods, log_periods_of(pieces), atol=1e-5)
    assert known.periods.max() > -1  # it has a voice
    np.testing.assert_allclose(known.voices[::5], [1 / 8, 1 / 4, 1 / 2, 1])
    assert not survey(pieces, 8000, steered=False).voices.any()


def test_the_survey_says_which_coefficients_are_usual(monkeypatch):
    """By hand; where hardly anything is heard, those of the nearest node."""
    monkeypatch.setattr(surveys, "MIN_SECONDS", 0.02)  # seconds, 20 of the samples that count
    pieces = [voice(T, seed=T)[:, 0].numpy() * size for T, size in ((900, 1), (700, 0.02))]
    told = told_of(pieces)
    k, loud = told["reflections"], told["loudness"][:, -1]
    nearest = np.rint(2 * (loud + 3) / math.log(2))
    filled = [n for n in range(16) if (nearest == n).sum() >= 20]
    assert len(filled) > 1
    for n, usual in enumerate(survey(pieces, 8000).ranges):
        like = min(filled, key=lambda other, n=n: abs(other - n))
        expected = np.quantile(k[nearest == like], [0.02, 0.98], 0).ravel()
        np.testing.assert_allclose(usual, expected, atol=1e-6)


def test_free_running_corrects_the_push():
    """Towards what train has more of. Guards against a sign, and pushes that grow for ever."""
    pieces = [voice(900)[:, 0].numpy() * size for size in (1, 0.02)]
    known, drawn = survey(pieces, 8000), np.float32(pieces[0]) * 4
    after = corrected(known, drawn, 8000)
    slopes = slopes_of(density_of([np.float64(drawn)])).clip(-5, 5)
    expected = (known.pushes + 0.03 * (known.slopes - torch.from_numpy(slopes))).numpy()
    np.testing.assert_allclose(after.pushes, expected.clip(-0.2, 0.2), atol=0.01)
    assert torch.equal(after.slopes, known.slopes)
    for _ in range(100):
        after = corrected(after, drawn, 8000)
    assert after.pushes.abs().max() == 0.2
    again = corrected(known, np.concatenate(pieces), 8000)
    np.testing.assert_allclose(again.pushes, known.pushes, atol=1e-6)


def test_free_running_corrects_the_voices():
    """Towards periods that train has more of. Guards against a sign, and voices without bounds."""
    high, low = (voice(1800, 2, seed=seed).numpy() for seed in (0, 1))
    train, drawn = [low[:, 1]], np.float32(high[:, 0])
    known = survey(train, 8000)
    after = corrected(known, drawn, 8000)
    missing = log_periods_of(train) - log_periods_of([np.float64(drawn)])
    assert missing.max() > 1
    assert missing.min() < -1
    np.testing.assert_allclose(after.voices - known.voices, 0.07 * missing, atol=1e-4)
    assert torch.equal(after.periods, known.periods)
    for _ in range(100):
        after = corrected(after, drawn, 8000)
    assert (after.voices.min(), after.voices.max()) == (-2, 2)
    again = corrected(known, np.concatenate(train), 8000)
    np.testing.assert_allclose(again.voices, known.voices, atol=1e-6)


def labelled(pieces, labels):
    """A train split of 16-bit pieces (samples,) at 8 kHz, in memory, and the labels it knows."""
    split = in_memory(AudioFrames(8000, 10, 10), *pieces)
    told = zip(split.pieces, labels, strict=True)
    pieces = [replace(piece, facts={"labels": own}) for piece, own in told]
    return replace(split, pieces=pieces), {"who": ("a", "b"), "n": ("1", "2")}


def spoken(count, samples, longer=0):
    """So many voices, each longer than the last."""
    voices = (voice(samples + longer * k, 1, seed=k).numpy()[:, 0] for k in range(count))
    return [np.rint(32768 * each).astype(np.int16) for each in voices]


def moments_of(samples):
    """Coefficients and log loudness a sample after each 20 ms, by the encoder's features."""
    predictors, known = predictors_at(8000), no_statistics(16)
    line = torch.from_numpy(np.float32(samples / 32768)).unsqueeze(1)
    x, _ = compiled_inputs(predictors, known, line, predictors.start_memory(1.0, 1, CPU))
    own = x[::160, 0].double().numpy()[:50]
    loud = own[:, predictors.columns["loudness"].stop - 1]
    return np.column_stack([own[:, predictors.columns["reflections"]], 2 * loud + 6])


def test_a_course_is_the_mean_of_the_recordings_with_the_labels():
    """Of all that tell them, whatever else they tell; after their ends, as before."""
    pieces = spoken(9, 1600, longer=160)
    labels = [{"who": "a", "n": "1"}] * 4 + [{"who": "b", "n": "1"}] * 4 + [{"n": "2"}]
    split, known = labelled(pieces, labels)
    found = courses(split, known, 8000).numpy()
    assert found.shape == (1 + 9, 50, 17)
    each = [moments_of(piece) for piece in pieces]
    first = np.mean([one[:10] for one in each[:4]], 0)
    np.testing.assert_allclose(found[1 + 3 * 1 + 1, :10], first, **HALF)  # a, 1
    np.testing.assert_allclose(found[1 + 3 * 1 + 1, 20:], np.tile(found[1 + 4, 9], (30, 1)))
    np.testing.assert_allclose(found[1 + 3 * 1, :10], first, **HALF)  # a
    both = np.mean([one[:10] for one in each[:8]], 0)
    np.testing.assert_allclose(found[1 + 1, :10], both, **HALF)  # 1
    every = np.mean([one[:10] for one in each], 0)
    np.testing.assert_allclose(found[1, :10], every, **HALF)
    np.testing.assert_allclose(found[1 + 2], found[1])  # 2, of one recording
    np.testing.assert_allclose(
        found[1 + 3 * 2 + 2], (found[1 + 6] + found[1 + 2]) / 2, **HALF
    )  # b, 2
    rows = [4] * 4 + [7] * 4 + [2]
    off = [one[0] - found[1 + row][0] for one, row in zip(each, rows, strict=True)]
    widths = 0.7 * np.sqrt(np.mean(np.square(off), 0))
    np.testing.assert_allclose(found[0, 0], widths, rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("count", [1, 3])
def test_few_recordings_have_courses_too(count):
    """Guards against numbers from uninitialised memory."""
    split, known = labelled(spoken(count, 900), [{}] * count)
    found = courses(split, known, 8000)
    assert torch.equal(found, courses(split, known, 8000))
    assert found.isfinite().all()
    assert found.abs().max() < 20
