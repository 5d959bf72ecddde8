"""Trivial models of audio, shown next to every figure.

Each predicts a sample with a distribution of fixed shape around a linear prediction from the
preceding samples of the piece, with zeros before its start:

- `silence`: a Laplace distribution around zero: most samples are quiet;
- `gaussian`: a Gaussian at the mean of all samples;
- `linear`: a Gaussian around the linear predictor of order 16 with the least squared error.

Scales and predictor are fitted to the training split, with no scale below one 16-bit step.
Densities are those of standardised samples. If the model gives probabilities of 16-bit levels, so
do these, from the same distributions.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import FrameDefinition, Pieces

ORDER = 16
STEP = 1 / 32768
LOWEST, HIGHEST = -1.0, 1 - STEP

# Samples in memory at a time, however long the piece.
BLOCK = 2**16


def audio_nats_per_frame(
    train: Pieces, split: Pieces, frame: FrameDefinition, *, discrete: bool
) -> dict[str, float]:
    """Nats per frame of each baseline, fitted to `train`, on every frame of `split`.

    `frame` holds the standardisation that densities refer to; `discrete` scores levels instead.
    """
    products, loudness = np.zeros((ORDER + 2, ORDER + 2)), 0.0
    for columns in _columns(train):
        products += columns.T @ columns
        loudness += float(np.abs(columns[:, 0]).sum())
    scale = max(loudness / products[-1, -1], STEP)
    gaussians = {"gaussian": _fit(products, 0), "linear": _fit(products, ORDER)}
    nats = dict.fromkeys(("silence", *gaussians), 0.0)
    for columns in _columns(split):
        samples = columns[:, 0]
        nats["silence"] += _laplace_nats(samples, scale, discrete)
        for name, (error, deviation) in gaussians.items():
            nats[name] += _gaussian_nats(samples, columns @ error, deviation, discrete)
    if not discrete:
        to_standard = np.log(frame.deviation) * split.frames * split.frame.frame_size
        nats = {name: total - to_standard for name, total in nats.items()}
    return {name: float(total / split.frames) for name, total in nats.items()}


def _columns(split: Pieces) -> Iterator[NDArray[np.float64]]:
    """Rows of (sample, the `ORDER` samples before it, 1), in blocks (N, ORDER + 2) of a piece."""
    frame = split.frame
    rows_at_once = max(1, BLOCK // frame.frame_size) * frame.rows_per_frame
    for i in range(len(split)):
        before = np.zeros(ORDER)
        for start in range(0, split.rows(i), rows_at_once):
            samples = frame.decode(split.stored(i, start, start + rows_at_once)).ravel()
            line = np.concatenate([before, samples])
            windows = np.lib.stride_tricks.sliding_window_view(line, ORDER + 1)[:, ::-1]
            yield np.concatenate([windows, np.ones((len(samples), 1))], axis=1)
            before = line[len(samples) :]


def _fit(products: NDArray[np.float64], order: int) -> tuple[NDArray[np.float64], float]:
    """The least squares predictor x_t ~ a + sum_i l_i x_(t-i), i = 1 .. order.

    Takes the product matrix of the training split's columns. Returns the weights (ORDER + 2,) that
    turn a row of columns into the prediction error, and the deviation of that error.
    """
    count = products[-1, -1]
    used = [*range(1, order + 1), ORDER + 1]
    # The variance of rounding keeps the system non-singular for digital silence.
    ridge = np.diag([count * STEP**2 / 12] * order + [0.0])
    error = np.zeros(ORDER + 2)
    error[0] = 1.0
    error[used] = -np.linalg.solve(products[np.ix_(used, used)] + ridge, products[used, 0])
    return error, float(np.sqrt(max(error @ products @ error / count, STEP**2)))


def _gaussian_nats(
    samples: NDArray[np.float64], errors: NDArray[np.float64], deviation: float, discrete: bool
) -> float:
    z = errors / deviation
    if not discrete:
        return float((z**2 / 2 + np.log(deviation) + np.log(2 * np.pi) / 2).sum())
    half = STEP / 2 / deviation
    return _level_nats(samples, log_normal_cdf, z - half, z + half)


def _laplace_nats(samples: NDArray[np.float64], scale: float, discrete: bool) -> float:
    z = samples / scale
    if not discrete:
        return float((np.abs(z) + np.log(2 * scale)).sum())
    half = STEP / 2 / scale
    return _level_nats(samples, _log_laplace_cdf, z - half, z + half)


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
    samples: NDArray[np.float64],
    log_cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> float:
    """The nats of levels between `lower` and `upper`, for a symmetric distribution.

    The lowest level also takes the whole tail below it, the highest the tail above it.
    """
    lowest, highest = samples <= LOWEST, samples >= HIGHEST
    # Above the centre use the mirror image, where the two probabilities do not cancel.
    mirrored = lower > 0
    below, above = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    inside = log_cdf(above) + np.log1p(-np.exp(log_cdf(below) - log_cdf(above)))
    log_p = np.where(lowest, log_cdf(upper), np.where(highest, log_cdf(-lower), inside))
    return -float(log_p.sum())
