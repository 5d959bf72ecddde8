"""Batches: every piece once, in an order set by seed and epoch alone, padded with silence."""

import numpy as np
import pytest

from seqmodel.data import batches

LENGTHS = np.random.default_rng(0).integers(1, 400, 203)


def plan(seed=1, epoch=0, size=8):
    return batches.shuffled(LENGTHS, size, seed, epoch)


@pytest.mark.parametrize("size", [1, 8, 203, 1000])
def test_every_piece_comes_once_an_epoch(size):
    """A dropped last batch would leave pieces unseen; a duplicate would count twice."""
    for some in (plan(size=size), batches.in_order(LENGTHS, size)):
        assert sorted(np.concatenate(some)) == list(range(203))
        assert [len(batch) for batch in some].count(size) >= 203 // size
        assert all(0 < len(batch) <= size for batch in some)


def test_the_order_depends_on_seed_and_epoch_alone():
    """Resuming rebuilds the plan: it must be the same, whatever was drawn in between."""
    first = [batch.tolist() for batch in plan()]
    np.random.default_rng().random(10)
    assert [batch.tolist() for batch in plan()] == first
    for other in (plan(seed=2), plan(epoch=1), plan(seed=0, epoch=1)):
        assert [batch.tolist() for batch in other] != first


def test_the_makeup_of_batches_changes_between_epochs():
    """If only the order of batches changed, the same pieces would share every gradient."""
    company = [{tuple(sorted(batch)) for batch in plan(epoch=epoch)} for epoch in (0, 1)]
    assert len(company[0] & company[1]) < len(company[0]) / 4


def test_similar_lengths_share_a_batch_and_long_pieces_are_not_last():
    """Random batches of these lengths would spend nearly half the work on padding."""
    work = sum(len(batch) * LENGTHS[batch].max() for batch in plan())
    assert work < 1.15 * LENGTHS.sum()
    longest = [LENGTHS[batch].max() for batch in plan()]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.5
    ordered = [LENGTHS[batch].max() for batch in batches.in_order(LENGTHS, 8)]
    assert ordered == sorted(ordered)


def test_a_batch_holds_its_pieces_padded_with_silence(dataset, rolls):
    indices = np.array([4, 1, 9])
    batch = batches.load(dataset["train"], indices)
    assert (batch.frames.shape, batch.frames.dtype) == ((30, 3, 88), np.uint8)
    assert batch.lengths.tolist() == [30, 1, 14]
    for k, i in enumerate(indices):
        roll = rolls["train"][i]
        np.testing.assert_array_equal(batch.frames[: len(roll), k], roll)
        assert not batch.frames[len(roll) :, k].any()


def test_transposed_pieces_keep_their_shape_in_time(dataset, rolls):
    batch = batches.load(dataset["train"], np.array([2, 3]), np.array([-5, 6]))
    for k, (i, semitones) in enumerate([(2, -5), (3, 6)]):
        roll = rolls["train"][i]
        moved = np.zeros_like(roll)
        for t, note in np.argwhere(roll):  # all far enough from the ends not to be folded
            moved[t, note + semitones] = 1
        np.testing.assert_array_equal(batch.frames[: len(roll), k], moved)


def test_each_batch_and_epoch_draws_anew_from_all_twelve_keys(dataset):
    def drawn(*place):
        return batches.random_variants(dataset.frame, 1200, *place)

    keys = drawn(1, 2, 3)
    values, counts = np.unique(keys, return_counts=True)
    assert values.tolist() == list(range(-5, 7))
    assert ((counts - 100) ** 2 / 100).sum() < 31  # chi-square, 11 degrees: p = 0.001
    np.testing.assert_array_equal(keys, drawn(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert (keys != drawn(*other)).mean() > 0.8


def test_a_window_is_a_slice_of_the_whole_batch(dataset):
    """Guards against every window of a piece being its first, which training would not notice."""
    split, indices = dataset["train"], np.array([2, 0, 4, 1])
    whole = batches.load(split, indices)
    for begin, window in ((0, 5), (5, 5), (20, 7), (7, None)):
        part = batches.load(split, indices, begin=begin, window=window)
        stop = None if window is None else begin + window
        np.testing.assert_array_equal(part.frames, whole.frames[begin:stop])
        np.testing.assert_array_equal(part.lengths, whole.lengths - begin)


def test_a_share_of_equally_large_batches_goes_on():
    """Guards against joining rows to other rows' ends, always or never, and a stateful choice."""
    pieces = [np.arange(size) for size in [4, 4, 3, 4] + 2000 * [4]]
    joined = [batches.goes_on(pieces, 0.75, 1, 0, batch) for batch in range(1, len(pieces) + 1)]
    assert joined[1:3] == [False, False]
    assert not joined[-1]  # there is no such batch
    assert 0.7 < np.mean(joined) < 0.8
    assert joined == [
        batches.goes_on(pieces, 0.75, 1, 0, batch) for batch in range(1, len(pieces) + 1)
    ]
    assert joined != [
        batches.goes_on(pieces, 0.75, 1, 1, batch) for batch in range(1, len(pieces) + 1)
    ]
    assert not any(batches.goes_on(pieces, 0.0, 1, 0, batch) for batch in range(1, len(pieces)))
