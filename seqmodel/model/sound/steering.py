"""What draws free running back to the sound of train: how loud, of what spectrum, how voiced.

A model that hears itself drifts, however well it predicts: to be a tenth too loud in every sample
costs about 0.005 nats, and adds 14 dB in a tenth of a second. So what the output starts from is
moved a little towards what was usual in train at the present loudness, which costs a likelihood
about as little:

    level  <-  level exp(s push)
    anchor <-  anchor + s (sum_m (INSIDE (middle_m - k_m) + OUTSIDE (nearest_m - k_m)) b_m
                           + peak (1 - peak) lag / longest echo)

Of the first lattice, k are the reflection coefficients and b the backward errors; `nearest` is k
limited to the range from `low` to `high`, whose middle is `middle`. peak, lag and echo are the
pitch's: how periodic the residual is, the period, and the residual one period ago. push, low and
high follow from the loudness, see `usual`. s is the strength, 0 in training: otherwise the unit
would learn to undo it.

push is that of Langevin's equation: if loudness diffuses, a drift in proportion to the slope of
log p, p its density in train, makes p the density of what is drawn. It is limited, and stronger
above all that train has (`survey.py`). Short lags weigh less in the pull towards a voice, since any
resonance makes a residual somewhat periodic there.
"""

import math

import torch
from torch import Tensor

INSIDE, OUTSIDE = 0.01, 0.25
"""How strongly the spectrum is drawn to the middle of the usual range, and back into it."""
NODES = 16
"""Loudness is told apart at 1, 2, 4, ..., 32768 levels."""


def unlearned(stages: int) -> Tensor:
    """Habits (NODES, 1 + 2 M) before training: no push, and all that k can be."""
    habits = torch.zeros(NODES, 1 + 2 * stages, dtype=torch.float64)
    habits[:, 1 : 1 + stages], habits[:, 1 + stages :] = -1, 1
    return habits


def usual(habits: Tensor, loud: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """push (B, 1), low and high (B, M) at the level `loud` (B, 1), in between the nodes.

    A row of `habits` (NODES, 1 + 2 M) holds the three at a node.
    """
    octave = (loud.log() / math.log(2)).clamp(0, NODES - 1)
    node = octave.long().clamp(max=NODES - 2)
    below, above = habits[node[:, 0]], habits[node[:, 0] + 1]
    row = below + (above - below) * (octave - node)
    push, low, high = row.tensor_split([1, 1 + (row.shape[1] - 1) // 2], 1)
    return push, low, high


def spectral_pull(k: Tensor, b: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """What moves the anchor (B, 1) towards the usual spectrum; each argument is (B, M)."""
    inside, outside = (low + high) / 2 - k, k.clamp(low, high) - k
    return ((INSIDE * inside + OUTSIDE * outside) * b).sum(1, keepdim=True)


def voiced_pull(peak: Tensor, share: Tensor, echo: Tensor) -> Tensor:
    """What moves the anchor (B, 1) towards a voice; `share` is lag / longest."""
    return peak * (1 - peak) * share * echo
