"""The grid of a recording: the largest power of two that all its samples so far are multiples of.

Recordings of fewer than 16 bits are on a grid of several levels, such as 256 for those of 8 bits,
and are far likelier under a distribution over its points. FLAC, too, saves these "wasted bits".
How certain the grid is follows from the share of recordings that have one in training, and from the
chance that a recording without one would have met it so far.
"""

from typing import NamedTuple

import torch
from torch import Tensor

MOST = 2
"""Samples that count as evidence: leaving a grid after however many costs no more than that."""


class GridState(NamedTuple):
    """Of each piece, (B, 1)."""

    grid: Tensor
    """In levels; the usual one while all samples are 0."""
    seen: Tensor
    """How many samples other than 0 there were, at most `MOST`."""


def hear(state: GridState, sample: Tensor) -> GridState:
    """The state after `sample` (B, 1), in levels."""
    whole = sample.round()
    bits = whole.long()
    lowest = torch.where(whole == sample, (bits & -bits).to(sample), 1.0)
    found = torch.where(state.seen > 0, torch.minimum(state.grid, lowest), lowest)
    silent = sample == 0
    grid = torch.where(silent, state.grid, found)
    seen = torch.where(silent, state.seen, (state.seen + 1).clamp(max=MOST))
    return GridState(grid, seen)


def certainty(state: GridState, share: float) -> Tensor:
    """The probability (B, 1) that the next sample is on the grid because the recording is.

    A sample is on a grid G by chance once in G times. 0 where the grid is 1.
    """
    odds = share * state.grid**state.seen
    return torch.where(state.grid > 1, odds / (odds + (1 - share)), 0.0)
