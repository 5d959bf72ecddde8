"""Which differences are real: more than other seeds and other pieces would make of equal models."""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEWEST = 6
"""Fewest pieces for a verdict. Of two equal models one is ahead on all of five pieces in 6 % of
cases, and no assumption about how pieces differ could be checked on so few."""
LEVEL = 0.04
"""Nominal rate of false verdicts. Approximate degrees of freedom overshoot it where one model's
seeds vary five times as much as another's; the measured rate then stays below 5 % (README.md)."""
ALONE = 4
"""Models that quantiles allow for, at most, with a variance of two models alone. Where a few vary
much more than the others, the best and the worst are among these."""
STEP = 0.01
"""Of the grid on which the standard normal distribution is integrated, from -8 to 8."""


class Difference(NamedTuple):
    """How many more nats per frame a model takes than the best one, on the same pieces."""

    mean: float
    margin: float
    """Half the width of the interval of at least 95 %, which holds for all models at once."""
    seeds: int
    """Of the model that has fewer; one cannot tell how much seeds vary."""
    pieces: int

    @property
    def interval(self) -> tuple[float, float]:
        """Its ends."""
        return self.mean - self.margin, self.mean + self.margin

    @property
    def told(self) -> bool:
        """Whether there are seeds and pieces enough for a verdict."""
        return self.seeds > 1 and self.pieces >= FEWEST

    @property
    def real(self) -> bool:
        """Whether the interval excludes 0."""
        return self.told and abs(self.mean) > self.margin


def behind_the_first(
    nats: Sequence[NDArray[np.float64]], lengths: NDArray[np.int64]
) -> list[Difference]:
    """The difference of each model but the first from the first, the best, and how sure it is.

    Other pieces and other seeds would give other figures, and both count, as in Clark's min F'
    (1973): the margins of either are added in quadrature. Pieces are compared in pairs, and their
    variance is the jackknife's of a ratio, nats over frames (Efron, Tibshirani 1993). Seeds are
    those of either model. Either margin is the larger of two, from the variance pooled over all
    models and from that of the two alone, with Welch's degrees of freedom, since models may vary
    differently. Quantiles are of the studentized range (Tukey): the best was chosen by these very
    figures.

    `nats` has those of each piece, (seeds, pieces), for each model; `lengths` are in frames.
    """
    frames, models, pieces = lengths.sum(), len(nats), len(lengths)
    figures = [each.sum(1) / frames for each in nats]
    means = [float(each.mean()) for each in figures]
    seeds = [len(each) for each in figures]
    if models < 2:
        return []
    if min(pieces, max(seeds)) < 2:  # nothing varies
        gaps = zip(means[1:], seeds[1:], strict=True)
        return [Difference(m - means[0], 0.0, min(s, seeds[0]), pieces) for m, s in gaps]

    of_seeds = [float(each.var(ddof=1)) if len(each) > 1 else 0.0 for each in figures]
    free_of_all = sum(seeds) - models
    of_all = sum(v * (s - 1) for v, s in zip(of_seeds, seeds, strict=True)) / free_of_all
    # What leaving out a piece changes; its square, times (P - 1) / P, sums to the variance.
    average = np.array([each.mean(0) for each in nats])
    changes = (average - np.outer(means, lengths)) / (frames - lengths) * math.sqrt(1 - 1 / pieces)
    apart = changes - changes.mean(0)
    # Long pieces weigh more, so that there are fewer degrees of freedom than pieces.
    weights = lengths.astype(float) ** 2
    free_pieces = float(weights.sum() ** 2 / (weights**2).sum()) - 1

    found, few = [], min(models, ALONE)
    for k in range(1, models):
        parts = [of_seeds[i] / seeds[i] for i in (0, k)]
        shares = [part**2 / max(seeds[i] - 1, 1) for i, part in zip((0, k), parts, strict=True)]
        squares = [
            _margin(sum(parts), sum(parts) ** 2 / sum(shares) if any(shares) else 1.0, few),
            _margin(of_all * (1 / seeds[0] + 1 / seeds[k]), free_of_all, models),
            _margin(float(((changes[k] - changes[0]) ** 2).sum()), free_pieces, few),
            _margin(2 * float((apart**2).sum()) / (models - 1), free_pieces * (models - 1), models),
        ]
        margin = math.hypot(max(squares[:2]), max(squares[2:]))
        found.append(Difference(means[k] - means[0], margin, min(seeds[0], seeds[k]), pieces))
    return found


def _margin(variance: float, freedom: float, models: int) -> float:
    # Rounded down, as every new number costs an integration.
    return math.sqrt(variance) * quantile(models, max(1.0, math.floor(freedom * 10) / 10))


@cache
def quantile(models: int, freedom: float, level: float = LEVEL) -> float:
    """How many standard errors apart the best and the worst of equal models are, at most.

    That of the studentized range over the root of 2, for Student's t if there are two models,
    exceeded with the probability `level`. `freedom` is the standard error's degrees of freedom.
    """
    freedom, width = min(freedom, 1e5), 1 / math.sqrt(2 * min(freedom, 1e5))
    logs = np.linspace(-12 / freedom - 8 * width, min(8 * width, 2.2), 400)
    errors = np.exp(logs)  # estimated over true
    density = np.exp(freedom * (logs - errors**2 / 2 + 0.5))
    density /= density.sum()
    ranges, below = _range(models)

    def exceeded(bound: float) -> float:
        return 1 - float(density @ np.interp(bound * math.sqrt(2) * errors, ranges, below))

    low, high = 0.0, 1.0
    while exceeded(high) > level:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeded(middle) > level else (low, middle)
    return high


@cache
def _range(models: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Ranges of as many standard normal numbers as models, and the probability of less."""
    values = np.arange(-8, 8, STEP)
    normal = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in values])
    density = np.exp(-(values**2) / 2)
    density /= density.sum()
    below = [0.0]
    for k in range(1, len(values)):
        lower = np.concatenate([np.zeros(k), normal[:-k]])
        below.append(models * float(density @ (normal - lower) ** (models - 1)))
    return np.arange(len(values)) * STEP, np.array(below)
