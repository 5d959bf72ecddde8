"""What the training split says of recordings: their grids, how loud they are, their spectra."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.model.sound.hearing import start_memory
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.known import Known, nothing_known
from seqmodel.model.sound.predictors import FULL, Loudness, Predictors, Reflections
from seqmodel.model.sound.steering import NODES

SURVEYED = 2**21
"""About how many samples are listened to, of pieces at even steps through train."""
ABREAST, AT_ONCE, EVERY = 16, 4096, 8
"""They are heard in so many lines, as many samples of each at once; every eighth counts."""

RARE, FEW = 0.03, 100
"""The share of coefficients on either side of the usual range; fewer at a node tell nothing."""
FORCE, MOST = 0.06, 0.3
"""The push per slope of log p, and how large it may be."""
WIDTH = 0.6
"""Of the kernel that smooths the density of loudness, in octaves."""
LOUDEST = 0.999
"""Above this quantile of loudness an octave lowers the level by half more."""


def survey(pieces: Iterable[NDArray[Any]], predictors: Predictors) -> Known:
    """What is known of pieces, in levels; silent ones tell nothing of grids."""
    grids, kept, every = list[int](), list[NDArray[Any]](), 1
    for number, piece in enumerate(pieces):
        grids.append(_grid_of(piece))
        if number % every == 0:
            kept.append(piece.ravel())
        if len(kept) > 1 and sum(map(len, kept)) > SURVEYED:
            kept, every = kept[::2], 2 * every
    found = [grid for grid in grids if grid]
    coarse = [grid for grid in found if grid > 1]
    share = (len(coarse) + 0.5) / (len(found) + 1)
    usual = max(set(coarse), key=lambda g: (coarse.count(g), g), default=1)
    known = nothing_known(predictors.told_stages)
    if not kept:
        return known
    loudness, k = _heard(np.concatenate(kept), predictors, known)
    low, high = _ranges(loudness, k)
    habits = np.concatenate([_pushes(loudness)[:, np.newaxis], low, high], 1)
    return known._replace(share=share, usual=float(usual), habits=torch.from_numpy(habits))


def _grid_of(levels: NDArray[Any]) -> int:
    """The grid of a whole recording; 0 if it is silent."""
    whole = np.rint(levels)
    if (whole != levels).any():
        return 1
    bits = int(np.bitwise_or.reduce(whole.astype(np.int64), axis=None))
    return bits & -bits


def _heard(
    levels: NDArray[Any], predictors: Predictors, known: Known
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The loudness in octaves above one level (N,) and the coefficients (N, M) after samples."""
    abreast = ABREAST if len(levels) > ABREAST * AT_ONCE else 1
    length = len(levels) // abreast
    lines = np.float32(levels[: length * abreast] / FULL).reshape(abreast, length).T
    memory = start_memory(predictors, known, abreast, torch.device("cpu"))
    loudness, k = [], []
    for begin in range(0, length, AT_ONCE):
        samples = torch.from_numpy(np.ascontiguousarray(lines[begin : begin + AT_ONCE]))
        told, memory = compiled_inputs(predictors, known, samples, memory)
        some = told[::EVERY].flatten(0, 1).double().numpy()
        for feature in predictors.features:
            place = predictors.columns[feature]
            if isinstance(feature, Reflections):
                k.append(some[:, place])
            elif isinstance(feature, Loudness) and feature.level == "loud":
                loudness.append(2 / math.log(2) * (some[:, place.start] + feature.offset))
    return np.concatenate(loudness), np.concatenate(k)


def _ranges(
    loudness: NDArray[np.float64], k: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The usual lowest and highest coefficients (NODES, M); where little is heard, the nearest."""
    nearest = np.rint(loudness).clip(0, NODES - 1)
    filled = [n for n in range(NODES) if (nearest == n).sum() >= FEW]
    ranges = np.repeat([[[-1.0], [1.0]]], NODES, 0) * np.ones(k.shape[1])
    for n in range(NODES if filled else 0):
        like = filled[int(np.abs(np.array(filled) - n).argmin())]
        ranges[n] = np.quantile(k[nearest == like], [RARE, 1 - RARE], 0)
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
