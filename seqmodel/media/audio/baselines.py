"""Trivial models of audio, shown next to every figure.

- `silence`: a Laplace distribution around zero: most samples are quiet;
- `gaussian`: a Gaussian at the mean of all samples;
- `flac`: what the samples take as FLAC, at libFLAC's level 8, all pieces in one file, if the model
  gives probabilities of 16-bit levels. Other encoders of FLAC, and other formats, take less.

The first two are fitted to the training split, with no scale below one 16-bit step. Densities are
those of standardised samples. If the model gives probabilities of levels, so do these, from the
same distributions.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio import mu_law
from seqmodel.media.audio.frames import sample_blocks
from seqmodel.media.definitions import FrameDefinition, Pieces
from seqmodel.media.sound import flac_bytes

STEP = 1 / 32768
LOWEST, HIGHEST = -1.0, 1 - STEP


def audio_nats_per_frame(
    train: Pieces, split: Pieces, frame: FrameDefinition, *, discrete: bool
) -> dict[str, float]:
    """Nats per frame of each baseline, fitted to `train`, on every frame of `split`.

    `frame` holds the standardisation that densities refer to; `discrete` scores its levels instead.
    """
    sums = np.zeros(4)
    for samples in _samples(train):
        sums += len(samples), samples.sum(), (samples**2).sum(), np.abs(samples).sum()
    mean, square, size = sums[1:] / sums[0]
    scale, deviation = max(size, STEP), math.sqrt(max(square - mean**2, STEP**2))
    nats = {"silence": 0.0, "gaussian": 0.0}
    for samples in _samples(split):
        step = _steps(samples, frame) if discrete else None
        nats["silence"] += _laplace_nats(samples, scale, step)
        nats["gaussian"] += _gaussian_nats(samples - mean, deviation, step)
    if discrete and frame.values == "samples":
        nats["flac"] = 8 * math.log(2) * flac_bytes(_samples(split))
    if not discrete:
        to_standard = math.log(frame.deviation) * split.frames * split.frame.frame_size
        nats = {name: total - to_standard for name, total in nats.items()}
    return {name: float(total / split.frames) for name, total in nats.items()}


def _samples(pieces: Pieces) -> Iterator[NDArray[np.float64]]:
    """All samples, in blocks (n,) of a piece."""
    for i in range(len(pieces)):
        for samples in sample_blocks(pieces, i):
            yield samples.astype(np.float64)


Step = tuple[NDArray[np.float64], NDArray[np.float64]]
"""How far below and above each sample its level ends; infinite for the outermost levels."""


def _steps(samples: NDArray[np.float64], frame: FrameDefinition) -> Step:
    if frame.values == "levels":
        ends = np.concatenate([[-np.inf], mu_law.BOUNDARIES, [np.inf]])
        level = np.searchsorted(mu_law.BOUNDARIES, samples, side="right")
        return samples - ends[level], ends[level + 1] - samples
    below, above = (np.full(len(samples), STEP / 2) for _ in range(2))
    below[samples <= LOWEST], above[samples >= HIGHEST] = np.inf, np.inf
    return below, above


def _gaussian_nats(errors: NDArray[np.float64], deviation: float, step: Step | None) -> float:
    if step is not None:
        return _level_nats(errors, deviation, log_normal_cdf, step)
    z = errors / deviation
    return float((z**2 / 2 + np.log(deviation) + np.log(2 * np.pi) / 2).sum())


def _laplace_nats(samples: NDArray[np.float64], scale: float, step: Step | None) -> float:
    if step is not None:
        return _level_nats(samples, scale, _log_laplace_cdf, step)
    return float((np.abs(samples / scale) + np.log(2 * scale)).sum())


def log_normal_cdf(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """log of the standard normal distribution function, to twelve digits in both tails.

    By the trapezoidal rule for erfcx(x) = exp(x^2) erfc(x), x = |z| / sqrt 2, whose error is below
    that of rounding: C. Chiarella and A. Reichel, "On the Evaluation of Integrals Related to the
    Error Function", Mathematics of Computation 22, 1968.
    """
    x, h = np.abs(z) / np.sqrt(2), 0.5
    scaled = sum(np.exp(-(t**2)) / (x**2 + t**2) for t in h * (np.arange(13) + 0.5))
    scaled = 2 * h / np.pi * x * scaled
    # The residue of the pole at i x, within the strip where the rule is exact without it.
    near = np.minimum(x, np.pi / h)
    scaled += np.where(
        x < np.pi / h, 2 / (np.exp(-(near**2)) * (1 + np.exp(2 * np.pi / h * near))), 0
    )
    tail = np.log(scaled / 2) - x**2
    log_p: NDArray[np.float64] = np.where(z < 0, tail, np.log1p(-np.exp(tail)))
    return log_p


def _log_laplace_cdf(z: NDArray[np.float64]) -> NDArray[np.float64]:
    below = np.minimum(z, 0) - np.log(2)
    above = np.log1p(-np.exp(-np.maximum(z, 0)) / 2)
    return np.where(z < 0, below, above)


def _level_nats(
    errors: NDArray[np.float64],
    scale: float,
    log_cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    step: Step,
) -> float:
    """The nats of the levels around `errors`, for a symmetric distribution of this scale.

    The lowest level also takes the whole tail below it, the highest the tail above it.
    """
    lowest, highest = map(np.isinf, step)
    below, above = (np.where(np.isinf(side), STEP, side) for side in step)
    lower, upper = (errors - below) / scale, (errors + above) / scale
    # Above the centre use the mirror image, where the two probabilities do not cancel.
    mirrored = lower > 0
    below, above = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    inside = log_cdf(above) + np.log1p(-np.exp(log_cdf(below) - log_cdf(above)))
    log_p = np.where(lowest, log_cdf(upper), np.where(highest, log_cdf(-lower), inside))
    return -float(log_p.sum())
