"""A synthetic voice, and recent levels by their definition."""

import math

import numpy as np
import torch


def voice(T, B=1, *, grid=1, seed=0):
    """Raw samples (T, B), float64: pulses and noise through a resonance, after a little silence."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 60, (T, B))
    for piece in range(B):
        x[piece :: 50 + 7 * piece, piece] += 2000
    for t in range(2, T):
        x[t] += 1.6 * x[t - 1] - 0.81 * x[t - 2]
    x[: T // 20] = 0
    return torch.from_numpy(np.rint(x / grid) * grid / 32768)


def forgetting(rate, seconds):
    return math.exp(-1 / (rate * seconds))


def mean_size(values, forget, start):
    """The level after each of the values."""
    found = []
    for t in range(1, len(values) + 1):
        weights = forget ** np.arange(t - 1, -1, -1.0)
        found.append(start * forget**t + (1 - forget) * (weights * np.abs(values[:t])).sum())
    return np.array(found)
