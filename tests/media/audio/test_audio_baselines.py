"""Trivial models of audio, recomputed sample by sample with lstsq and scipy.stats."""

import math
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import special, stats

from seqmodel.data.dataset import Split
from seqmodel.media.audio import baselines as audio_baselines
from seqmodel.media.audio.baselines import audio_nats_per_frame, log_normal_cdf
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.outputs.gaussian.specification import GaussianMixtureOutput

STEP = 1 / 32768
NAMES = ["silence", "gaussian", "linear"]


def split_of(*pieces, frame_size=10, **frame):
    """A split of pieces, int16 levels (N,) or float32 samples."""
    dtype = str(pieces[0].dtype)
    definition = AudioFrames(8000, frame_size, 2 * frame_size, dtype, **frame)
    lengths = np.array([len(piece) // frame_size for piece in pieces])
    starts = np.cumsum([0, *map(len, pieces)])[:-1]
    names = [f"{k}.wav" for k in range(len(pieces))]
    return Split("some", names, lengths, definition, np.concatenate(pieces), starts)


def voice(seed, frames, loud=6000):
    """Levels of coloured noise that is partly predictable, with a mean other than 0."""
    random = np.random.default_rng(seed)
    line = random.normal(0, loud / 3, 10 * frames + 2)
    for t in range(2, len(line)):
        line[t] += 1.4 * line[t - 1] - 0.7 * line[t - 2]
    return np.clip(line[2:] / 2 + 300, -32768, 32767).astype(np.int16)


def columns(pieces, order):
    """(N, order + 1): the samples before each one, the nearest first, and 1."""
    rows = []
    for piece in pieces:
        line = np.concatenate([np.zeros(order), piece / 32768])
        rows += [[*line[t : t + order][::-1], 1.0] for t in range(len(piece))]
    return np.array(rows)


def distributions(train, split):
    """Name -> the distribution of each sample of `split`, by scipy."""
    target, samples = (np.concatenate(pieces) / 32768 for pieces in (train, split))
    found = {"silence": stats.laplace(np.zeros(len(samples)), np.abs(target).mean())}
    for name, order in (("gaussian", 0), ("linear", 16)):
        past = columns(train, order)
        ridge = math.sqrt(len(past) / 12) * STEP * np.eye(order, order + 1)
        weights = np.linalg.lstsq(
            np.concatenate([past, ridge]), np.append(target, np.zeros(order)), rcond=None
        )[0]
        deviation = np.sqrt(np.mean((target - past @ weights) ** 2))
        found[name] = stats.norm(columns(split, order) @ weights, deviation)
    return found


def level_log_probability(distribution, levels):
    """The log of a difference of the CDF, taken in the half where it does not cancel."""
    low, high = (levels - 0.5) * STEP, (levels + 0.5) * STEP
    with np.errstate(divide="ignore"):  # in the half that is not used
        below = distribution.logcdf(high) + np.log1p(
            -np.exp(distribution.logcdf(low) - distribution.logcdf(high))
        )
        above = distribution.logsf(low) + np.log1p(
            -np.exp(distribution.logsf(high) - distribution.logsf(low))
        )
    inside = np.where(low > distribution.mean(), above, below)
    inside = np.where(levels == -32768, distribution.logcdf(high), inside)
    return np.where(levels == 32767, distribution.logsf(low), inside)


TRAIN = [voice(1, 60), voice(2, 7), voice(3, 1), voice(4, 33)]
VALID = [voice(5, 21), voice(6, 2), voice(7, 40)]
EXTREME = [np.array([0, 32767, -32768, 32766, -32767, 20000, -20000, 1, -1, 0], np.int16)]


@pytest.mark.parametrize("frame_size", [10, 5, 1])
@pytest.mark.parametrize("split", [VALID, EXTREME], ids=["voice", "extreme"])
def test_every_figure_is_the_recomputed_one(split, frame_size):
    """Also far out, at full scale, where a plain difference of probabilities would give log 0."""
    standard = {"frame_size": frame_size, "mean": 0.01, "deviation": 0.2}
    ours = [
        audio_nats_per_frame(
            split_of(*TRAIN, **standard),
            split_of(*split, **standard),
            AudioFrames(8000, **standard),
            discrete=discrete,
        )
        for discrete in (False, True)
    ]
    assert [list(figures) for figures in ours] == [NAMES] * 2
    levels = np.concatenate(split)
    frames = len(levels) / frame_size
    for name, distribution in distributions(TRAIN, split).items():
        density = distribution.logpdf(levels / 32768) + math.log(0.2)
        assert ours[0][name] == pytest.approx(-density.sum() / frames, rel=1e-9), name
        chances = level_log_probability(distribution, levels.astype(float))
        assert ours[1][name] == pytest.approx(-chances.sum() / frames, rel=1e-9), name


def test_the_probabilities_of_all_levels_sum_to_one():
    """Whatever came before: for a piece's first sample, and for one after a loud beginning."""
    train = split_of(voice(1, 60, loud=90) - np.int16(300), frame_size=1)
    for before in ([], [250, -300, 180]):
        nats = {name: [] for name in NAMES}
        told = np.zeros(3)
        if before:
            told = _nats(train, before)
        for level in (-32768, *range(-1500, 1501), 32767):
            for name, x, y in zip(NAMES, _nats(train, [*before, level]), told, strict=True):
                nats[name].append(x - y)
        for name in NAMES:
            assert np.exp(-np.array(nats[name])).sum() == pytest.approx(1, abs=1e-9), name


def _nats(train, levels):
    """The nats of a whole piece (3,)."""
    piece = split_of(np.array(levels, np.int16), frame_size=1)
    figures = audio_nats_per_frame(train, piece, piece.frame, discrete=True)
    return np.array([figures[name] for name in NAMES]) * len(levels)


def test_a_piece_begins_after_zeros_whatever_precedes_it_on_disk():
    """Guards against a predictor that looks across the boundary of two pieces, in either split."""
    train, first, second = split_of(*TRAIN), VALID[0], VALID[2]
    for discrete in (False, True):

        def figures(*pieces, train=train, discrete=discrete):
            split = split_of(*pieces)
            return audio_nats_per_frame(train, split, split.frame, discrete=discrete)

        both, joined = figures(first, second), figures(np.concatenate([first, second]))
        for name in NAMES:
            alone = 21 * figures(first)[name] + 40 * figures(second)[name]
            assert 61 * both[name] == pytest.approx(alone, rel=1e-12)
        assert joined["linear"] != pytest.approx(both["linear"], rel=1e-9)
        fitted = figures(first, train=split_of(first, second))["linear"]
        seam = figures(first, train=split_of(np.concatenate([first, second])))["linear"]
        assert fitted != pytest.approx(seam, rel=1e-9)


@pytest.mark.parametrize("block", [1, 30, 100, 10_000])
def test_blocks_change_no_figure(monkeypatch, block):
    """Guards against a block that forgets the samples before it."""
    train, valid = split_of(*TRAIN), split_of(*VALID)
    whole = audio_nats_per_frame(train, valid, valid.frame, discrete=True)
    monkeypatch.setattr(audio_baselines, "BLOCK", block)
    cut = audio_nats_per_frame(train, valid, valid.frame, discrete=True)
    assert cut == pytest.approx(whole, rel=1e-11)


def test_an_hour_takes_no_more_memory_than_a_block():
    """Guards against columns of a whole piece: (N, 18) numbers of 8 bytes, 4 GB/hour at 8 kHz."""
    long = split_of(np.resize(voice(1, 1000), 600_000))  # its columns: 86 MB
    tracemalloc.start()
    try:
        audio_nats_per_frame(long, long, long.frame, discrete=True)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("discrete", [False, True])
def test_digital_silence_leaves_scales_of_one_step(discrete):
    """Guards against scales of 0: silence would be infinitely likely, a click impossible."""
    silent, click = np.zeros(50, np.int16), np.array([0] * 9 + [32767], np.int16)
    train = split_of(silent, deviation=0.5)
    quiet, loud = (
        audio_nats_per_frame(train, split_of(piece), train.frame, discrete=discrete)
        for piece in (silent, click)
    )
    if discrete:
        sample = {
            "silence": -math.log(1 - math.exp(-0.5)),
            "gaussian": -math.log(stats.norm.cdf(0.5) - stats.norm.cdf(-0.5)),
        }
    else:
        sample = {
            "silence": math.log(2 * STEP / 0.5),
            "gaussian": math.log(STEP / 0.5 * math.sqrt(2 * math.pi)),
        }
    sample["linear"] = sample["gaussian"]
    assert quiet == pytest.approx({name: 10 * nats for name, nats in sample.items()})
    assert all(quiet[name] < loud[name] < math.inf for name in NAMES)


def test_samples_beyond_full_scale_count_as_loudest_and_stay_finite():
    """Guards against what resampling does to a loud recording: 32-bit samples above 1."""
    beyond = np.array([0, 1.0, 1.2, -1.0, -1.3, 0.5, 0.1, 1e-6, 0, 0], np.float32)
    train = split_of(voice(1, 60))
    figures = audio_nats_per_frame(train, split_of(beyond), train.frame, discrete=True)
    assert all(0 < figures[name] < math.inf for name in NAMES)
    loudest = split_of(np.array([1.2] * 10, np.float32))
    figures = audio_nats_per_frame(train, loudest, train.frame, discrete=True)
    distribution = distributions([voice(1, 60)], EXTREME)["gaussian"]
    tail = distribution.logsf(1.2 - np.float32(0) - STEP / 2)[0]
    assert figures["gaussian"] == pytest.approx(-10 * tail, rel=1e-6)


def test_nats_use_the_same_standardisation_as_the_models():
    """A single Gaussian as a model's output scores exactly what it does as a baseline."""
    samples = np.concatenate(TRAIN) / 32768
    moments = {"mean": float(samples.mean()), "deviation": float(samples.std())}
    train, valid = split_of(*TRAIN, **moments), split_of(*VALID, **moments)
    baseline = audio_nats_per_frame(train, valid, train.frame, discrete=False)["gaussian"]
    output = GaussianMixtureOutput(2, 10, 1, context=20, **moments).double()
    with torch.no_grad():
        output.linear.weight.zero_()
        output.linear.bias.zero_()
        output.linear.bias[11:] = math.log(1 - output.floor)
        frames = torch.from_numpy(np.concatenate(VALID).reshape(-1, 10) / 32768)
        nats = output.nats(output(torch.zeros(len(frames), 2).double()), frames, frames)
    assert baseline == pytest.approx(float(nats.mean()), rel=1e-12)


@pytest.mark.parametrize("discrete", [False, True])
def test_the_linear_predictor_beats_the_others_on_tones(discrete, recordings):
    """Guards against a wrong sign: predicting from the past must help on tones."""
    train = split_of(*(piece[: len(piece) // 10 * 10] for piece in recordings["train"]))
    figures = audio_nats_per_frame(train, train, train.frame, discrete=discrete)
    assert figures["linear"] < figures["gaussian"] - 5
    assert figures["linear"] < figures["silence"] - 5


def test_the_normal_distribution_is_scipys():
    """Guards both tails, the change of formula at 8.9, and levels far beyond any recording."""
    z = np.concatenate([np.linspace(-60, 60, 100_001), [-1e5, -1e-300, 0.0, 1e5]])
    np.testing.assert_allclose(log_normal_cdf(z), special.log_ndtr(z), rtol=1e-12, atol=1e-300)
