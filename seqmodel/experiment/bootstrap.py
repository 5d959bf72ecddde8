"""Which differences are real: a paired bootstrap over pieces."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000

FEWEST = 6
"""Fewest pieces for a difference to be real. Of two equal models one is ahead on all of five
pieces in 6 % of cases, and resampling those can only agree."""


class Difference(NamedTuple):
    """How much more nats per frame one model takes than another on the same pieces."""

    mean: float
    low: float
    """Lower end of the interval that holds 95 % of the resampled differences."""
    high: float
    pieces: int

    @property
    def real(self) -> bool:
        """Whether the interval excludes 0 and there are enough pieces to trust it."""
        return self.pieces >= FEWEST and not self.low <= 0 <= self.high


def difference(
    ours: NDArray[np.float64],
    theirs: NDArray[np.float64],
    lengths: NDArray[np.int64],
    *,
    seed: int = 1,
) -> Difference:
    """The difference of two models' nats per frame, ours minus theirs, and how sure it is.

    Pieces are what varies from one test set to the next, so whole pieces are resampled, with
    replacement, and both models scored on the same ones (Efron, Tibshirani 1993; Koehn 2004). Seeds
    vary too: each draw also takes one of the seeds of either model. Each resampled figure is the
    sum of nats over the sum of frames.

    Args:
        ours: nats of each piece, (seeds, pieces).
        theirs: the other model's; the number of seeds may differ.
        lengths: (pieces,) in frames.
    """
    random, pieces = np.random.default_rng(seed), len(lengths)
    figure = _figures(ours, lengths).mean() - _figures(theirs, lengths).mean()
    counts = random.multinomial(pieces, np.full(pieces, 1 / pieces), size=DRAWS)
    mine, its = (random.integers(len(nats), size=DRAWS) for nats in (ours, theirs))
    nats = (counts * (ours[mine] - theirs[its])).sum(1)
    resampled = nats / (counts @ lengths)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Difference(float(figure), float(low), float(high), pieces)


def _figures(nats: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Nats per frame of each seed: (seeds,)."""
    figures: NDArray[np.float64] = nats.sum(1) / lengths.sum()
    return figures
