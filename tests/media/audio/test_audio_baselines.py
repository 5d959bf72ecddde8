"""Trivial models of audio, recomputed with scipy.stats and a FLAC on disk; 8-bit mu-law."""

import math

import numpy as np
import pytest
import soundfile
from allocation import peak_of
from noise import RATE, in_memory
from scipy import special, stats

from seqmodel.media.audio import frames as audio_frames
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.evaluation import audio_nats_per_frame, log_normal_cdf
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.sampling import AudioSampling
from seqmodel.media.samples import SampleRequest

STEP = 1 / 32768
NAMES = ["silence", "gaussian"]
"""Of those that are distributions."""


def split_of(*pieces, frame_size=10, rate=8000, **frame):
    """A split of pieces, int16 levels (N,) or float32 samples."""
    dtype = str(pieces[0].dtype)
    definition = AudioFrames(rate, frame_size, 2 * frame_size, dtype, **frame)
    return in_memory(definition, *pieces)


def voice(seed, frames, loud=6000):
    """Levels of coloured noise that is partly predictable, with a mean other than 0."""
    random = np.random.default_rng(seed)
    line = random.normal(0, loud / 3, 10 * frames + 2)
    for t in range(2, len(line)):
        line[t] += 1.4 * line[t - 1] - 0.7 * line[t - 2]
    return np.clip(line[2:] / 2 + 300, -32768, 32767).astype(np.int16)


def distributions(train):
    """Name -> the distribution of every sample, by scipy."""
    target = np.concatenate(train) / 32768
    return {
        "silence": stats.laplace(0, np.abs(target).mean()),
        "gaussian": stats.norm(target.mean(), target.std()),
    }


def level_log_probability(distribution, levels):
    """The log of a difference of the CDF, taken in the half where it does not cancel."""
    low, high = (levels - 0.5) * STEP, (levels + 0.5) * STEP
    cdf, sf = distribution.logcdf, distribution.logsf
    with np.errstate(divide="ignore"):  # in the half that is not used
        below = cdf(high) + np.log1p(-np.exp(cdf(low) - cdf(high)))
        above = sf(low) + np.log1p(-np.exp(sf(high) - sf(low)))
    inside = np.where(low > distribution.mean(), above, below)
    inside = np.where(levels == -32768, cdf(high), inside)
    return np.where(levels == 32767, sf(low), inside)


TRAIN = [voice(1, 60), voice(2, 7), voice(3, 1), voice(4, 33)]
VALID = [voice(5, 21), voice(6, 2), voice(7, 40)]
EXTREME = [np.array([0, 32767, -32768, 32766, -32767, 20000, -20000, 1, -1, 0], np.int16)]


@pytest.mark.parametrize(("split", "frame_size"), [(VALID, 10), (VALID, 1), (EXTREME, 5)])
def test_every_figure_is_the_recomputed_one(split, frame_size):
    """Also far out, at full scale, where a plain difference of probabilities would give log 0."""
    standard = {"frame_size": frame_size, "mean": 0.01, "deviation": 0.2}
    train, frame = split_of(*TRAIN, **standard), AudioFrames(8000, **standard)
    ours = [
        audio_nats_per_frame(train, split_of(*split, **standard), frame, discrete=discrete)
        for discrete in (False, True)
    ]
    assert [list(figures) for figures in ours] == [NAMES, [*NAMES, "flac"]]
    levels = np.concatenate(split)
    frames = len(levels) / frame_size
    for name, distribution in distributions(TRAIN).items():
        density = distribution.logpdf(levels / 32768) + math.log(0.2)
        assert ours[0][name] == pytest.approx(-density.sum() / frames, rel=1e-9), name
        chances = level_log_probability(distribution, levels.astype(float))
        assert ours[1][name] == pytest.approx(-chances.sum() / frames, rel=1e-9), name


def test_flac_is_the_size_of_a_file_of_all_pieces(tmp_path, recordings):
    """Of levels exactly, and at rates that no FLAC has too."""
    line = np.concatenate(recordings["train"])
    soundfile.write(tmp_path / "all.flac", line, 8000, "PCM_16", compression_level=1.0)
    np.testing.assert_array_equal(soundfile.read(tmp_path / "all.flac", dtype="int16")[0], line)
    bits = 8 * (tmp_path / "all.flac").stat().st_size
    for rate in (8000, 192_000, 655_351):
        split = split_of(*recordings["train"], rate=rate)
        told = audio_nats_per_frame(split, split, split.frame, discrete=True)["flac"]
        assert told == pytest.approx(bits * math.log(2) / (len(line) / 10), rel=1e-12)
    soundfile.write(tmp_path / "usual.flac", line, 8000, "PCM_16")
    assert (tmp_path / "usual.flac").stat().st_size > bits / 8


def test_blocks_change_no_figure(monkeypatch):
    """Guards against a block that is left out or counts twice."""
    train, valid = split_of(*TRAIN), split_of(*VALID)
    whole = audio_nats_per_frame(train, valid, valid.frame, discrete=True)
    for block in (1, 30, 100, 10_000):
        monkeypatch.setattr(audio_frames, "BLOCK", block)
        cut = audio_nats_per_frame(train, valid, valid.frame, discrete=True)
        assert cut == pytest.approx(whole, rel=1e-11)


