"""Random draws: the generators as published, their transforms, dropout; the seed decides all."""

import numpy as np
import pytest
import torch

from seqmodel.kernels.dropout import Dropout
from seqmodel.kernels.noise import dropout_factors, normals
from seqmodel.kernels.uniforms import Uniforms


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


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100_000])
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


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((500,), torch.float32), ((700, 700), torch.float64)],
    ids=["small", "on all"],
)
def test_dropout_scales_what_it_keeps_and_its_gradient(shape, dtype):
    """By draws that follow torch's seed and differ per call; not in evaluation, nor at p = 0."""
    x, drop = torch.full(shape, 3.0, dtype=dtype, requires_grad=True), Dropout(0.25)
    torch.manual_seed(3)
    y, other = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), y)
    assert not torch.equal(other, y)
    assert y.dtype == dtype
    assert y.detach().unique().tolist() == pytest.approx([0.0, 4.0], rel=1e-6)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach() / 3)
    count = y.numel()
    zeros = int((y == 0).sum())
    assert zeros == pytest.approx(0.25 * count, abs=5 * np.sqrt(0.25 * 0.75 * count))
    assert torch.equal(drop.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()


def splitmix64(key, count):
    """The generator as published, one number at a time."""
    state, numbers = key, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        numbers.append(z ^ (z >> 31))
    return numbers


def by_hand(seed, number, count):
    """The uniforms of a piece as exact multiples of 2^-53."""
    (key,) = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64).tolist()
    return np.array([number >> 11 for number in splitmix64(key, count)]) / 2**53


def test_the_generator_is_the_published_one():
    """Its first numbers for the seed 1234567, as other programs give them."""
    assert splitmix64(1234567, 3) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize(("seed", "number"), [(1, 0), (1, 2), (0, 1), (2**70, 0)])
def test_uniforms_follow_the_stated_rule(seed, number):
    ours = Uniforms(seed, number).take(3, 40)
    assert ours.shape == (3, 40)
    np.testing.assert_array_equal(ours.reshape(-1), by_hand(seed, number, 120))
    assert 0.3 < ours.mean() < 0.7


def test_chunks_and_skips_do_not_change_the_stream():
    """Guards against pieces that depend on the chunks in which they are drawn."""
    uniforms = Uniforms(5, 1)
    first = uniforms.take(7)
    uniforms.skip(11)
    rest = uniforms.take(2, 3).reshape(-1)
    whole = by_hand(5, 1, 24)
    np.testing.assert_array_equal(np.concatenate([first, rest]), np.delete(whole, range(7, 18)))
