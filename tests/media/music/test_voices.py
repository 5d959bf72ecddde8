"""Which voice sings which pitch: a distribution, and its cost, recomputed."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise import prepared

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.music.evaluation import assignment_nats, voices_cost
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.published import read_published

R = -1
"""A rest."""


def pieces(voices):
    """Pieces of so many voices that share a few pitches."""
    frame = st.tuples(*[st.sampled_from([R, 60, 61, 64, 72])] * voices)
    return st.lists(frame, min_size=1, max_size=5)


@given(st.integers(1, 4).flatmap(lambda v: st.tuples(pieces(v), pieces(v))))
def test_the_probabilities_of_a_frame_sum_to_1(given):
    """Guards a pitch left to nobody, one forgotten, a context by who sings what."""
    train, (*past, last) = given
    learned = assignment_nats(np.array(train, np.int8), Counter())[1]
    pitches = set(last) - {R}
    ways = [
        way
        for way in itertools.product([R, *pitches], repeat=len(last))
        if set(way) - {R} == pitches
    ]
    nats = [assignment_nats(np.array([*past, way], np.int8), learned)[0][-1] for way in ways]
    assert math.isclose(sum(math.exp(-n) for n in nats), 1.0)
    assert len(ways) == 1 or all(n > 0 for n in nats)


def test_a_frame_is_scored_before_it_is_learned():
    """Guards counts that know the frame itself or those after it."""
    voices = np.array([[60, 55], [60, 55], [55, 60], [60, 60]], np.int8)
    nats = [assignment_nats(voices[:n], Counter())[0] for n in range(1, 5)]
    for n in range(4):
        assert np.array_equal(nats[n], nats[3][: n + 1])


def test_a_duet_by_hand():
    """By hand: with n counts in a context, an option of k with c of them has (c + 1/k) / (n + 1).

    The upper voice has two options wherever both pitches sound, and leaves one to the lower. In a
    unison, each has two as long as the upper one sings.
    """
    voices = [[64, 60], [64, 60], [64, 60], [60, 64], [67, 67], [67, 67], [67, R], [R, R]]
    half = Fraction(1, 2)
    by_hand = [
        half,  # after silence
        half,  # both held, for the first time
        (1 + half) / 2,  # again
        half / 3,  # crossed after two that were not
        half * half,  # both leap
        half * half,  # both held
        ((1 + half) / 2) * (half / 2),  # so held again, but the lower one rests
        1,  # nothing to choose
    ]
    nats, own = assignment_nats(np.array(voices, np.int8), Counter())
    np.testing.assert_allclose(np.exp(-nats), [float(p) for p in by_hand], rtol=1e-12)
    again = assignment_nats(np.array(voices, np.int8), own)[0]
    assert again[0] == pytest.approx(-math.log((1 + 0.5) / 2))


@pytest.fixture
def chorales(tmp_path):
    random = np.random.default_rng(0)
    for split in ("train", "valid"):
        found = np.empty(3, object)
        for k in range(3):
            found[k] = random.integers(59, 64, (20 + k, 4)).astype(float)
            found[k][found[k] == 59] = -1
        np.savez(tmp_path / f"{split}.npz", **{split: found})
    prepared(tmp_path, tmp_path / "d", PianoRollFrames(Grid.of_beats(4)))
    return tmp_path / "d"


def test_train_is_learned_first_and_each_piece_by_itself(chorales):
    """Guards against a piece that learns from those before it in its own split."""
    dataset = open_dataset(chorales)
    train, valid = (
        [np.array(piece.facts["voices"], np.int8) for piece in dataset[split].pieces]
        for split in ("train", "valid")
    )
    learned = Counter()
    for voices in train:
        learned += assignment_nats(voices, learned)[1]
    nats, notes = voices_cost(dataset["valid"], dataset["train"])
    expected = sum(assignment_nats(voices, learned)[0].sum() for voices in valid)
    assert nats == pytest.approx(expected)
    assert notes == sum(voices.size for voices in valid) == 4 * (20 + 21 + 22)
    alone = voices_cost(dataset["valid"][2:], dataset["train"])[0]
    assert alone == pytest.approx(assignment_nats(valid[2], learned)[0].sum())


@pytest.mark.parametrize("wrong", ["[[60, 60, 60, 60]]", "60", '"abc"', "[[1, 2], [3]]", "[[999]]"])
def test_voices_that_do_not_sing_the_notes(chorales, wrong):
    """Guards against an index edited by hand: it is no part of a piece's hash."""
    index = chorales / "valid.jsonl"
    first, *rest = index.read_text().splitlines()
    index.write_text("\n".join([first.split('"voices"')[0] + f'"voices": {wrong}}}', *rest]))
    dataset = open_dataset(chorales)
    with pytest.raises(SeqmodelError, match="piece 0 of valid do not sing its notes"):
        voices_cost(dataset["valid"], dataset["train"])


def test_the_chorales(shared_data):
    """The figure in docs: a context that no longer holds a voice to its line costs more."""
    chorales = read_published(shared_data / "music/jsb16/Jsb16thSeparated.json").pieces
    learned = Counter()
    for roll in chorales["train"]:
        learned += assignment_nats(roll.pitches, learned)[1]
    nats = np.concatenate([assignment_nats(r.pitches, learned)[0] for r in chorales["valid"]])
    assert round(nats.mean(), 4) == 0.0668
