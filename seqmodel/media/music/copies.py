"""Passages of train that stand in another split, in any key, or in samples, as they are.

A window is a number of consecutive frames of one piece, with all that the frames hold but the
values of marks. Two are equal if they are so note by note, once each is moved down by its own
lowest note; those of a drum kit, which is in no key, if they are so as they stand. One in which
nothing changes, silence or a chord held throughout, is no passage and does not count, but within a
longer passage of train its frames do: those in windows of 32 are among those in windows of 16, and
these among those of 8.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import Pieces
from seqmodel.media.music.frames import ROLL_BYTES, pack, packed_words
from seqmodel.media.music.grid import NOTES

WINDOWS = (8, 16, 32)
"""Frames; powers of two."""

BLOCK = 2**14
"""Frames hashed at once, few enough for a processor's cache; more if a piece is longer."""
QUERY_FRAMES = 2**21
"""Frames of other splits that are looked for in train at once, in 27 bytes each."""
FILTER_MASK = np.uint64(2**22 - 1)
"""The bits of a hash that rule out most windows that are not looked for."""

Hashes = list[NDArray[np.uint64]]


def shares_in_train(splits: Mapping[str, Pieces], train: Pieces) -> dict[str, dict[str, float]]:
    """Of each split: frames in a window -> the share of its frames in windows found in train.

    In bounded memory: windows are told apart by hashes of 64 bits, so that one in 10^19 pairs of
    different ones is taken for equal; those of 2n frames have the hash of their halves' and the
    semitones between these (as numbers by Karp, Miller, Rosenberg 1972).
    """
    copied = {name: dict.fromkeys(WINDOWS, 0) for name in splits}
    again = {name: _blocks(pieces) for name, pieces in splits.items()}
    for names, queries in _query_blocks(splits):
        for block in _blocks(train):
            for each, train_hashes in zip(queries, _hashes(*block), strict=True):
                each.mark_found(train_hashes)
        for name in names:
            hashes = _hashes(*next(again[name]))  # once more: to keep them takes as much memory
            covered = np.zeros(len(hashes[0]), bool)
            for n, each, split_hashes in [*zip(WINDOWS, queries, hashes, strict=True)][::-1]:
                order = np.argsort(split_hashes)  # in order they are found faster
                at = order[each.found[np.searchsorted(each.known, split_hashes[order])]]
                inside = np.zeros(len(split_hashes) + 1, np.int64)  # 1 at a begin, -1 behind an end
                inside[at] += 1
                inside[at + n] -= 1
                covered |= np.cumsum(inside[:-1]) > 0
                copied[name][n] += int(np.count_nonzero(covered))
        del queries, each  # before the next ones are made
    return {
        name: {str(n): count / splits[name].frames for n, count in counts.items()}
        for name, counts in copied.items()
    }


class _Queries:
    """The hashes of windows of some length, sorted, and which are `found`: of equal ones the first.

    What stands for no passage, 0, never is.
    """

    def __init__(self, hashes: Hashes) -> None:
        self.known = np.concatenate([np.zeros(1, np.uint64), *hashes])
        self.known.sort()
        self.found = np.zeros(len(self.known), bool)
        self._filter = np.zeros(int(FILTER_MASK) + 1, bool)
        self._filter[self.known & FILTER_MASK] = True

    def mark_found(self, hashes: NDArray[np.uint64]) -> None:
        hashes = np.sort(hashes[self._filter[hashes & FILTER_MASK]])  # sorted they are found faster
        at = np.searchsorted(self.known[:-1], hashes)
        self.found[at[self.known[at] == hashes]] = True
        self.found[0] = False


def _query_blocks(splits: Mapping[str, Pieces]) -> Iterator[tuple[list[str], list[_Queries]]]:
    """Of some blocks, one after the other, the names of their splits, and all of their hashes."""
    blocks = ((name, *block) for name, pieces in splits.items() for block in _blocks(pieces))
    while True:
        names, hashes, count = list[str](), [Hashes() for _ in WINDOWS], 0
        for name, frames, piece in blocks:
            names.append(name)
            for each, of_block in zip(hashes, _hashes(frames, piece), strict=True):
                each.append(of_block[of_block > 0])
            count += len(frames)
            if count >= QUERY_FRAMES:
                break
        if not names:
            return
        yield names, [_Queries(hashes.pop(0)) for _ in WINDOWS]


