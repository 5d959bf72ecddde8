"""What the sound encoder hears and tells, in plain PyTorch: an independent form for the tests."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from seqmodel.model.sound.predictors import (
    CLEAN,
    CLIP,
    FULL,
    OFFSET,
    SAMPLE,
    SLOPE,
    SMOOTH,
    TAPS,
    Anchor,
    Feature,
    Grid,
    Lattice,
    Level,
    Loudness,
    Period,
    Pitch,
    Predictors,
    Recent,
    Reflections,
    Rival,
    residual,
)
from seqmodel.model.sound.steering import AN_OCTAVE, NODES, OUTSIDE, TrainingStatistics

Parts = dict[str, Tensor]
"""The parts (B, size) of a memory by name, see `Predictors.sizes`."""


class LatticeState(NamedTuple):
    """Of M stages, each (B, M)."""

    k: Tensor
    """The reflection coefficients."""
    b: Tensor
    """The backward errors of the last sample."""
    num: Tensor
    """2 sum f b."""
    den: Tensor
    """sum (f^2 + b^2)."""


class PitchState(NamedTuple):
    """What is known of the period."""

    energy: Tensor
    """(B, 1): the sum of squares, plus one squared level per sample."""
    lag: Tensor
    """(B, 1): the period, in steps."""
    peak: Tensor
    """(B, 1): the autocorrelation at this lag over the energy, at least `LEAST`."""
    acf: Tensor
    """(B, lags): the autocorrelation at each lag."""


class GridState(NamedTuple):
    """Of each piece, (B, 1)."""

    grid: Tensor
    """In levels; the usual one while all samples are 0."""
    seen: Tensor
    """How many samples other than 0 there were, at most `MOST`."""


def heard_plainly(
    predictors: Predictors,
    known: TrainingStatistics,
    samples: Tensor,
    memory: Tensor,
    ends: Tensor | None = None,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The features (T, B, I) after each of `samples` (T, B), in [-1, 1), and the new memory (B, K).

    The predictors hear the samples through `noise` (T, B), times the level `slow` of the samples
    without noise, and rounded to the grid. The levels themselves are of the samples, and of what is
    missing to them, without noise too: if noise were in them, what follows would seem softer than
    what was heard, and free running would fade. Each piece ends after as many samples as `ends`
    (B,) says, by default all; its memory is that at its end, and features after it mean nothing.
    Everything is float64.
    """
    found = []
    for t, sample in enumerate(samples):
        parts = _parts(predictors, memory)
        parts = _hear(predictors, parts, sample, None if noise is None else noise[t])
        found.append(tell(predictors, known, parts))
        after = torch.cat(list(parts.values()), 1)
        memory = after if ends is None else torch.where((t < ends).unsqueeze(1), after, memory)
    return torch.stack(found), memory


def _parts(predictors: Predictors, memory: Tensor) -> Parts:
    split = torch.split(memory, list(predictors.sizes.values()), 1)
    return dict(zip(predictors.sizes, split, strict=True))


def _hear(predictors: Predictors, parts: Parts, raw: Tensor, noise: Tensor | None) -> Parts:
    """The memory after the samples `raw` (B,)."""
    parts, sample = dict(parts), FULL * raw.double().unsqueeze(1)
    pure = sample
    parts |= hear_grid(GridState(parts["grid"], parts["seen"]), sample)._asdict()
    if noise is not None:
        level = predictors.levels["slow"]
        disturbed = (parts[CLEAN] + level.floor) * noise.double().unsqueeze(1)
        error = _hear_lattice(parts, CLEAN, sample + OFFSET, predictors.lattices[0])
        parts[CLEAN] = _mean(level, parts[CLEAN], error)
        sample = sample + parts["grid"] * (disturbed / parts["grid"]).round()
        sample = sample.clamp(-FULL, FULL - 1)
    sample, disturbed = sample + OFFSET, sample - pure
    newest = {SAMPLE: sample, SLOPE: sample - parts[SAMPLE][:, -1:]}
    for n, each in enumerate(predictors.lattices):
        newest[residual(n)] = _hear_lattice(parts, n, sample, each)
    for name, level in predictors.levels.items():
        parts[name] = _mean(level, parts[name], newest[level.of] - disturbed)
    for line in predictors.lines:
        if line == SMOOTH:
            newest[line] = parts[residual(0)][:, -predictors.pitch.step :].mean(1, keepdim=True)
        parts[line] = torch.cat([parts[line][:, 1:], newest[line]], 1)
    values = parts[predictors.pitch_line]
    _keep_pitch(parts, hear_pitch(_pitch(parts), values, predictors.pitch))
    return parts


