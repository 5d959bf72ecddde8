"""Statistics of the training split's recordings: their grids, loudness, periods and spectra."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.data.dataset import Split
from seqmodel.media.labels import KnownLabels
from seqmodel.model.sound.kernel import compiled_inputs
from seqmodel.model.sound.predictors import (
    FULL,
    MIN_RATE,
    MOMENT,
    Level,
    Predictors,
    predictors_at,
)
from seqmodel.model.sound.steering import (
    AN_OCTAVE,
    MOMENTS,
    NODES,
    WIDE,
    TrainingStatistics,
    no_statistics,
)

PIECES, SURVEYED = 600, 2**22
"""The most pieces used, evenly from train, and about how many opening samples of them in all."""

FORCE, MAX_PUSH, GAIN = 0.06, 0.2, 0.03
"""The first push per slope of log p, the largest push, and the correction per slope."""
WIDTH, MAX_SLOPE = 0.6, 5.0
"""The width in octaves of the kernel that smooths the density of loudness; the steepest slope."""
SHARPEST_QUANTILE, ROUGHEST_QUANTILE = 0.9995, 0.995
"""The quantile of `sharp`, `loud` and the size of `dc` that are `sharpest`, `loudest` and
`most_dc`; and that of `slow` that is `roughest`."""

VOICED, MIN_SHARE, VOICE_GAIN, MAX_VOICE = 0.3, 1e-3, 0.07, 2.0
"""The least periodicity of a voiced residual, and the least share of sound that a period counts
for; the correction of a voice per factor e, and its limit."""

ABREAST, AT_ONCE, EVERY = 16, 4096, 8
"""Coefficients and periods are measured in this many lines, this many samples of each at once;
every eighth sample counts."""
RARE, MIN_SECONDS = 0.02, 0.1
"""The share of coefficients on either side of the usual range; the seconds of sound below which a
node does not count."""

FOLLOWED, TOGETHER, MIN_PIECES = 2**25, 64, 4
"""For courses: about the most samples of train read; the pieces read at once; and the fewest pieces
of a combination, also at a moment; with fewer, the moment before stands in."""

_BLOCK = 512
"""Samples that are averaged at once."""


def survey(
    pieces: Split | Sequence[NDArray[Any]], rate: int, *, steered: bool = True
) -> TrainingStatistics:
    """Statistics of raw pieces (T, S); unless `steered`, only the grids of those not silent."""
    count = min(len(pieces), PIECES)
    chosen = {k * len(pieces) // count for k in range(count)}
    grids, kept = list[int](), list[NDArray[Any]]()
    for number, piece in enumerate(pieces):
        levels = FULL * piece.ravel()
        grids.append(_grid_of(levels))
        if steered and number in chosen:
            kept.append(levels[: SURVEYED // count].copy())
    found = [grid for grid in grids if grid]
    coarse = [grid for grid in found if grid > 1]
    share = (len(coarse) + 0.5) / (len(found) + 1)
    grid = max(set(coarse), key=lambda g: (coarse.count(g), g), default=1)
    predictors = predictors_at(rate)
    known = no_statistics(predictors.reported_coefficients)._replace(share=share, grid=float(grid))
    if not sum(map(len, kept)):
        return known
    line = np.concatenate(kept)
    sharp = _level_after(np.abs(np.diff(line, prepend=0)), predictors.levels["sharp"])
    dc = np.abs(_level_after(line, predictors.levels["dc"]))
    loud = _level_after(np.abs(line), predictors.levels["loud"])
    measured = _measured(line, predictors, known)
    slopes = _slopes(measured)
    begun = measured.level[len(measured.level) // 50 :]  # where levels have left their start
    return known._replace(
        sharpest=float(np.quantile(sharp, SHARPEST_QUANTILE)),
        roughest=float(np.quantile(begun, ROUGHEST_QUANTILE)),
        pushes=(FORCE * slopes).clamp(-MAX_PUSH, MAX_PUSH),
        most_dc=float(np.quantile(dc, SHARPEST_QUANTILE)),
        loudest=float(np.quantile(loud, SHARPEST_QUANTILE)),
        slopes=slopes,
        voices=2 ** (torch.arange(1 - NODES, 1, dtype=torch.float64) / AN_OCTAVE),
        periods=_log_periods(measured),
        ranges=torch.from_numpy(_ranges(measured, math.ceil(MIN_SECONDS * rate / EVERY))),
    )


def courses(train: Split, known: KnownLabels, rate: int) -> torch.Tensor:
    """`TrainingStatistics.courses` from the beginnings of train's pieces.

    The digits of a combination's number are the places of its labels, 0 for one not given: that
    combination covers all pieces that have the other labels. A combination with fewer than
    `MIN_PIECES` gets the mean of those with one label less.
    """
    step = max(1, round(MOMENT * max(rate, MIN_RATE)))
    frames = -(-step * MOMENTS // train.frame.frame_size)
    count = min(len(train), FOLLOWED // (frames * train.frame.frame_size))
    pieces = train.beginnings(count, count * frames)
    found, places = _at_moments(pieces, rate, step), pieces.labels(known)
    there = np.isfinite(found[:, :, :1])
    found = np.nan_to_num(found)
    shape = tuple(1 + len(values) for values in known.values())
    means = np.zeros((math.prod(shape), *found.shape[1:]))
    of_pieces = np.zeros(len(pieces), np.int64)
    for number, asked in enumerate(np.ndindex(shape)):
        alike = ((places == asked) | (np.array(asked) == 0)).all(1)
        of_pieces[alike] = number  # the last such combination has all of a piece's labels
        least = min(MIN_PIECES, len(pieces))
        if alike.sum() >= least:
            counts = there[alike].sum(0)
            latest = _latest(counts[:, 0] >= least)
            means[number] = (found[alike].sum(0) / counts.clip(1))[latest]
        else:
            fewer = [(*asked[:k], 0, *asked[k + 1 :]) for k, place in enumerate(asked) if place]
            means[number] = means[[np.ravel_multi_index(one, shape) for one in fewer]].mean(0)
    counts = there.sum(0)
    squares = (there * (found - means[of_pieces]) ** 2).sum(0) / counts.clip(1)
    widths = WIDE * np.sqrt(squares)[_latest(counts[:, 0] >= min(MIN_PIECES, len(pieces)))]
    # In half precision, which takes a third of the bytes in a page.
    return torch.from_numpy(np.concatenate([[widths], means])).half().double()


def _latest(enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each moment (MOMENTS,), the latest one up to it with enough pieces."""
    return np.maximum.accumulate(np.where(enough, np.arange(MOMENTS), 0))