def _blocks(pieces: Pieces) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Packed frames (T, bytes) of pieces, one after the other, and the index of each's piece (T,).

    `Pieces.frame` says what they are.
    """
    frame: Any = pieces.frame
    pending, count = list[NDArray[np.uint8]](), 0
    for k in range(len(pieces)):
        pending.append(frame.packed(pieces.read_rows(k)))
        count += len(pending[-1])
        if k == len(pieces) - 1 or count >= BLOCK:
            lengths = list(map(len, pending))
            yield np.concatenate(pending), np.repeat(np.arange(len(pending)), lengths)
            pending, count = [], 0


def _hashes(packed: NDArray[np.uint8], piece: NDArray[np.int64]) -> Hashes:
    """For each of `WINDOWS` that which begins in each frame of a block, (T,); 0 for no passage."""
    words, T = packed_words(packed), len(packed)
    lowest = np.full(T, NOTES)
    if packed.shape[1] >= ROLL_BYTES:  # not a kit's
        low, high = words[:2]
        lowest = np.where(low > 0, _first_bit(low), 64 + _first_bit(high))
        lowest[(low | high) == 0] = NOTES
    shift = (lowest % NOTES).astype(np.uint64)
    hashes = np.full(T, MIXERS[0])
    for low, high in words.reshape(-1, 2, T):
        # Words shifted by 64 or more are 0, also by what would be below 0 if it had a sign.
        hashes = _mix(hashes ^ (low << shift | high >> 64 - shift | high << shift - 64))
        hashes = _mix(hashes ^ high << shift)
    changes = np.zeros(T, np.int64)
    changed = (words[:2, 1:] != words[:2, :-1]).any(axis=0) | (words[2:, 1:] > 0).any(axis=0)
    np.cumsum(changed, out=changes[1:])  # a note struck in the first frame may be held throughout
    found, n = Hashes(), 1
    while n < WINDOWS[-1]:
        interval = lowest[n:] - lowest[:-n]
        interval[(lowest[:-n] == NOTES) | (lowest[n:] == NOTES)] = 0
        halves = hashes[:-n] * MIXERS[0] + hashes[n:]
        hashes = _mix(halves ^ (interval + NOTES).astype(np.uint64) * MIXERS[1])
        lowest, n = np.minimum(lowest[:-n], lowest[n:]), 2 * n
        if n in WINDOWS:
            begin, end = slice(len(hashes)), slice(n - 1, n - 1 + len(hashes))
            passage = (piece[begin] == piece[end]) & (changes[begin] < changes[end])
            found.append(np.zeros(T, np.uint64))
            found[-1][begin] = hashes * passage
    return found


MIXERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers (T,), changed in place, each bit of which depends on all (Steele et al. 2014)."""
    for shift, factor in zip(np.array([30, 27], np.uint64), MIXERS, strict=True):
        numbers ^= numbers >> shift
        numbers *= factor
    numbers ^= numbers >> np.uint64(31)
    return numbers


def _first_bit(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The place of the first bit of each word (T,), from the highest on, that is set; or 64."""
    # Without the bits below it no word is rounded up to the next power of two.
    single = (words & ~(words >> np.uint64(1))).astype(np.float64)
    place: NDArray[np.int64] = np.int64(64) - np.frexp(single)[1]
    return place


def longest_copies(
    pieces: Iterable[NDArray[np.uint8]], train: Iterable[NDArray[np.uint8]]
) -> NDArray[np.int64]:
    """For each piece the length (n,), in frames, of its longest run that is in a piece of `train`.

    Frames (T, F) are equal only note by note: a transposed copy does not count. Exact: runs of L
    frames that occur on both sides are numbered by content, and only they can grow to L + 1.
    """
    train_frames, own_frames = ([_values(pack(piece)) for piece in of] for of in (train, pieces))
    longest = np.zeros(len(own_frames), np.int64)
    lengths = np.array([len(piece) for piece in [*train_frames, *own_frames]], np.int64)
    owner = np.repeat(np.arange(len(lengths)) - len(train_frames), lengths)  # below 0 in train
    end = np.repeat(np.cumsum(lengths), lengths)
    if not len(owner):
        return longest
    content, frame = np.unique(np.concatenate([*train_frames, *own_frames]), return_inverse=True)
    starts, run_ids, length = np.arange(len(owner)), np.zeros(len(owner), np.int64), 0
    while len(starts):
        # The runs of `length` frames that begin at `starts`, extended by one frame.
        inside = starts + length < end[starts]
        starts = starts[inside]
        grown = run_ids[inside] * len(content) + frame[starts + length]
        runs, run_ids = np.unique(grown, return_inverse=True)
        length += 1
        sampled = owner[starts] >= 0
        shared = np.zeros((2, len(runs)), bool)
        shared[0, run_ids[sampled]] = shared[1, run_ids[~sampled]] = True
        both = (shared[0] & shared[1])[run_ids]
        starts, run_ids = starts[both], run_ids[both]
        longest[owner[starts[owner[starts] >= 0]]] = length
    return longest


def _values(packed: NDArray[np.uint8]) -> NDArray[np.void]:
    """Rows of bytes as (T,) opaque values that sort and compare byte by byte."""
    return packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