def test_an_hour_takes_no_more_memory_than_a_block():
    """Guards against a whole piece in float64, 12 MB, and against a FLAC in memory."""
    long = split_of(np.resize(voice(1, 1000), 1_500_000))
    assert peak_of(lambda: audio_nats_per_frame(long, long, long.frame, discrete=True)) < 11e6


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
    assert {n: quiet[n] for n in NAMES} == pytest.approx({n: 10 * sample[n] for n in NAMES})
    assert all(quiet[name] < loud[name] < math.inf for name in NAMES)


def test_samples_beyond_full_scale_count_as_loudest_and_stay_finite():
    """Guards against what resampling does to a loud recording: 32-bit samples above 1."""
    beyond = np.array([0, 1.0, 1.2, -1.0, -1.3, 0.5, 0.1, 1e-6, 0, 0], np.float32)
    train = split_of(voice(1, 60))
    figures = audio_nats_per_frame(train, split_of(beyond), train.frame, discrete=True)
    assert all(0 < figures[name] < math.inf for name in NAMES)
    loudest = split_of(np.array([1.2] * 10, np.float32))
    figures = audio_nats_per_frame(train, loudest, train.frame, discrete=True)
    tail = distributions([voice(1, 60)])["gaussian"].logsf(1.2 - STEP / 2)
    assert figures["gaussian"] == pytest.approx(-10 * tail, rel=1e-6)


def test_the_normal_distribution_is_scipys():
    """Guards both tails, the change of formula at 8.9, and levels far beyond any recording."""
    z = np.concatenate([np.linspace(-60, 60, 100_001), [-1e5, -1e-300, 0.0, 1e5]])
    np.testing.assert_allclose(log_normal_cdf(z), special.log_ndtr(z), rtol=1e-12, atol=1e-300)


FRAME = AudioFrames(RATE, dtype="mu-law")


def level(sample):
    """By the equation, a sample at a time."""
    companded = math.copysign(math.log1p(255 * abs(sample)) / math.log(256), sample)
    return math.floor(128 * companded)


def test_every_16_bit_sample_has_the_level_of_the_equation():
    """Guards the curve, its sign, and which end of a step belongs to it."""
    samples = np.arange(-32768, 32768) / 32768
    expected = [level(sample) for sample in samples.tolist()]
    assert (min(expected), max(expected), len(set(expected))) == (-128, 127, 256)
    np.testing.assert_array_equal(mu_law.encode(samples), expected)
    np.testing.assert_array_equal(mu_law.encode(samples.astype(np.float32)), expected)
    assert mu_law.encode(np.array([0.0, -1.5, 1.0, 7.0])).tolist() == [0, -128, 127, 127]


def test_a_level_stands_for_the_middle_of_its_step():
    """In 16 bits: a dataset's samples are then multiples of a step, as every encoder expects."""
    levels = np.arange(-128, 128)
    f = (levels + 0.5) / 128
    middle = np.copysign((256 ** np.abs(f) - 1) / 255, f)
    found = mu_law.decode(levels.astype(np.int8)).astype(np.float64)
    np.testing.assert_array_equal(found * 32768 % 1, 0)
    assert np.abs(found - middle).max() <= 0.5 / 32768
    np.testing.assert_array_equal(mu_law.encode(found), levels)


def test_a_primer_is_companded(tmp_path):
    """Guards against a model that hears samples it never saw in training."""
    samples = np.random.default_rng(3).uniform(-1, 1, (40, 10)).astype(np.float32)
    np.save(tmp_path / "prime.npy", samples)
    soundfile.write(tmp_path / "prime.wav", samples.ravel(), RATE, subtype="FLOAT")
    for path in tmp_path.iterdir():
        primer = AudioSampling(FRAME, SampleRequest("wav", prime=path)).primer
        np.testing.assert_array_equal(primer, mu_law.decode(mu_law.encode(samples)))


def test_baselines_are_probabilities_of_the_256_levels():
    """Recomputed with scipy from the steps' ends; every level, so that they must sum to one."""
    random = np.random.default_rng(5)
    train = mu_law.encode(random.laplace(0.02, 0.1, 3000))
    x = mu_law.decode(train).astype(np.float64)
    by_name = distributions([32768 * x])
    f = np.arange(-127, 128) / 128
    ends = np.concatenate([[-np.inf], np.copysign((256 ** np.abs(f) - 1) / 255, f), [np.inf]])
    total = dict.fromkeys(NAMES, 0.0)
    frame = AudioFrames(RATE, frame_size=1, dtype="mu-law")
    for k in range(256):
        one = in_memory(frame, np.array([k - 128], np.int8))
        nats = audio_nats_per_frame(in_memory(frame, train), one, frame, discrete=True)
        assert list(nats) == NAMES  # no FLAC has these levels
        for name, distribution in by_name.items():
            total[name] += math.exp(-nats[name])
            low, high = ends[k : k + 2] if ends[k + 1] <= 0 else -ends[k : k + 2][::-1]
            if name == "gaussian" and ends[k] >= 0:  # mirrored about the mean, not about 0
                low, high = low + 2 * x.mean(), high + 2 * x.mean()
            chance = distribution.cdf(high) - distribution.cdf(low)
            assert nats[name] == pytest.approx(-math.log(chance), rel=1e-6), (name, k)
    assert total == pytest.approx({"silence": 1, "gaussian": 1}, abs=1e-9)
