"""The longest stretch copied from training, compared with trying every stretch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqmodel.media.music.copies import longest_copies

FRAMES = np.zeros((4, 88), np.uint8)
"""Silence, the lowest key, the highest key, both."""
FRAMES[1, 0] = FRAMES[2, 87] = 1
FRAMES[3] = FRAMES[1] | FRAMES[2]

PIECE = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def by_trying(piece, train):
    """Every stretch of the piece, the longest first, looked for at every place of every piece."""
    for length in range(len(piece), 0, -1):
        stretches = {tuple(piece[t : t + length]) for t in range(len(piece) - length + 1)}
        for other in train:
            for t in range(len(other) - length + 1):
                if tuple(other[t : t + length]) in stretches:
                    return length
    return 0


@given(st.lists(PIECE, max_size=4), st.lists(PIECE, max_size=4))
def test_the_longest_is_found(pieces, train):
    expected = [by_trying(piece, train) for piece in pieces]
    found = longest_copies([FRAMES[p] for p in pieces], [FRAMES[p] for p in train])
    assert found.tolist() == expected


def test_frames_differ_if_their_strikes_differ():
    """Guards against packing 176 numbers as 88."""
    held = np.zeros((2, 176), np.uint8)
    held[:, 5] = held[0, 93] = 1
    again = held.copy()
    again[1, 93] = 1
    assert longest_copies([again], [held]).tolist() == [1]
