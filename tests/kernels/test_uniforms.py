"""The random stream: the published generator's, however much is taken at a time."""

import numpy as np
import pytest

from seqmodel.kernels.uniforms import Uniforms


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


def test_two_pieces_share_no_numbers():
    pieces = [Uniforms(seed, number).take(50) for seed, number in [(1, 0), (0, 1), (1, 1), (2, 0)]]
    assert len(np.unique(pieces)) == 200
