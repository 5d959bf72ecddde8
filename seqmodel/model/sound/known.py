"""What is known of recordings from the training split, as the predictors and features need it."""

from typing import NamedTuple

import torch
from torch import Tensor

from seqmodel.model.sound.steering import NODES, unlearned


class Known(NamedTuple):
    """Of the training split's recordings, and how strongly that steers."""

    share: float
    """Of those with a grid coarser than 1, counting half a recording of each kind more."""
    usual: float
    """The commonest grid among them; 1 if there are none."""
    strength: float
    """Of the steering, see `steering.py`; set where it is used."""
    habits: Tensor
    """(NODES, 1 + 2 M) of M stages: push, low and high at each loudness."""

    def packed(self) -> Tensor:
        """One line of numbers, float64."""
        return torch.cat([self.habits.new_tensor(self[:3]), self.habits.flatten()])


def unpacked(numbers: Tensor) -> Known:
    """What `packed` had packed."""
    share, usual, strength = numbers[:3].tolist()
    return Known(share, usual, strength, numbers[3:].view(NODES, -1))


def nothing_known(stages: int) -> Known:
    """Before training, for a first lattice of which so many stages are features."""
    return Known(0.5, 1.0, 0.0, unlearned(stages))
