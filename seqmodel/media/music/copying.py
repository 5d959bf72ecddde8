"""How much of a piece is copied: the longest run of frames that it shares with training data."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def longest_copies(
    pieces: Iterable[NDArray[np.uint8]], train: Iterable[NDArray[np.uint8]]
) -> NDArray[np.int64]:
    """For each piece the length (n,), in frames, of its longest run that is in a piece of `train`.

    Frames (T, F) of zeros and ones are equal only if equal note by note: a transposed copy does not
    count. Exact, and never sorts more values than there are frames: runs of L frames that occur on
    both sides are numbered by content, and only they can grow to L + 1.
    """
    theirs, ours = [_packed(piece) for piece in train], [_packed(piece) for piece in pieces]
    longest = np.zeros(len(ours), np.int64)
    lengths = np.array([len(piece) for piece in [*theirs, *ours]], np.int64)
    owner = np.repeat(np.arange(len(lengths)) - len(theirs), lengths)  # below 0 in train
    end = np.repeat(np.cumsum(lengths), lengths)
    if not len(owner):
        return longest
    content, frame = np.unique(np.concatenate([*theirs, *ours]), return_inverse=True)
    at, stretch, length = np.arange(len(owner)), np.zeros(len(owner), np.int64), 0
    while len(at):
        # The runs of `length` frames that begin at `at`, extended by one frame.
        inside = at + length < end[at]
        at = at[inside]
        grown = stretch[inside] * len(content) + frame[at + length]
        known, stretch = np.unique(grown, return_inverse=True)
        length += 1
        sampled = owner[at] >= 0
        shared = np.zeros((2, len(known)), bool)
        shared[0, stretch[sampled]] = shared[1, stretch[~sampled]] = True
        both = (shared[0] & shared[1])[stretch]
        at, stretch = at[both], stretch[both]
        longest[owner[at[owner[at] >= 0]]] = length
    return longest


def _packed(frames: NDArray[np.uint8]) -> NDArray[np.void]:
    """Frames (T, F) as T opaque values that sort and compare bit by bit."""
    packed = np.packbits(frames, axis=1)
    return packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
