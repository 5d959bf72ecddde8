"""Batches: every piece once, in an order set by seed and epoch alone, padded with silence."""

import numpy as np
import pytest

from seqmodel.data import batches

LENGTHS = np.random.default_rng(0).integers(1, 400, 203)


def plan(seed=1, epoch=0, size=8):
    return [batch.tolist() for batch in batches.shuffled(LENGTHS, size, seed, epoch)]


@pytest.mark.parametrize("size", [1, 8, 203, 1000])
def test_every_piece_comes_once_an_epoch(size):
    """A dropped last batch would leave pieces unseen; a duplicate would count twice."""
    for some in (plan(size=size), batches.by_length(LENGTHS, size)):
        assert sorted(np.concatenate(some)) == list(range(203))
        assert [len(batch) for batch in some].count(size) >= 203 // size
        assert all(0 < len(batch) <= size for batch in some)


def test_order_and_makeup_depend_on_seed_and_epoch_alone():
    """Guards resuming; and against the same pieces sharing every gradient."""
    assert plan() == plan()
    assert plan() not in (plan(seed=2), plan(epoch=1), plan(seed=0, epoch=1))
    company = [{tuple(sorted(batch)) for batch in plan(epoch=epoch)} for epoch in (0, 1)]
    assert len(company[0] & company[1]) < len(company[0]) / 4


def test_similar_lengths_share_a_batch_and_long_pieces_are_not_last():
    """Random batches of these lengths would spend nearly half the work on padding."""
    longest = [LENGTHS[batch].max() for batch in plan()]
    assert np.dot(longest, [len(batch) for batch in plan()]) < 1.15 * LENGTHS.sum()
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.5
    ordered = [LENGTHS[batch].max() for batch in batches.by_length(LENGTHS, 8)]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize("semitones", [(0, 0, 0), (-5, 6, 2)])
def test_a_batch_holds_its_pieces_transposed_and_padded_with_silence(dataset, rolls, semitones):
    indices = np.array([4, 1, 9])
    batch = batches.load(dataset["train"], indices, np.array(semitones) if any(semitones) else None)
    assert (batch.frames.shape, batch.frames.dtype) == ((30, 3, 88), np.uint8)
    assert batch.lengths.tolist() == [30, 1, 14]
    for k, i in enumerate(indices):
        expected = np.zeros((30, 88))
        for t, note in np.argwhere(rolls["train"][i]):  # all far enough from the ends
            expected[t, note + semitones[k]] = 1
        np.testing.assert_array_equal(batch.frames[:, k], expected)


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

    def joined(share=0.75, epoch=0):
        batch_numbers = range(1, len(pieces) + 1)
        return [batches.continues(pieces, share, 1, epoch, batch) for batch in batch_numbers]

    assert joined()[1:3] == [False, False]
    assert not joined()[-1]  # there is no such batch
    assert 0.7 < np.mean(joined()) < 0.8
    assert joined() == joined() != joined(epoch=1)
    assert not any(joined(share=0.0))
