"""Trivial models of music, shown next to every figure: a model no better has learned little.

All three are note n-grams: the probability of each note given its own last k frames. k = 0 is its
marginal frequency, k = 1 repeats the previous frame with a fitted probability of change.

With onsets, each still scores the roll alone, and `Restrikes` scores the notes struck again, the
same for all three.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import Pieces
from seqmodel.media.music.grid import NOTES
from seqmodel.media.music.onsets import sounded, sounding, struck

BASELINES: Mapping[str, int] = {"marginal": 0, "repeat": 1, "note_ngram": 8}
"""Name -> k."""

# Pseudo-counts that smooth a frequency towards that of the next shorter context.
PRIOR = 2.0


class NoteNgram:
    """p(x_tk = 1 | x_(t-order)k ... x_(t-1)k), counted on a training split.

    Each (note, context) has its own frequency, smoothed towards that of the context one frame
    shorter, and so on down to the note's marginal frequency, itself smoothed towards one half.
    Before the first frame there is silence.
    """

    def __init__(self, train: Pieces, order: int) -> None:
        self.order = order
        notes = sounding(train[0]).shape[1]
        on = np.zeros((2**order, notes), np.int64)
        seen = np.zeros((2**order, notes), np.int64)
        for roll in map(sounding, train):
            cell = self._contexts(roll) * notes + np.arange(notes)
            seen += np.bincount(cell.ravel(), minlength=seen.size).reshape(seen.shape)
            on += np.bincount(cell[roll == 1], minlength=on.size).reshape(on.shape)
        # Off and on, both counted: 1 - p would round to 0 where a note has always been held.
        counts, probability = np.stack([seen - on, on]), np.full((2, 1, notes), 0.5)
        for k in range(order + 1):
            # Contexts of the last k frames: the low k bits, summed over the higher ones.
            count = counts.reshape(2, -1, 2**k, notes).sum(axis=1)
            shorter = np.tile(probability, (1, 2**k // probability.shape[1], 1))
            probability = (count + PRIOR * shorter) / (count.sum(axis=0) + PRIOR)
        self.probability = probability
        """(2, 2^order, D), of off and on; the low bit of the context is the previous frame."""

    def nats(self, roll: NDArray[np.uint8]) -> NDArray[np.float64]:
        """-log p(x_t | x_<t) of each frame of roll (T, D): (T,)."""
        p = self.probability[roll.astype(int), self._contexts(roll), np.arange(roll.shape[1])]
        nats: NDArray[np.float64] = -np.log(p).sum(axis=1)
        return nats

    def _contexts(self, roll: NDArray[np.uint8]) -> NDArray[np.int64]:
        contexts = np.zeros(roll.shape, np.int64)
        for back in range(1, self.order + 1):
            contexts[back:] |= roll[:-back].astype(np.int64) << (back - 1)
        return contexts


class Restrikes:
    """p(struck again | sounding in this frame and in the one before), counted on a training split.

    Each note has its own frequency, smoothed towards that of all notes, itself smoothed towards one
    half. Any other onset follows from the roll and costs nothing.
    """

    def __init__(self, train: Pieces) -> None:
        again, could = np.zeros(NOTES, np.int64), np.zeros(NOTES, np.int64)
        for frames in train:
            free = sounded(frames) & (sounding(frames) > 0)
            again += (free & struck(frames)).sum(axis=0)
            could += free.sum(axis=0)
        overall = (again.sum() + PRIOR / 2) / (could.sum() + PRIOR)
        self.probability = (again + PRIOR * overall) / (could + PRIOR)
        """(88,)"""

    def nats(self, frames: NDArray[np.uint8]) -> NDArray[np.float64]:
        """-log p of what each frame of a piece (T, 176) adds to the roll: (T,)."""
        free = sounded(frames) & (sounding(frames) > 0)
        p = np.where(struck(frames), self.probability, 1 - self.probability)
        nats: NDArray[np.float64] = -np.log(p).sum(axis=1, where=free)
        return nats


def baseline_nats_per_frame(train: Pieces, split: Pieces) -> dict[str, float]:
    """Nats per frame of each baseline, counted on `train` and scored on every frame of `split`."""
    further = 0.0
    if train.frame.onsets:
        restrikes = Restrikes(train)
        further = sum(float(restrikes.nats(frames).sum()) for frames in split)
    ngrams = {name: NoteNgram(train, order) for name, order in BASELINES.items()}
    return {
        name: (sum(float(ngram.nats(sounding(frames)).sum()) for frames in split) + further)
        / split.frames
        for name, ngram in ngrams.items()
    }