def _hear_lattice(parts: Parts, n: int | str, sample: Tensor, each: Lattice) -> Tensor:
    """The error of the n-th lattice, which then hears the sample."""
    error = sample - parts[f"said {n}"]
    state = hear_lattice(_lattice(parts, n), sample, each.forgetting)
    _keep_lattice(parts, n, state)
    parts[f"said {n}"] = prediction(state).clamp(-FULL, FULL - 1)
    return error


def _mean(level: Level, former: Tensor, now: Tensor) -> Tensor:
    return level.forgetting * former + (1 - level.forgetting) * now.abs()


def tell(predictors: Predictors, known: TrainingStatistics, parts: Parts) -> Tensor:
    """The features (B, I)."""
    told = (_told(predictors, known, parts, feature) for feature in predictors.features)
    return torch.cat(list(told), 1)


def _told(
    predictors: Predictors, known: TrainingStatistics, parts: Parts, feature: Feature
) -> Tensor:
    anchor, slow = parts["said 0"], _level(predictors, parts, "slow")
    match feature:
        case Recent(line, size, level, factor):
            values = parts[line][:, -size:].flip(1) - (anchor if line == SAMPLE else 0)
            told = factor * _over(values, _level(predictors, parts, level))
        case Rival(n):
            told = _over(parts[f"said {n}"] - anchor, slow)
        case Reflections(size):
            told = parts["k 0"][:, :size]
        case Loudness(level, offset):
            told = _level(predictors, parts, level).log() / 2 - offset
        case Period():
            heard, values = _pitch(parts), parts[predictors.pitch_line]
            echo = one_period_ago(heard, values, predictors.pitch, TAPS)
            period = (heard.lag / predictors.pitch.longest).log() / math.log(2)
            told = torch.cat([_over(echo, slow) / 2, heard.peak, period], 1)
        case Grid():
            state = GridState(parts["grid"], parts["seen"])
            told = torch.cat([certainty(state, known.share), state.grid / FULL], 1)
        case Anchor():
            told = torch.cat(_steered(predictors, known, parts), 1) / FULL
    return told


def _steered(
    predictors: Predictors, known: TrainingStatistics, parts: Parts
) -> tuple[Tensor, Tensor]:
    """The anchor and its level, moved as `steering` says."""
    loud, sharp, slow = (_level(predictors, parts, name) for name in ("loud", "sharp", "slow"))
    heard, values, strength = _pitch(parts), parts[predictors.pitch_line], known.strength
    echo = one_period_ago(heard, values, predictors.pitch, 0)
    low, high = at_loudness(known.ranges, loud).chunk(2, 1)
    k, b = (parts[name][:, : low.shape[1]] for name in ("k 0", "b 0"))
    pull = spectral_pull(k, b, low, high)
    voice = at_period(known.voices.unsqueeze(1), heard.lag / predictors.pitch.longest)
    pull = pull + voiced_pull(heard.peak, voice, echo)
    anchor = blunted(parts["said 0"], sharp, known.sharpest, strength)
    anchor = (anchor + strength * pull).clamp(-FULL, FULL - 1)
    push = at_loudness(known.pushes.unsqueeze(1), loud)
    return anchor, slow * (strength * push).exp()


def _over(values: Tensor, level: Tensor) -> Tensor:
    return (values / level).clamp(-CLIP, CLIP)


def _level(predictors: Predictors, parts: Parts, name: str) -> Tensor:
    return parts[name] + predictors.levels[name].floor


def _lattice(parts: Parts, n: int | str) -> LatticeState:
    return LatticeState(*(parts[f"{name} {n}"] for name in LatticeState._fields))


def _keep_lattice(parts: Parts, n: int | str, state: LatticeState) -> None:
    parts.update({f"{name} {n}": part for name, part in state._asdict().items()})


def _pitch(parts: Parts) -> PitchState:
    return PitchState(*(parts[name] for name in PitchState._fields))


