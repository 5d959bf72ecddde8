"""Batches of pieces of like length, in an order that the seed and the epoch alone decide."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import Split
from seqmodel.media.music.pianoroll import transpose_roll

# Pieces whose lengths differ by less than about this share may change places between epochs.
LENGTH_JITTER = 0.1
KEYS = range(-5, 7)


@dataclass(frozen=True)
class Batch:
    """Pieces side by side: `frames` (T, B, D), padded with zeros to the longest.

    They are uint8 zeros and ones of music, float32 samples in [-1, 1) of audio.
    """

    frames: NDArray[Any]
    lengths: NDArray[np.int64]
    """(B,) what each piece has from the first of `frames` on; none or less where it is over."""


def shuffled(
    lengths: NDArray[np.int64], batch_size: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Every piece once, as batches of indices: like lengths together, the batches in random order.

    Stateless: the same seed and epoch give the same batches, so resuming needs no random state.
    """
    random = np.random.default_rng([seed, epoch])
    jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(lengths))
    batches = _cut(np.argsort(lengths * jitter, kind="stable"), batch_size)
    return [batches[k] for k in random.permutation(len(batches))]


def in_order(lengths: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Every piece once, as batches of indices, the shortest first."""
    return _cut(np.argsort(lengths, kind="stable"), batch_size)


def _cut(order: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    return [order[k : k + batch_size] for k in range(0, len(order), batch_size)]


def random_keys(count: int, seed: int, epoch: int, batch: int) -> NDArray[np.int64]:
    """Semitones (count,) by which to transpose the pieces of a batch: any of the twelve keys."""
    random = np.random.default_rng([seed, epoch, 1 + batch])  # 0 would be the stream of `shuffled`
    return random.integers(KEYS.start, KEYS.stop, count)


def load(
    split: Split,
    indices: NDArray[np.int64],
    transpose: NDArray[np.int64] | None = None,
    *,
    begin: int = 0,
    window: int | None = None,
) -> Batch:
    """Read the pieces of a batch, or of each the `window` frames from `begin` on.

    Those of music may move, each by its number of semitones.
    """
    frame, lengths = split.frame, split.lengths[indices] - begin
    T = int(lengths.max()) if window is None else min(int(lengths.max()), window)
    rows = slice(begin * frame.rows_per_frame, (begin + T) * frame.rows_per_frame)
    # Side by side as they are stored, then decoded all at once; zeros are stored as zeros.
    width = frame.rows_per_frame * math.prod(frame.row_shape)
    stored = np.zeros((T, len(indices), width), frame.row_dtype)
    for k, i in enumerate(indices.tolist()):
        piece = split.stored(i)[rows].reshape(-1, width)
        stored[: len(piece), k] = piece
    decoded: NDArray[Any] = frame.decode(stored.reshape(-1, *frame.row_shape))
    frames = decoded.reshape(T, len(indices), frame.frame_size)
    if transpose is not None:
        for k, semitones in enumerate(transpose.tolist()):
            frames[:, k] = transpose_roll(frames[:, k], semitones)
    return Batch(frames, lengths)
