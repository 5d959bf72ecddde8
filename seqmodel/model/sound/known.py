"""What the training split says of recordings, for the encoder to keep: their grids, the loudest."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.model.sound.predictors import Level

_BLOCK = 256  # samples


class Known(NamedTuple):
    """Of the training split's recordings."""

    share: float = 0.5
    """Of those with a grid coarser than 1, counting half a recording of each kind more."""
    usual: float = 1.0
    """The commonest grid among them; 1 if there are none."""
    loudest: float = math.inf
    """The highest level `loud` in any of them; infinite before training."""


def known_of(pieces: Iterable[NDArray[Any]], loud: Level) -> Known:
    """What is known of recordings, in levels; silent ones tell nothing of grids."""
    grids, loudest = [], [loud.floor]
    ago = np.subtract.outer(np.arange(_BLOCK), np.arange(_BLOCK))
    weights = np.where(ago < 0, 0.0, (1 - loud.forgetting) * loud.forgetting ** np.maximum(ago, 0))
    for piece in pieces:
        grids.append(_grid_of(piece))
        loudest.append(_loudest(piece, loud, weights))
    found = [grid for grid in grids if grid]
    coarse = [grid for grid in found if grid > 1]
    share = (len(coarse) + 0.5) / (len(found) + 1)
    usual = max(set(coarse), key=lambda g: (coarse.count(g), g), default=1)
    return Known(share, float(usual), max(loudest))


def _grid_of(levels: NDArray[Any]) -> int:
    """The grid of a whole recording; 0 if it is silent."""
    whole = np.rint(levels)
    if (whole != levels).any():
        return 1
    bits = int(np.bitwise_or.reduce(whole.astype(np.int64), axis=None))
    return bits & -bits


def _loudest(levels: NDArray[Any], loud: Level, weights: NDArray[np.float64]) -> float:
    """The highest level `loud` after a sample of a recording: its recursion, block by block.

    `weights` are those of a block's samples in the level after each of them.
    """
    sizes = np.abs(levels.ravel().astype(np.float64))
    blocks = np.pad(sizes, (0, -len(sizes) % _BLOCK)).reshape(-1, _BLOCK)
    decay, level, highest = loud.forgetting ** np.arange(1, _BLOCK + 1), loud.start, 0.0
    for own in blocks @ weights.T:
        after = own + level * decay
        level, highest = float(after[-1]), max(highest, float(after.max()))
    return highest + loud.floor
