"""8-bit mu-law: the published curve, round trips, primers, and baselines of its levels."""

import math

import numpy as np
import pytest
import soundfile
from noise import RATE, in_memory
from scipy import stats

from seqmodel.media.audio import mu_law
from seqmodel.media.audio.evaluation import audio_nats_per_frame
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.sampling import AudioSampling
from seqmodel.media.samples import SampleRequest

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
    f = np.arange(-127, 128) / 128
    ends = np.concatenate([[-np.inf], np.copysign((256 ** np.abs(f) - 1) / 255, f), [np.inf]])
    silence = stats.laplace(0, np.abs(x).mean())
    gaussian = stats.norm(x.mean(), x.std())
    total = dict.fromkeys(("silence", "gaussian"), 0.0)
    frame = AudioFrames(RATE, frame_size=1, dtype="mu-law")
    for k in range(256):
        one = in_memory(frame, np.array([k - 128], np.int8))
        nats = audio_nats_per_frame(in_memory(frame, train), one, frame, discrete=True)
        assert list(nats) == ["silence", "gaussian"]  # no FLAC has these levels
        for name, distribution in (("silence", silence), ("gaussian", gaussian)):
            total[name] += math.exp(-nats[name])
            low, high = ends[k : k + 2] if ends[k + 1] <= 0 else -ends[k : k + 2][::-1]
            if name == "gaussian" and ends[k] >= 0:  # mirrored about the mean, not about 0
                low, high = low + 2 * x.mean(), high + 2 * x.mean()
            chance = distribution.cdf(high) - distribution.cdf(low)
            assert nats[name] == pytest.approx(-math.log(chance), rel=1e-6), (name, k)
    assert total == pytest.approx({"silence": 1, "gaussian": 1}, abs=1e-9)
