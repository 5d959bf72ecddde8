"""What is known of recordings from the training split, as the predictors and features need it."""

from typing import NamedTuple

import torch
from torch import Tensor

from seqmodel.model.sound.predictors import FULL
from seqmodel.model.sound.steering import NODES

PUSHES, VOICES, RANGES = 4, 4 + 2 * NODES, 4 + 4 * NODES
"""Where these begin in the packed numbers."""


class Known(NamedTuple):
    """Of the training split's recordings, and how strongly that steers."""

    share: float
    """Of those with a grid coarser than 1, counting half a recording of each kind more."""
    usual: float
    """The commonest grid among them; 1 if there are none."""
    sharpest: float
    """What the level `sharp` hardly exceeds."""
    strength: float
    """Of the steering, see `steering.py`; set where it is used."""
    pushes: Tensor
    """(NODES,), the push at each loudness."""
    slopes: Tensor
    """(NODES,), the slope of log p at each loudness."""
    voices: Tensor
    """(NODES,), how strongly each period is kept up."""
    periods: Tensor
    """(NODES,), log of how usual each period is."""
    ranges: Tensor
    """(NODES, 2 M) of M coefficients: low and high at each loudness."""

    def packed(self) -> Tensor:
        """One line of numbers, float64."""
        scalars = self.pushes.new_tensor(self[:4])
        return torch.cat([scalars, *self[4:-1], self.ranges.flatten()])


def unpacked(numbers: Tensor) -> Known:
    """What `packed` had packed."""
    share, usual, sharpest, strength = numbers[:4].tolist()
    pushes, slopes, voices, periods = numbers[4:RANGES].view(4, NODES)
    ranges = numbers[RANGES:].view(NODES, -1)
    return Known(share, usual, sharpest, strength, pushes, slopes, voices, periods, ranges)


def nothing_known(stages: int) -> Known:
    """Before training, for a first lattice of which so many stages are features."""
    nothing = torch.zeros(NODES, dtype=torch.float64)
    ranges = torch.ones(NODES, 2 * stages, dtype=torch.float64)
    ranges[:, :stages] = -1
    return Known(0.5, 1.0, 2 * FULL, 0.0, nothing, nothing, nothing, nothing, ranges)
