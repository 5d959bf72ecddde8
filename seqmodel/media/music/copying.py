"""How much of a piece is copied: the longest stretch of frames that it shares with training."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def longest_copies(
    pieces: Iterable[NDArray[np.uint8]], train: Iterable[NDArray[np.uint8]]
) -> NDArray[np.int64]:
    """For each piece the longest run of its frames that is in a piece of `train`, in frames (n,).

    Frames (T, F) of zeros and ones count as equal only if they are so note by note: a transposed
    copy is none. Exact, and sorts no more than all frames at once: stretches of L frames that
    are found on both sides are numbered by content, and only they can grow to L + 1.
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
        # The stretches of `length` frames that begin at `at`, grown by a frame.
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
