"""The paired bootstrap: differences it calls real are, and as often as they should be."""

import numpy as np
import pytest
from scipy import stats

from seqmodel.experiment.bootstrap import difference


def some(seed, pieces=60, gap=0.0, spread=0.1):
    """Nats of two models on pieces that differ far more than the models do."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 200, pieces)
    per_frame = random.normal(8, 2, pieces)
    ours = (per_frame + gap + random.normal(0, spread, pieces)) * lengths
    theirs = (per_frame + random.normal(0, spread, pieces)) * lengths
    return ours[None], theirs[None], lengths


def test_the_interval_is_scipys():
    """Frames weigh the same, not pieces; both models are scored on the same resampled pieces."""
    ours, theirs, lengths = some(1, gap=0.05)
    found = difference(ours, theirs, lengths)

    def ratio(gaps, frames, axis):
        return gaps.sum(axis) / frames.sum(axis)

    expected = stats.bootstrap(
        ((ours - theirs)[0], lengths.astype(float)),
        ratio,
        paired=True,
        method="percentile",
        n_resamples=20_000,
        rng=2,
    ).confidence_interval
    assert found.mean == pytest.approx((ours - theirs).sum() / lengths.sum())
    assert found.low == pytest.approx(expected.low, abs=0.003)
    assert found.high == pytest.approx(expected.high, abs=0.003)


def test_equal_models_are_told_apart_one_time_in_twenty():
    """Guards against unpaired resampling, under which hardly any difference is real."""
    told = sum(difference(*some(seed)).real for seed in range(200))
    assert 1e-4 < stats.binom.cdf(told, 200, 0.05) < 1 - 1e-4


def test_a_small_steady_difference_is_real_among_pieces_that_differ_much():
    assert difference(*some(3, gap=0.1)).real
    assert not difference(*some(3, gap=0.1, spread=3.0)).real


def test_nothing_is_told_apart_on_a_handful_of_pieces():
    """One piece resampled is that piece again: an interval of zero width, which excludes 0."""
    for pieces in range(1, 6):
        assert not difference(*some(7, pieces, gap=1.0)).real
    assert difference(*some(7, 6, gap=1.0)).real


def test_seeds_widen_the_interval():
    """Two lucky seeds of a model prove nothing: the interval includes their spread."""
    ours, theirs, lengths = some(4, gap=0.05)
    alone = difference(ours, theirs, lengths)
    seeds = np.concatenate([ours + 0.3 * lengths, ours - 0.3 * lengths])
    together = difference(seeds, theirs, lengths)
    assert together.mean == pytest.approx(alone.mean)
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert not together.real


def test_the_same_numbers_give_the_same_interval():
    assert difference(*some(5)) == difference(*some(5))
