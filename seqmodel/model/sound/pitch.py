"""Where the recent past repeats itself: the lag at which a residual is most like itself.

Voiced speech is nearly periodic, and what linear prediction leaves of it has a pulse per period, so
the residual one period ago predicts the next (Atal, Schroeder 1970, "Adaptive predictive coding of
speech signals"). The autocorrelation is summed over the past with weights that fall exponentially.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seqmodel.model.sound.predictors import Pitch

FIRST = 1e4
"""The energy to start from, in squared levels."""
LEAST = 1e-3
"""The share of the energy that the peak must exceed; else the period is the shortest."""


class PitchState(NamedTuple):
    """What is known of the period."""

    energy: Tensor
    """(B, 1): the sum of squares, plus one squared level per sample."""
    lag: Tensor
    """(B, 1): the period, in steps."""
    peak: Tensor
    """(B, 1): the autocorrelation at this lag over the energy, at least `LEAST`."""
    acf: Tensor
    """(B, lags): the autocorrelation at each lag."""


def start_pitch(like: Tensor, pitch: Pitch) -> PitchState:
    """The state before the first sample; `like` is (B, 1)."""
    lag = torch.full_like(like, pitch.shortest)
    peak, acf = torch.full_like(like, LEAST), like.new_zeros(len(like), pitch.lags)
    return PitchState(torch.full_like(like, FIRST), lag, peak, acf)


def hear(state: PitchState, line: Tensor, pitch: Pitch) -> PitchState:
    """The state after the newest residual of `line` (B, N), the latest last."""
    newest = line[:, -1:]
    energy = pitch.forgetting * state.energy + newest * newest + 1.0
    back = torch.arange(pitch.shortest, pitch.longest + 1, device=line.device) * pitch.step
    acf = pitch.forgetting * state.acf + newest * line[:, line.shape[1] - 1 - back]
    most, best = acf.max(1, keepdim=True)
    lag = torch.where(most > LEAST * energy, best + pitch.shortest, pitch.shortest)
    return PitchState(energy, lag.to(energy), (most / energy).clamp(min=LEAST), acf)


def one_period_ago(state: PitchState, line: Tensor, pitch: Pitch, taps: int) -> Tensor:
    """The residuals (B, 2 taps + 1) one period before the next, and `taps` steps around it."""
    steps = state.lag.long() - torch.arange(-taps, taps + 1, device=line.device)
    return line.gather(1, line.shape[1] - steps * pitch.step)
