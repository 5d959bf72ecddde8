"""What the training split says of recordings: their grids, how loud they are, their spectra."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.data.dataset import Split
from seqmodel.model.sound.hearing import start_memory
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.known import Known, nothing_known
from seqmodel.model.sound.predictors import FULL, Loudness, Predictors, Reflections, predictors_at
from seqmodel.model.sound.steering import NODES

PIECES, SURVEYED = 600, 2**24
"""At most so many pieces are listened to, at even steps through train, and samples of them all."""
ABREAST, AT_ONCE = 16, 4096
"""They are heard in so many lines, as many samples of each at once."""
EVERY, COUNTED = 8, 2**18
"""Every eighth sample counts, or fewer: at most so many."""

RARE, FEW = 0.03, 0.1
"""The share of coefficients on either side of the usual range; seconds below which a node tells
nothing."""
FORCE, MOST = 0.06, 0.3
"""The push per slope of log p, and how large it may be."""
WIDTH = 0.6
"""Of the kernel that smooths the density of loudness, in octaves."""
LOUDEST = 0.999
"""Each octave above this quantile of loudness halves the level once more."""


def survey(pieces: Split | Sequence[NDArray[Any]], rate: int, *, habits: bool = True) -> Known:
    """What is known of raw pieces (T, S); silent ones tell nothing of grids.

    Without `habits` only their grids.
    """
    count, predictors = min(len(pieces), PIECES), predictors_at(rate)
    chosen = {k * len(pieces) // count for k in range(count)}
    grids, kept = list[int](), list[NDArray[Any]]()
    for number, piece in enumerate(pieces):
        levels = FULL * piece.ravel()
        grids.append(_grid_of(levels))
        if habits and number in chosen:
            kept.append(levels[: SURVEYED // count].copy())
    found = [grid for grid in grids if grid]
    coarse = [grid for grid in found if grid > 1]
    share = (len(coarse) + 0.5) / (len(found) + 1)
    usual = max(set(coarse), key=lambda g: (coarse.count(g), g), default=1)
    known = nothing_known(predictors.told_stages)._replace(share=share, usual=float(usual))
    if not sum(map(len, kept)):
        return known
    line = np.concatenate(kept)
    every = max(EVERY, -(-len(line) // COUNTED))
    loudness, k = _heard(line, every, predictors, known)
    low, high = _ranges(loudness, k, math.ceil(FEW * rate / every))
    table = np.concatenate([_pushes(loudness)[:, np.newaxis], low, high], 1)
    return known._replace(habits=torch.from_numpy(table))


def _grid_of(levels: NDArray[Any]) -> int:
    """The grid of a whole recording; 0 if it is silent."""
    whole = np.rint(levels)
    if (whole != levels).any():
        return 1
    bits = int(np.bitwise_or.reduce(whole.astype(np.int64), axis=None))
    return bits & -bits


def _heard(
    levels: NDArray[Any], every: int, predictors: Predictors, known: Known
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Loudness in octaves above one level (N,) and coefficients (N, M), after every few samples."""
    abreast = ABREAST if len(levels) > ABREAST * AT_ONCE else 1
    length = len(levels) // abreast
    lines = np.float32(levels[: length * abreast] / FULL).reshape(abreast, length).T
    memory = start_memory(predictors, known, abreast, torch.device("cpu"))
    loudness, k = [], []
    for begin in range(0, length, AT_ONCE):
        samples = torch.from_numpy(np.ascontiguousarray(lines[begin : begin + AT_ONCE]))
        told, memory = compiled_inputs(predictors, known, samples, memory)
        some = told[::every].flatten(0, 1).double().numpy()
        for feature in predictors.features:
            place = predictors.columns[feature]
            if isinstance(feature, Reflections):
                k.append(some[:, place])
            elif isinstance(feature, Loudness) and feature.level == "loud":
                loudness.append(2 / math.log(2) * (some[:, place.start] + feature.offset))
    return np.concatenate(loudness), np.concatenate(k)


def _ranges(
    loudness: NDArray[np.float64], k: NDArray[np.float64], few: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The usual lowest and highest coefficients (NODES, M); where little is heard, the nearest."""
    nearest = np.rint(loudness).clip(0, NODES - 1)
    counts = np.array([(nearest == n).sum() for n in range(NODES)])
    filled = np.flatnonzero(counts >= min(few, counts.max()))
    like = [filled[np.abs(filled - n).argmin()] for n in range(NODES)]
    ranges = np.stack([np.quantile(k[nearest == n], [RARE, 1 - RARE], 0) for n in like])
    return ranges[:, 0], ranges[:, 1]


def _pushes(loudness: NDArray[np.float64]) -> NDArray[np.float64]:
    """(NODES,)"""
    counts, edges = np.histogram(loudness, 16 * NODES, (0, NODES))
    nodes = np.arange(NODES)
    away = (edges[1:] + edges[:-1]) / 2 - nodes[:, np.newaxis]
    weights = np.exp(-((away / WIDTH) ** 2) / 2)
    slopes = (weights * away / WIDTH**2) @ counts / (weights @ counts) / math.log(2)
    louder = np.maximum(nodes - np.quantile(loudness, LOUDEST), 0)
    pushes: NDArray[np.float64] = (FORCE * slopes).clip(-MOST, MOST) - math.log(2) * louder
    return pushes
