"""Random draws: the generator and its transforms, recomputed; the distribution; the seed."""

import numpy as np
import pytest
import torch
from scipy import stats

from seqmodel.kernels.noise import dropout_factors, normals


def words(seed, turns):
    """SFC32's output (turns, 16) as PractRand defines it, from the same states."""
    torch.manual_seed(seed)
    state = torch.empty(4, 16, dtype=torch.int32).random_(-(1 << 31), 1 << 31)
    a, b, c, counter = state.numpy().view(np.uint32)
    drawn = np.empty((turns, 16), np.uint32)
    for turn in range(turns):
        drawn[turn] = a + b + counter
        counter = counter + np.uint32(1)
        a = b ^ (b >> 9)
        b = c + (c << 3)
        c = ((c << 21) | (c >> 11)) + drawn[turn]
    return drawn


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1000])
def test_normals_are_the_box_muller_transform_of_the_words(count):
    """In float64 from the words' floats: a missing term or a lost octant would show."""
    pairs = words(3, 2 * -(-count // 32)).reshape(-1, 2, 16)
    half = np.float32(0.5)
    radius = np.sqrt(-2 * np.log((pairs[:, 0].astype(np.float32) + half) / np.float64(2**32)))
    angle = (pairs[:, 1] & 0x1FFFFFFF).astype(np.float32) + half
    angle = np.pi / 4 * angle / np.float64(2**29)
    x, y = np.cos(angle), np.sin(angle)
    swapped, left, down = ((pairs[:, 1] >> bit & 1).astype(int) for bit in (31, 30, 29))
    x, y = np.where(swapped, y, x), np.where(swapped, x, y)
    expected = np.stack([radius * x * (1 - 2 * left), radius * y * (1 - 2 * down)], 1)
    torch.manual_seed(3)
    drawn = normals(count)
    assert (drawn.shape, drawn.dtype) == ((count,), torch.float32)
    np.testing.assert_allclose(drawn, expected.ravel()[:count], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("count", [1, 33, 1000])
@pytest.mark.parametrize("kept", [1, 30_000, 65_535])
def test_factors_compare_the_halves_of_the_words(count, kept):
    drawn = words(4, -(-count // 32))
    halves = np.stack([drawn & 0xFFFF, drawn >> 16], 1).ravel()[:count]
    torch.manual_seed(4)
    factors = dropout_factors(count, kept)
    np.testing.assert_array_equal(factors, np.where(halves < kept, np.float32(65536 / kept), 0))


def test_normals_are_normal_and_independent():
    """Overall, in the far tail, between neighbours, within a generator and within a pair."""
    torch.manual_seed(0)
    z = normals(4_000_000).numpy().astype(np.float64)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    for limit in (3, 4, 4.5):
        expected = len(z) * 2 * stats.norm.sf(limit)
        assert abs((abs(z) > limit).sum() - expected) < 4 * np.sqrt(expected)
    for lag in (1, 2, 15, 16, 17, 32, 64):
        for power in (1, 2):
            a, b = z[lag:] ** power, z[:-lag] ** power
            assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(len(a)), (lag, power)


def test_draws_follow_torchs_seed_and_differ_per_call():
    torch.manual_seed(5)
    first, second = normals(1000), normals(1000)
    torch.manual_seed(5)
    assert torch.equal(normals(1000), first)
    assert not torch.isin(first, second).any()
