"""A synthetic voice, recent levels by their definition, and the encoder's text, run by Python."""

import math

import numpy as np
import torch

from seqmodel.model.sound.kernel import read_pieces


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


def specified(predictors, known, samples, memory, ends=None, noise=None):
    """As `kernel.compiled_inputs`, piece by piece, in float64."""
    (T, B), found, after = samples.shape, [], memory.clone()
    for k in range(B):
        S = predictors.memory_size + T * len(predictors.lines)
        x, work = np.zeros(T * predictors.input_size), np.zeros(S)
        end = np.array([T if ends is None else int(ends[k])])
        own = None if noise is None else noise[:, k].double().numpy()
        read_pieces(
            samples[:, k].double().numpy(), own, after[k].numpy(), known.packed().numpy(), end, x,
            work, 0, 1, 0, T, 1, S, noise is not None, 0, 1, predictors,
        )  # fmt: skip
        found.append(x.reshape(T, -1))
    return torch.from_numpy(np.stack(found, 1)), after
