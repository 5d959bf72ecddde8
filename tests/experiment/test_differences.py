"""Which differences are real: as few false verdicts as promised, and bounded memory."""

import numpy as np
import pytest
from allocation import peak_of
from verdict_rates import LIKELY, Runs, behind_the_first, joint_rate, rate

from seqmodel.experiment.results import quantile


def some(seed, pieces=60, gap=0.0, of_seeds=0.0, seeds=3):
    """Nats of two models, the second worse by `gap`, on pieces that differ far more."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 200, pieces)
    nats = random.normal(8, 2, pieces) + random.normal(0, 0.1, (2, seeds, pieces))
    nats = nats + random.normal(0, of_seeds, (2, seeds, 1)) + np.array([0, gap])[:, None, None]
    return nats * lengths, lengths


@pytest.mark.parametrize(
    ("models", "freedom", "expected"),
    [(2, 1, 12.7062), (2, 4, 2.77645), (3, 6, 3.06827), (9, 9, 3.95606), (5, 1e6, 2.72777)],
)
def test_quantiles_are_those_of_student_and_tukey(models, freedom, expected):
    """Against scipy.stats.t.ppf(0.975, 4) and studentized_range.ppf(0.95, 9, 9) / sqrt(2)."""
    assert quantile(models, freedom, 0.05) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "runs",
    [
        Runs(2, 2, 30, LIKELY),
        Runs(2, 3, 30, 0.2, unequal=5),
        Runs(3, 2, 6, 0.2),
        Runs(9, 5, 6, 0.0),
        Runs(9, 3, 30, LIKELY, unequal=5),
    ],
)
def test_equal_models_are_told_apart_one_time_in_twenty_at_most(runs):
    """Guards against verdicts on the luck of a seed, of a few pieces, or of the best of many."""
    assert rate(runs, 400, all_pairs=True) < 0.05 + 2.5 * (0.05 * 0.95 / 400) ** 0.5


def test_several_datasets_tell_apart_what_one_cannot():
    """Guards against margins that are added up, and against false verdicts of their mean."""
    runs = Runs(3, 3, 30, LIKELY)
    one, four = (joint_rate(runs, datasets, 150, gap=0.1) for datasets in (1, 4))
    assert one < 0.5
    assert four > 0.8


def test_a_difference_is_found_and_more_seeds_narrow_the_interval():
    """Guards against caution without end, and draws that take one seed of several."""
    assert rate(Runs(3, 3, 77, LIKELY), 200, gap=0.2) > 0.9
    widths = [
        np.median([behind_the_first(*some(k, of_seeds=0.1, seeds=n))[0].margin for k in range(60)])
        for n in (3, 6, 12)
    ]
    assert widths[0] > 1.5 * widths[1] > 1.5 * 1.3 * widths[2]


def test_the_figure_is_of_frames_and_the_margin_of_paired_pieces():
    """Recomputed for seeds that agree: the jackknife of a ratio, piece left out by piece."""
    nats, lengths = some(1, pieces=40, gap=0.05)
    nats = nats[:, :1].repeat(2, axis=1)
    found = behind_the_first(nats, lengths)[0]
    gaps = nats[1, 0] - nats[0, 0]
    assert found.mean == pytest.approx(gaps.sum() / lengths.sum())
    without = [np.delete(gaps, k).sum() / np.delete(lengths, k).sum() for k in range(40)]
    error = ((np.array(without) - found.mean) ** 2).sum() * 39 / 40
    squares = lengths.astype(float) ** 2
    freedom = squares.sum() ** 2 / (squares**2).sum() - 1
    expected = error**0.5 * quantile(2, np.floor(freedom * 10) / 10)
    assert found.margin == pytest.approx(expected, rel=1e-9)


def test_one_seed_or_a_handful_of_pieces_is_no_verdict():
    """However large the difference: one piece, or one seed, has no variance to compare it with."""
    for pieces, seeds in ((1, 3), (5, 3), (60, 1), (1, 1)):
        found = behind_the_first(*some(7, pieces, gap=1.0, seeds=seeds))[0]
        assert (found.conclusive, found.real) == (False, False)
        assert found.mean == pytest.approx(1, abs=0.3)
    assert behind_the_first(*some(7, 6, gap=1.0))[0].real
    nats, lengths = some(7, gap=1.0)
    one_diverged = behind_the_first([nats[0], nats[1, :1], nats[1]], lengths)
    assert [found.real for found in one_diverged] == [False, True]


def test_ten_thousand_pieces_take_little_memory():
    """The bootstrap of older versions took 2.4 GB."""
    nats, lengths = some(2, pieces=10_000)
    assert peak_of(lambda: behind_the_first(nats, lengths)) < 20e6
