"""Passages of train that stand in another split, in any key, or in samples, as they are.

A window is a number of consecutive frames of one piece, with all that the frames hold. Two are
equal if they are so note by note, once each is moved down by its own lowest note; those of a drum
kit, which is in no key, if they are so as they stand. One in which nothing changes, silence or a
chord held throughout, is no passage and does not count, but within a longer passage of train its
frames do: those in windows of 32 are among those in windows of 16, and these among those of 8.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import Pieces
from seqmodel.media.music.frames import is_kit, pack, sounding
from seqmodel.media.music.grid import NOTES

WINDOWS = (8, 16, 32)
"""Frames; powers of two."""

AT_ONCE = 2**18
"""Frames of a split, and of train, in memory; more if a single piece is longer."""


def shares_in_train(split: Pieces, train: Pieces) -> dict[str, float]:
    """Frames in a window -> the share of a split's frames that lie in windows found in train.

    Exact, in bounded memory: windows are numbered by content, those of 2n frames by the numbers of
    their halves and the semitones between these (Karp, Miller, Rosenberg 1972).
    """
    copied = dict.fromkeys(WINDOWS, 0)
    for part in _parts(split):
        known: dict[int, NDArray[Any]] = {}
        ours = dict(_numbers(part, known))
        found = {n: np.zeros(len(windows), bool) for n, windows in known.items()}
        for others in _parts(train):
            for n, number in _numbers(others, known):
                found[n][number[number >= 0]] = True
        changed = (part.frames[1:] != part.frames[:-1]).any(axis=1)
        changes = np.append(0, np.cumsum(changed))
        covered = np.zeros(len(part.frames), bool)
        for n in sorted(known.keys() & copied.keys(), reverse=True):
            at = np.flatnonzero(ours[n] >= 0)
            at = at[found[n][ours[n][at]] & (changes[at + n - 1] > changes[at])]
            inside = np.zeros(len(part.frames) + 1, np.int64)  # 1 at a begin, -1 behind an end
            inside[at] += 1
            inside[at + n] -= 1
            covered |= np.cumsum(inside[:-1]) > 0
            copied[n] += int(np.count_nonzero(covered))
    return {str(n): count / split.frames for n, count in copied.items()}


class _Part(NamedTuple):
    """Frames (T, 88) or (T, 176), and the index of each one's piece (T,)."""

    frames: NDArray[np.uint8]
    piece: NDArray[np.int64]


def _parts(pieces: Pieces) -> Iterator[_Part]:
    held, count = list[NDArray[np.uint8]](), 0
    for k, frames in enumerate(pieces, 1):
        held.append(frames)
        count += len(frames)
        if k == len(pieces) or count >= AT_ONCE:
            lengths = list(map(len, held))
            yield _Part(np.concatenate(held), np.repeat(np.arange(len(held)), lengths))
            held, count = [], 0


def _numbers(
    part: _Part, known: dict[int, NDArray[Any]]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield n = 1, 2, 4, ... with the number of the window of n frames from each frame on (T+1-n,).

    `known[n]` are the contents of those that have a number; -1 stands for others and for what is
    in no piece. If `known` is empty, all contents of this part become known.
    """
    frames, piece = part
    roll = sounding(frames)
    lowest = np.where(roll.any(axis=1), roll.argmax(axis=1), NOTES).astype(np.int64)
    if is_kit(frames):
        lowest[:] = NOTES
    packed = np.empty((len(frames), -(-frames.shape[1] // 8)), np.uint8)
    for low in np.unique(lowest):
        rows = np.flatnonzero(lowest == low)
        moved = np.roll(frames[rows].reshape(len(rows), -1, roll.shape[1]), -low, axis=2)
        packed[rows] = np.packbits(moved.reshape(len(rows), -1), axis=1)
    content: NDArray[Any] = _values(packed)
    inside, learning, n = np.ones(len(content), bool), not known, 1
    while n in known or (learning and inside.any()):
        if learning:
            known[n] = np.unique(content[inside])
        number = np.searchsorted(known[n], content)
        number[number == len(known[n])] = 0
        inside &= known[n][number] == content
        number[~inside] = -1
        yield n, number
        if n == WINDOWS[-1] or n >= len(number):
            return
        # Numbers are below the frames of a part, and those below 2**23.
        apart = lowest[n:] - lowest[:-n]
        apart[(lowest[:-n] == NOTES) | (lowest[n:] == NOTES)] = 0
        content = (number[:-n] << 24 | number[n:]) << 8 | apart + NOTES
        lowest = np.minimum(lowest[:-n], lowest[n:])
        inside = inside[:-n] & inside[n:] & (piece[: 1 - 2 * n] == piece[2 * n - 1 :])
        n *= 2


def longest_copies(
    pieces: Iterable[NDArray[np.uint8]], train: Iterable[NDArray[np.uint8]]
) -> NDArray[np.int64]:
    """For each piece the length (n,), in frames, of its longest run that is in a piece of `train`.

    Frames (T, F) are equal only note by note: a transposed copy does not count. Exact: runs of L
    frames that occur on both sides are numbered by content, and only they can grow to L + 1.
    """
    theirs, ours = ([_values(pack(piece)) for piece in of] for of in (train, pieces))
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


def _values(packed: NDArray[np.uint8]) -> NDArray[np.void]:
    """Rows of bytes as (T,) opaque values that sort and compare byte by byte."""
    return packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