def _at_moments(pieces: Split, rate: int, step: int) -> NDArray[np.float64]:
    """(pieces, MOMENTS, M + 1): coefficients and the logarithm of the loudness; nan after ends.

    Moments are `step` samples apart; each is measured a sample late, as a first one must be read.
    """
    predictors = predictors_at(rate)
    known = no_statistics(predictors.reported_coefficients)
    k, loudness = (predictors.columns[name] for name in ("reflections", "loudness"))
    found = np.full((len(pieces), MOMENTS, k.stop - k.start + 1), np.nan)
    for begin in range(0, len(pieces), TOGETHER):
        group = [pieces[i].ravel() for i in range(begin, min(begin + TOGETHER, len(pieces)))]
        samples = np.zeros((max(map(len, group)), len(group)), np.float32)
        for n, line in enumerate(group):
            samples[: len(line), n] = line
        memory = predictors.start_memory(known.grid, len(group), torch.device("cpu"))
        x, _ = compiled_inputs(predictors, known, torch.from_numpy(samples), memory)
        for n, line in enumerate(group):
            own = x[: len(line) : step, n].numpy()[:MOMENTS]
            found[begin + n, : len(own), :-1] = own[:, k]
            found[begin + n, : len(own), -1] = 2 * (own[:, loudness.stop - 1] + 3.0)
    return found


def corrected(known: TrainingStatistics, drawn: NDArray[Any], rate: int) -> TrainingStatistics:
    """The same, with pushes and voices that make the next samples more like train than `drawn`.

    `drawn` are raw samples (N,) that were drawn with those of `known`.
    """
    measured = _measured(FULL * drawn.astype(np.float64), predictors_at(rate), known)
    pushes = known.pushes + GAIN * (known.slopes - _slopes(measured))
    voices = known.voices + VOICE_GAIN * (known.periods - _log_periods(measured))
    return known._replace(
        pushes=pushes.clamp(-MAX_PUSH, MAX_PUSH), voices=voices.clamp(-MAX_VOICE, MAX_VOICE)
    )


def _grid_of(levels: NDArray[Any]) -> int:
    """The grid of a whole recording; 0 if it is silent."""
    whole = np.rint(levels)
    if (whole != levels).any():
        return 1
    bits = int(np.bitwise_or.reduce(whole.astype(np.int64), axis=None))
    return bits & -bits


