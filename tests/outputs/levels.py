"""16-bit levels: exact probabilities, and whether draws follow them."""

import mpmath
import numpy as np
import torch
from scipy import stats

LEVELS = torch.arange(-32768, 32768, dtype=torch.float64) / 32768


def exact_nats(sample, logits, means, scales, *, step=1 / 32768, uniform=2.0**-40):
    """-log P of a raw sample's level in 60 digits, straight from the distribution functions."""
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        normal = sum(mpmath.exp(logit) for logit in logits)
        for logit, mean, scale in zip(logits, means, scales, strict=True):
            lower = -mpmath.inf if sample <= -1 else mpmath.mpf(sample) - step / 2 - mean
            upper = mpmath.inf if sample >= 1 - step else mpmath.mpf(sample) + step / 2 - mean
            if sample > mean:  # mirrored: a difference of two ones has no digits left
                lower, upper = -upper, -lower
            within = 1 / (1 + mpmath.exp(-upper / scale)) - 1 / (1 + mpmath.exp(-lower / scale))
            total += mpmath.exp(logit) / normal * within
        return float(-mpmath.log((1 - uniform) * total + uniform / 65536))


def assert_follow(drawn, p):
    """Raw samples `drawn` (N,) follow the probabilities (65536,) of all levels, by chi squared."""
    bins = np.floor(np.cumsum(p) * 50 - 1e-9).astype(int)  # of about equal probability
    levels = (drawn * 32768).round().astype(int) + 32768
    used, bins = np.unique(bins, return_inverse=True)
    seen = np.bincount(bins[levels], minlength=len(used))
    expected = np.bincount(bins, p) * len(drawn)
    enough = expected >= 5
    seen = np.append(seen[enough], seen[~enough].sum())
    expected = np.append(expected[enough], expected[~enough].sum() + 1e-9)
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1e-3))[expected > 1e-3].sum()
    assert stats.chi2.sf(statistic, len(seen) - 1) > 1e-3