def _keep_pitch(parts: Parts, state: PitchState) -> None:
    parts.update(state._asdict())


def prediction(state: LatticeState) -> Tensor:
    """What the next sample is expected to be (B, 1)."""
    return (state.k * state.b).sum(1, keepdim=True)


def hear_lattice(state: LatticeState, sample: Tensor, forgetting: float) -> LatticeState:
    """The state after `sample` (B, 1)."""
    k, b, num, den = state
    told = (k * b).cumsum(1)
    f = sample - torch.nn.functional.pad(told[:, :-1], (1, 0))  # the f_m of all stages at once
    num = forgetting * num + 2 * f * b
    den = forgetting * den + f * f + b * b + 2 * Lattice.QUANTISATION
    b = torch.cat([sample, (b - k * f)[:, :-1]], 1)
    return LatticeState(Lattice.INSIDE * num / den, b, num, den)


def hear_pitch(state: PitchState, line: Tensor, pitch: Pitch) -> PitchState:
    """The state after the newest residual of `line` (B, N), the latest last."""
    newest = line[:, -1:]
    energy = pitch.forgetting * state.energy + newest * newest + 1.0
    back = torch.arange(pitch.shortest, pitch.longest + 1, device=line.device) * pitch.step
    acf = pitch.forgetting * state.acf + newest * line[:, line.shape[1] - 1 - back]
    most, best = acf.max(1, keepdim=True)
    lag = torch.where(most > Pitch.LEAST * energy, best + pitch.shortest, pitch.shortest)
    return PitchState(energy, lag.to(energy), (most / energy).clamp(min=Pitch.LEAST), acf)


def one_period_ago(state: PitchState, line: Tensor, pitch: Pitch, taps: int) -> Tensor:
    """The residuals (B, 2 taps + 1) one period before the next, and `taps` steps around it."""
    steps = state.lag.long() - torch.arange(-taps, taps + 1, device=line.device)
    return line.gather(1, line.shape[1] - steps * pitch.step)


def hear_grid(state: GridState, sample: Tensor) -> GridState:
    """The state after `sample` (B, 1), in levels."""
    whole = sample.round()
    bits = whole.long()
    lowest = torch.where(whole == sample, (bits & -bits).to(sample), 1.0)
    found = torch.where(state.seen > 0, torch.minimum(state.grid, lowest), lowest)
    silent = sample == 0
    grid = torch.where(silent, state.grid, found)
    seen = torch.where(silent, state.seen, (state.seen + 1).clamp(max=Grid.MOST))
    return GridState(grid, seen)


def certainty(state: GridState, share: float) -> Tensor:
    """The probability (B, 1) that the next sample is on the grid because the recording is.

    A sample is on a grid G by chance once in G times. 0 where the grid is 1.
    """
    odds = share * state.grid**state.seen
    return torch.where(state.grid > 1, odds / (odds + (1 - share)), 0.0)


def at_loudness(table: Tensor, loud: Tensor) -> Tensor:
    """The row (B, N) at the level `loud` (B, 1), from those at the nodes (NODES, N), in between."""
    return _between(table, loud.log() / math.log(2))


def at_period(table: Tensor, share: Tensor) -> Tensor:
    """The same for the period, as a share (B, 1) of the longest."""
    return _between(table, share.log() * (AN_OCTAVE / math.log(2)) + (NODES - 1))


def _between(table: Tensor, place: Tensor) -> Tensor:
    place = place.clamp(0, NODES - 1)
    node = place.long().clamp(max=NODES - 2)
    below, above = table[node[:, 0]], table[node[:, 0] + 1]
    return below + (above - below) * (place - node)


def blunted(anchor: Tensor, sharp: Tensor, sharpest: float, strength: float) -> Tensor:
    """The anchor (B, 1), smaller where the sound is sharper than nearly all of train."""
    return anchor * (sharpest / sharp).clamp(max=1) ** strength


def spectral_pull(k: Tensor, b: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """What moves the anchor (B, 1) towards the usual spectrum; each argument is (B, M)."""
    return (OUTSIDE * (k.clamp(low, high) - k) * b).sum(1, keepdim=True)


def voiced_pull(peak: Tensor, voice: Tensor, echo: Tensor) -> Tensor:
    """What moves the anchor (B, 1) towards a voice."""
    return peak * (1 - peak) * voice * echo