def _level_after(values: NDArray[Any], level: Level) -> NDArray[np.float64]:
    """The level (N,) after each of the values: their recent mean."""
    blocks = np.pad(values, (0, -len(values) % _BLOCK)).reshape(-1, _BLOCK)
    ages = np.arange(_BLOCK) - np.arange(_BLOCK)[:, np.newaxis]
    means = blocks @ np.triu((1 - level.forgetting) * level.forgetting ** ages.clip(0))
    before = level.start
    fading = level.forgetting ** np.arange(1, _BLOCK + 1)
    for n in range(len(means)):
        means[n] += before * fading
        before = means[n, -1]
    return means.ravel()[: len(values)] + level.floor


def _slopes(measured: "_Measured") -> torch.Tensor:
    """The slopes of the log density of loudness (NODES,), per factor e."""
    counts, edges = np.histogram(measured.octaves, 16 * NODES, (0, NODES))
    away = (edges[1:] + edges[:-1]) / 2 - np.arange(NODES)[:, np.newaxis]
    weights = np.exp(-((away / WIDTH) ** 2) / 2)
    near = np.maximum(weights @ counts, np.finfo(float).tiny)
    slopes = (weights * away / WIDTH**2) @ counts / near / math.log(2)
    return torch.from_numpy(slopes.clip(-MAX_SLOPE, MAX_SLOPE))


class _Measured(NamedTuple):
    """Measurements at every eighth sample, N."""

    level: NDArray[np.float64]
    """(N,): the level `slow`."""
    octaves: NDArray[np.float64]
    """(N,): log2 of the level `loud`."""
    k: NDArray[np.float64]
    """(N, M): the reflection coefficients."""
    peak: NDArray[np.float64]
    """(N,): how periodic the residual is."""
    period: NDArray[np.float64]
    """(N,): log2 of the period over the longest one."""


def _measured(levels: NDArray[Any], predictors: Predictors, known: TrainingStatistics) -> _Measured:
    abreast = ABREAST if len(levels) > ABREAST * AT_ONCE else 1
    length = len(levels) // abreast
    lines = levels[: length * abreast].reshape(abreast, length).T
    columns = predictors.columns
    loud, k, period = (columns[name] for name in ("loudness", "reflections", "period"))
    wanted = [loud.start, loud.stop - 1, *range(k.start, k.stop), period.stop - 2, period.stop - 1]
    known = known._replace(afforded=known.afforded[:0], courses=known.courses[:0])
    memory, found = predictors.start_memory(known.grid, abreast, torch.device("cpu")), []
    for begin in range(0, length, AT_ONCE):
        samples = torch.from_numpy(np.float32(lines[begin : begin + AT_ONCE] / FULL))
        features, memory = compiled_inputs(predictors, known, samples, memory)
        found.append(features[::EVERY, :, wanted].flatten(0, 1))
    x = torch.cat(found).double().numpy()
    level = np.exp(2 * (x[:, 0] + 2.0))  # its feature is log(level) / 2 - 2
    octaves = 2 * (x[:, 1] + 3.0) / math.log(2)  # and this one log(level) / 2 - 3
    return _Measured(level, octaves, x[:, 2:-2], *x[:, -2:].T)


def _log_periods(measured: _Measured) -> torch.Tensor:
    """The log of how usual each period is (NODES,): of its share of all sound."""
    nodes = np.arange(1 - NODES, 1) / AN_OCTAVE
    near = np.abs(nodes - measured.period[:, np.newaxis]) * AN_OCTAVE
    shares = ((1 - near).clip(0) * (measured.peak > VOICED)[:, np.newaxis]).mean(0)
    return torch.from_numpy(np.log(shares + MIN_SHARE))


def _ranges(measured: _Measured, few: int) -> NDArray[np.float64]:
    """See `TrainingStatistics`; nodes with fewer than `few` coefficients use the nearest node's."""
    nearest = np.rint(measured.octaves).clip(0, NODES - 1)
    counts = np.array([(nearest == n).sum() for n in range(NODES)])
    filled = np.flatnonzero(counts >= min(few, counts.max()))
    like = [filled[np.abs(filled - n).argmin()] for n in range(NODES)]
    return np.stack(
        [np.quantile(measured.k[nearest == n], [RARE, 1 - RARE], 0).ravel() for n in like]
    )
