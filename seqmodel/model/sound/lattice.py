"""Burg's lattice with exponential forgetting: a linear predictor that adapts at every sample.

Stage m turns the forward and backward errors f_m and b_m of order m, f_0 = b_0 = the sample, into

    f_m+1(t) = f_m(t) - k_m b_m(t-1),    b_m+1(t) = b_m(t-1) - k_m f_m(t),

and its reflection coefficient k_m = 2 sum f_m b_m / sum (f_m^2 + b_m^2), over the past with weights
that fall exponentially, minimises the sum of both errors' squares (Burg 1967, "Maximum entropy
spectral analysis"; the lattice: Itakura, Saito 1971, "Digital filtering techniques for speech
analysis and synthesis"). It is always inside (-1, 1), so the predictor is the stable filter of an
all-pole model at every moment (Makhoul 1977, "Stable and efficient lattice methods for linear
prediction"), unlike recursive least squares, which blows up when it hears its own samples.
"""

from typing import NamedTuple

import torch
from torch import Tensor

INSIDE = 0.995
"""Coefficients are multiplied by this: poles a little further inside, so fewer tones that last."""
FIRST = 100.0
"""The sum of squares to start from, in squared levels."""
QUANTISATION = 1 / 12
"""The variance of rounding, added to the squares of both errors: k is finite in silence too."""


class LatticeState(NamedTuple):
    """Of M stages, each (B, M)."""

    k: Tensor
    """The reflection coefficients."""
    b: Tensor
    """The backward errors of the last sample."""
    num: Tensor
    """2 sum f b."""
    den: Tensor
    """sum (f^2 + b^2)."""


def start_lattice(like: Tensor) -> LatticeState:
    """The state before the first sample; `like` is (B, M)."""
    zeros = torch.zeros_like(like)
    return LatticeState(zeros, zeros, zeros, torch.full_like(like, FIRST))


def prediction(state: LatticeState) -> Tensor:
    """What the next sample is expected to be (B, 1)."""
    return (state.k * state.b).sum(1, keepdim=True)


def hear(state: LatticeState, sample: Tensor, forgetting: float) -> LatticeState:
    """The state after `sample` (B, 1)."""
    k, b, num, den = state
    told = (k * b).cumsum(1)
    f = sample - torch.nn.functional.pad(told[:, :-1], (1, 0))  # the f_m of all stages at once
    num = forgetting * num + 2 * f * b
    den = forgetting * den + f * f + b * b + 2 * QUANTISATION
    b = torch.cat([sample, (b - k * f)[:, :-1]], 1)
    return LatticeState(INSIDE * num / den, b, num, den)
