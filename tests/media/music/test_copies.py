"""Copies across splits and the longest one, compared with looking every window up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmodel.media.music import copies
from seqmodel.media.music.copies import longest_copies, shares_in_train
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid


class Pieces(list):
    """Pieces in memory."""

    @property
    def frames(self):
        return sum(map(len, self))

    @property
    def frame(self):
        size = self[0].shape[1]
        return PianoRollFrames(Grid.of_beats(4), onsets=size == 176, kit=size == 47)

    def read_rows(self, k):
        return self.frame.encode(self[k])


def by_looking_up(split, train, sizes):
    """The share of frames in windows of such sizes that train has too, each as its text."""

    def windows(piece, n):
        for t in range(len(piece) - n + 1):
            window = piece[t : t + n].reshape(n, -1, 88)
            notes = np.flatnonzero(window[:, 0].any(axis=0))
            if (window[:, 0] != window[:1, 0]).any() or window[1:, 1:].any():  # so there are notes
                yield t, (window[..., notes[0] : notes[-1] + 1].tobytes(), notes[-1] - notes[0])

    inside = [np.zeros(len(piece), bool) for piece in split]
    for n in sizes:
        seen = {window for piece in train for _, window in windows(piece, n)}
        for piece, mask in zip(split, inside, strict=True):
            for t, window in windows(piece, n):
                mask[t : t + n] |= window in seen
    return sum(mask.sum() for mask in inside) / sum(map(len, split))


CHORDS = [[0, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [1, 1, 0, 1, 0]]
"""Silence, a chord, the same a semitone above, another."""

FEW = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=8
)  # a chord, and for how long it is held


@settings(max_examples=25)
@given(
    st.lists(st.tuples(FEW, st.integers(0, 83)), min_size=1, max_size=4),
    st.lists(st.tuples(FEW, st.integers(0, 83)), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([1, 30, 2**18]),
)
def test_every_window_is_found_in_any_key(split, train, onsets, at_once):
    """Guards the key of each window, rests, strikes, the ends of pieces, a part at a time."""

    def piece(chords, up):
        frames = np.zeros((sum(length for _, length in chords), 88), np.uint8)
        frames[:, up : up + 5] = np.repeat(
            [CHORDS[k] for k, _ in chords], [n for _, n in chords], axis=0
        )
        struck = frames & (np.diff(frames, axis=0, prepend=0) != 0)
        return np.concatenate([frames, struck], axis=1) if onsets else frames

    ours, theirs = (Pieces(piece(*p) for p in some) for some in (split, train))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "QUERY_FRAMES", at_once)
        patch.setattr(copies, "BLOCK", at_once)
        found = shares_in_train({"valid": ours}, theirs)["valid"]
    assert found == {
        "8": by_looking_up(ours, theirs, [8, 16, 32]),
        "16": by_looking_up(ours, theirs, [16, 32]),
        "32": by_looking_up(ours, theirs, [32]),
    }


def test_long_pieces_are_looked_for_one_by_one(monkeypatch):
    """Memory is bounded by frames, however many are in a block."""
    monkeypatch.setattr(copies, "QUERY_FRAMES", 60)
    monkeypatch.setattr(copies, "BLOCK", 10)
    split = Pieces([np.zeros((length, 88), np.uint8) for length in (70, 80, 20, 30, 20, 5)])
    blocks = [names for names, _ in copies._query_blocks({"valid": split})]
    assert [len(names) for names in blocks] == [1, 1, 3, 1]


def test_drums_are_compared_as_they_stand():
    """Guards against a kit in some key: the same rhythm on the next sound is another."""
    hits = np.zeros((8, 47), np.uint8)
    hits[::2, [3, 7]] = 1
    splits = {"valid": Pieces([hits]), "test": Pieces([hits, 1 - hits])}
    found = shares_in_train(splits, Pieces([hits.copy()]))
    assert (found["valid"]["8"], found["test"]["8"]) == (1, 0.5)
    assert shares_in_train(splits, Pieces([np.roll(hits, 1, axis=1)]))["valid"]["8"] == 0


def test_the_lowest_note_is_found_however_many_sound():
    """Guards words that a float64 rounds up to the next power of two."""
    words = [0, *(2**k for k in range(64)), *(2**k - 1 for k in range(54, 65))]
    found = copies._first_bit(np.array(words, np.uint64))
    assert found.tolist() == [64 - word.bit_length() for word in words]


class Counted(np.ndarray):
    """Rows that count how often they are measured."""

    measured = 0

    def __len__(self):
        Counted.measured += 1
        return super().__len__()


def test_the_time_grows_with_the_pieces_not_their_square(monkeypatch):
    """Measuring all pieces held at each new one made preparing a large collection crawl."""
    pieces = Pieces(np.zeros((1, 88), np.uint8) for _ in range(200))
    monkeypatch.setattr(Pieces, "read_rows", lambda some, k: np.zeros((1, 11), "u1").view(Counted))
    assert len([*copies._blocks(pieces)]) == 1
    assert Counted.measured < 5 * len(pieces)


FRAMES = np.zeros((5, 176), np.uint8)
"""Silence, the lowest key, the highest key, both, both with the lowest one struck."""
FRAMES[[1, 3, 4], 0] = FRAMES[[2, 3, 4], 87] = FRAMES[4, 88] = 1
PIECE = st.lists(st.integers(0, 4), min_size=1, max_size=12)


def by_trying(piece, train):
    """The longest stretch of a piece that is at any place of any other."""
    for length in range(len(piece), 0, -1):
        stretches = {tuple(piece[t : t + length]) for t in range(len(piece) - length + 1)}
        for other in train:
            for t in range(len(other) - length + 1):
                if tuple(other[t : t + length]) in stretches:
                    return length
    return 0


@given(st.lists(PIECE, max_size=4), st.lists(PIECE, max_size=4))
def test_the_longest_copy_is_found(pieces, train):
    """Guards against packing 176 numbers as 88, too: frames differ if their strikes do."""
    expected = [by_trying(piece, train) for piece in pieces]
    found = longest_copies([FRAMES[p] for p in pieces], [FRAMES[p] for p in train])
    assert found.tolist() == expected
