"""Trivial models of audio that every figure is shown beside.

Each predicts a sample by a distribution of one shape around a linear prediction from the samples
before it in the piece, zeros before its start:

- `silence`: a Laplace distribution around zero: most samples are quiet;
- `gaussian`: a Gaussian at the mean of all samples;
- `linear`: a Gaussian around the linear predictor of order 16 with the least squared error.

Scales and predictor are those of the training split. A density is one of standardised samples;
where the model gives probabilities of 16-bit levels, so do these, by the same distributions.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from seqmodel.dataset import Split
from seqmodel.frames.definitions import AudioFrames

ORDER = 16
STEP = 1 / 32768
LOWEST, HIGHEST = -1.0, 1 - STEP


class LinearPredictor:
    """x_t ~ a + sum_i l_i x_(t-i), i = 1 .. order, fitted to a split by least squares."""

    def __init__(self, train: Split, order: int) -> None:
        self.order = order
        products = np.zeros((order + 2, order + 2))
        for piece in train:
            columns = self._columns(piece.ravel().astype(np.float64))
            products += columns.T @ columns
        # A rounding's variance keeps digital silence from leaving nothing to fit.
        count = products[-1, -1]
        normal = products[1:, 1:] + np.diag([count * STEP**2 / 12] * order + [0.0])
        self.weights = np.linalg.solve(normal, products[1:, 0])
        whole = np.concatenate([[1.0], -self.weights])
        self.deviation = float(np.sqrt(max(whole @ products @ whole / count, STEP**2)))
        """Of the error on the training split."""

    def errors(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """The error of the prediction of each sample (N,)."""
        columns = self._columns(samples)
        errors: NDArray[np.float64] = columns[:, 0] - columns[:, 1:] @ self.weights
        return errors

    def _columns(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sample, those before it, and 1: (N, order + 2)."""
        line = np.concatenate([np.zeros(self.order), samples])
        windows = np.lib.stride_tricks.sliding_window_view(line, self.order + 1)[:, ::-1]
        return np.concatenate([windows, np.ones((len(samples), 1))], axis=1)


def audio_nats_per_frame(
    train: Split, split: Split, frame: AudioFrames, *, discrete: bool
) -> dict[str, float]:
    """Nats per frame of each baseline, fitted to `train`, on every frame of `split`.

    `frame` holds the standardisation that densities refer to; `discrete` scores levels instead.
    """
    laplace = sum(float(np.abs(piece).sum(dtype=np.float64)) for piece in train)
    scale = max(laplace / (train.frames * frame.frame_size), STEP)
    predictors = {"gaussian": LinearPredictor(train, 0), "linear": LinearPredictor(train, ORDER)}
    nats = dict.fromkeys(("silence", *predictors), 0.0)
    for piece in split:
        samples = piece.ravel().astype(np.float64)
        nats["silence"] += _laplace_nats(samples, samples, scale, discrete)
        for name, predictor in predictors.items():
            errors = predictor.errors(samples)
            nats[name] += _gaussian_nats(samples, errors, predictor.deviation, discrete)
    samples_in_all = split.frames * frame.frame_size
    to_standard = 0.0 if discrete else -np.log(frame.deviation) * samples_in_all
    return {name: float((total + to_standard) / split.frames) for name, total in nats.items()}


def _gaussian_nats(
    samples: NDArray[np.float64], errors: NDArray[np.float64], deviation: float, discrete: bool
) -> float:
    z = errors / deviation
    if not discrete:
        return float((z**2 / 2 + np.log(deviation) + np.log(2 * np.pi) / 2).sum())
    half = STEP / 2 / deviation
    return _level_nats(samples, special.log_ndtr, z - half, z + half)


def _laplace_nats(
    samples: NDArray[np.float64], errors: NDArray[np.float64], scale: float, discrete: bool
) -> float:
    z = errors / scale
    if not discrete:
        return float((np.abs(z) + np.log(2 * scale)).sum())
    half = STEP / 2 / scale

    def log_cdf(x: NDArray[np.float64]) -> NDArray[np.float64]:
        below = np.minimum(x, 0) - np.log(2)
        above = np.log1p(-np.exp(-np.maximum(x, 0)) / 2)
        return np.where(x < 0, below, above)

    return _level_nats(samples, log_cdf, z - half, z + half)


def _level_nats(
    samples: NDArray[np.float64],
    log_cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> float:
    """The nats of levels whose steps end at `lower` and `upper`, of a symmetric distribution.

    The lowest level takes all below it, the highest all above it.
    """
    lowest, highest = samples <= LOWEST, samples >= HIGHEST
    # Above the middle the mirror image is counted, where the two chances differ in their digits.
    mirrored = lower > 0
    below, above = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    inside = log_cdf(above) + np.log1p(-np.exp(log_cdf(below) - log_cdf(above)))
    log_p = np.where(lowest, log_cdf(upper), np.where(highest, log_cdf(-lower), inside))
    return -float(log_p.sum())
