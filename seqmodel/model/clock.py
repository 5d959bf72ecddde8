"""The clock: how soon a piece that has lasted this long may end.

A recurrent state forgets when the piece began, so either every cadence looks like the last one, or
none does. It also counts poorly: samples that missed their end held the last chord for ever. How
long the piece has lasted and how long nothing has changed in it depend only on the past, so
likelihoods stay exact.
"""

from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

HORIZONS = (4, 8, 16, 32, 64)
"""Numbers of frames within which the piece may end."""
DIGITS = 6
"""Binary digits of the frame count, read by runs that predate `model.bars`."""
ODDS_SCALE = 8.0
"""Log odds are divided by this, which makes them about as large as other inputs."""
MAX_LENGTHS = 256
"""The most training pieces whose lengths are stored."""
MAX_HELD = 256
"""The number of counts of unchanged frames that are distinguished; more count as the highest."""
_LONGEST_TABLE = 1 << 16


class Clock(nn.Module):
    """What the number of frames so far reveals about the end, the metre, or both.

    Attributes:
        end: whether it encodes how soon the piece may end.
        digits: how many digits encode the metre; 0 without.
        size: how many numbers it gives for each frame.
        period: how many rows at the end of `table` repeat for longer pieces.
        lengths: (MAX_LENGTHS,) int64, the sorted lengths of training pieces, an even selection if
            there are more; padded with zeros.
        held: (MAX_HELD,), what is added to the log odds after that many unchanged frames, divided
            by ODDS_SCALE; None without.
    """

    lengths: Tensor
    held: Tensor | None

    def __init__(self, *, end: bool = True, metre: bool = False, held: bool = False) -> None:
        super().__init__()
        self.end, self.digits = end, DIGITS if metre else 0
        self.size = self.digits + (len(HORIZONS) + 1 if end else 0)
        self.period = 1 << self.digits
        self.register_buffer("lengths", torch.zeros(MAX_LENGTHS, dtype=torch.int64))
        self.register_buffer("held", torch.zeros(MAX_HELD) if held and end else None)

    def start_at(self, lengths: NDArray[np.int64]) -> None:
        """Store the lengths of the training pieces, if the clock encodes the end."""
        if not self.end:
            return
        count = min(MAX_LENGTHS, len(lengths))
        selected = np.sort(lengths)[np.arange(count) * len(lengths) // count]
        self.lengths.zero_()
        self.lengths[:count] = torch.from_numpy(selected)

    @property
    def shortest(self) -> int | None:
        """The length of the shortest training piece in frames; None if the end is not encoded."""
        lengths = self.lengths[self.lengths > 0]
        return int(lengths.min()) if len(lengths) else None

    def fit_held(self, unchanged: Iterable[NDArray[np.int64]], brief: int = 0) -> None:
        """Compute `held` from the training pieces.

        `unchanged` holds, for each frame of a piece (T,), how many unchanged frames precede it.
        That number is evidence: the log odds of the end after it, from how often it precedes a last
        frame (smoothed as lengths are) and how often any frame; less the log odds of any frame
        being the last. Numbers above all in train are none below `brief`, as in dense music.
        """
        if self.held is None:
            return
        last, frames = list[int](), np.zeros(MAX_HELD)
        for piece in unchanged:
            last.append(min(int(piece[-1]), MAX_HELD - 1))
            frames += np.bincount(piece.clip(max=MAX_HELD - 1), minlength=MAX_HELD)
        hazard = _hazard(1.0 + torch.tensor(last, dtype=torch.float64), MAX_HELD)
        hazard[max(last) :] = hazard[max(last) :].cummax(0).values  # as in `_ends`
        survival = torch.cat([hazard.new_ones(1), torch.cumprod(1 - hazard, 0)])[:-1] * len(last)
        survival = survival.clamp(min=1e-300)
        odds = survival * hazard / torch.maximum(survival, torch.from_numpy(frames))
        evidence = odds.logit(eps=1e-6) - torch.tensor(len(last) / frames.sum()).logit(eps=1e-6)
        evidence[1 + np.flatnonzero(frames)[-1] : brief] = 0
        self.held.copy_(evidence / ODDS_SCALE)

    def table(self) -> Tensor:
        """(M, size), float64: row t is for a piece of t frames so far; see `period`.

        With `metre`, the last digits of t come first, the lowest first. With `end`, there follow
        the probabilities that one of the next 4, 8, ... frames is the last, and the log odds that
        the next one is, divided by ODDS_SCALE; zeros before `start_at`.
        """
        return _table(tuple(self.lengths.tolist()), self.digits)[:, : self.size].contiguous()


@cache
def _table(padded: tuple[int, ...], digits: int) -> Tensor:
    lengths = torch.tensor([length for length in padded if length > 0], dtype=torch.float64)
    zeros = torch.zeros(1 << digits, len(HORIZONS) + 1, dtype=torch.float64)
    ends = _ends(lengths, 1 << digits) if len(lengths) else zeros
    metre = torch.arange(len(ends)).unsqueeze(1) >> torch.arange(digits) & 1
    return torch.cat([metre.double(), ends], 1)


def _ends(lengths: Tensor, period: int) -> Tensor:
    """The columns of `Clock.table` for the end; the number of rows is a multiple of `period`."""
    longest = min(int(lengths.max()), _LONGEST_TABLE // 2)
    count = -(-2 * longest // period) * period
    hazard = _hazard(lengths, count + max(HORIZONS))
    # Past the longest piece an end never becomes less likely.
    hazard[longest - 1 :] = hazard[longest - 1 :].cummax(0).values
    log_S = torch.cat([hazard.new_zeros(1), torch.log1p(-hazard).cumsum(0)])  # log p(>= t frames)
    within = [-torch.expm1(log_S[n : n + count] - log_S[:count]) for n in HORIZONS]
    return torch.stack([*within, hazard[:count].logit() / ODDS_SCALE], 1)


def _hazard(lengths: Tensor, count: int) -> Tensor:
    """For t from 0 to `count` - 1, the probability that a piece of over t frames has just t + 1.

    The distribution of lengths is smoothed on a log scale by normal kernels, each as wide as the
    distance to the k-th nearest length (k is the root of the number of lengths) and at least one
    frame wide: the variable kernel estimate of Breiman, Meisel, Purcell (1977). One more piece,
    with the same chance of ending everywhere, stands for unseen lengths.
    """
    logs, N = lengths.log(), len(lengths)
    distances = (logs.unsqueeze(1) - logs).abs().sort().values[:, min(N - 1, round(N**0.5))]
    widths = torch.maximum(distances, 1 / lengths)
    boundaries = torch.arange(count + 1, dtype=torch.float64) + 0.5
    # In blocks, for pieces of many frames.
    kernels = [
        torch.special.ndtr((logs - x.log().unsqueeze(1)) / widths).sum(1)
        for x in torch.split(boundaries, 1024)
    ]
    unseen = torch.exp(-boundaries / lengths.mean())
    survival = (torch.cat(kernels) + unseen).clamp(min=1e-300)  # times N + 1
    return (1 - survival[1:] / survival[:-1]).clamp(1e-9, 1 - 1e-6)
