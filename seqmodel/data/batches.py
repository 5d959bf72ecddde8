"""Batches of pieces of similar length, in an order determined by seed and epoch alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import Split
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.labels import KnownLabels

# Lengths are jittered by up to this share, so that similar ones swap places between epochs.
LENGTH_JITTER = 0.1


@dataclass(frozen=True)
class Batch:
    """Pieces side by side: `frames` (T, B, F), padded to the longest, typed as in `Split`."""

    frames: NDArray[Any]
    lengths: NDArray[np.int64]
    """(B,) frames of each piece from the start of `frames` on; <= 0 once the piece has ended."""
    metres: NDArray[np.int64] | None = None
    """(B, G) the metres of pieces that begin here; see `Split.metres`."""
    marks: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    """(T, B, D) for each name; see `FrameDefinition.marks_of`. 0 in padding."""
    labels: NDArray[np.int64] | None = None
    """(B, L) the labels of pieces that begin here; see `Split.labels`."""


def shuffled(
    lengths: NDArray[np.int64], batch_size: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Every piece once, as batches of indices: similar lengths together, batches shuffled.

    Stateless: the same seed and epoch give the same batches, so resuming needs no random state.
    """
    random = np.random.default_rng([seed, epoch])
    jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(lengths))
    batches = _cut(np.argsort(lengths * jitter, kind="stable"), batch_size)
    return [batches[k] for k in random.permutation(len(batches))]


def by_length(lengths: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Every piece once, as batches of indices, the shortest first."""
    return _cut(np.argsort(lengths, kind="stable"), batch_size)


def _cut(order: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    return [order[k : k + batch_size] for k in range(0, len(order), batch_size)]


def split_batch(lengths: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """The indices of a batch's pieces in each of `parts` parts, as even as possible.

    From longest to shortest, pieces are dealt back and forth to two halves, then again within
    each, so that adjacent parts, such as those of one process, are even too.
    """
    shares = [np.argsort(-lengths, kind="stable")]
    while len(shares) < parts:
        shares = [half for share in shares for half in _halves(share)]
    return [np.sort(share) for share in shares]


def _halves(pieces: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    second = np.isin(np.arange(len(pieces)) % 4, (1, 2))
    return pieces[~second], pieces[second]


def continues(
    plan: Sequence[NDArray[np.int64]], share: float, seed: int, epoch: int, batch: int
) -> bool:
    """Whether a batch continues the one before, as a random `share` of those of equal size do."""
    if not share or batch >= len(plan) or len(plan[batch]) != len(plan[batch - 1]):
        return False
    random = np.random.default_rng([seed, epoch, 1 + batch, 1])
    return bool(random.random() < share)


def random_variants(
    frame: FrameDefinition, count: int, seed: int, epoch: int, batch: int
) -> NDArray[np.int64]:
    """A random variant (count,) for each piece of a batch, such as its transposition."""
    random = np.random.default_rng([seed, epoch, 1 + batch])  # 0 would be the stream of `shuffled`
    return random.integers(frame.variants.start, frame.variants.stop, count)


def load(
    split: Split,
    indices: NDArray[np.int64],
    variants: NDArray[np.int64] | None = None,
    *,
    begin: int = 0,
    window: int | None = None,
    known: KnownLabels = MappingProxyType({}),
) -> Batch:
    """Read the pieces of a batch, or `window` frames of each from `begin` on.

    Pieces are varied (`FrameDefinition.vary`) if `variants` (B,) are given. Labels: those `known`.
    """
    frame, lengths = split.frame, split.lengths[indices] - begin
    T = int(lengths.max()) if window is None else min(int(lengths.max()), window)
    rows = begin * frame.rows_per_frame, (begin + T) * frame.rows_per_frame
    # Stacked and padded as stored, then decoded in one go.
    width = frame.rows_per_frame * math.prod(frame.row_shape)
    stored = np.zeros((T, len(indices), width), frame.row_dtype)
    for k, i in enumerate(indices.tolist()):
        piece = split.read_rows(i, *rows)
        if variants is not None:
            piece = frame.vary(piece, int(variants[k]))
        stored[: len(piece) // frame.rows_per_frame, k] = piece.reshape(-1, width)
    decoded: NDArray[Any] = frame.decode(stored.reshape(-1, *frame.row_shape))
    frames = decoded.reshape(T, len(indices), frame.frame_size)
    marks = {
        name: numbers.reshape(T, len(indices), -1)
        for name, numbers in frame.marks_of(stored.reshape(-1, *frame.row_shape)).items()
    }
    if begin:
        return Batch(frames, lengths, marks=marks)
    return Batch(frames, lengths, split.metres(indices), marks, split.labels(known, indices))
