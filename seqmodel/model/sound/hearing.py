"""How the predictors hear a sample, and what they tell of the next: the plain specification.

`kernel.py` computes the same in compiled code.
"""

import math

import torch
from torch import Tensor

from seqmodel.model.sound import grid, lattice, pitch, steering
from seqmodel.model.sound.grid import GridState
from seqmodel.model.sound.known import Known
from seqmodel.model.sound.lattice import LatticeState
from seqmodel.model.sound.pitch import PitchState
from seqmodel.model.sound.predictors import (
    CLEAN,
    CLIP,
    FULL,
    NOISE_SHARE,
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
    Predictors,
    Recent,
    Reflections,
    Rival,
    residual,
)

FAINT = 1e-9
"""Added to every sample, in levels: in long silences, sums do not sink to denormal numbers."""

UNDECIDED = -1.0
"""The share of noise before the first sample of a piece."""

Parts = dict[str, Tensor]
"""The parts (B, size) of a memory by name, see `Predictors.sizes`."""


def start_memory(
    predictors: Predictors, known: Known, batch_size: int, device: torch.device
) -> Tensor:
    """The memory (B, K) of pieces before their first sample, float64."""
    parts = {
        name: torch.zeros(batch_size, size, dtype=torch.float64, device=device)
        for name, size in predictors.sizes.items()
    }
    for n in (*range(len(predictors.lattices)), CLEAN):
        _keep_lattice(parts, n, lattice.start_lattice(parts[f"k {n}"]))
    parts[CLEAN].fill_(predictors.levels["slow"].start)
    _keep_pitch(parts, pitch.start_pitch(parts["lag"], predictors.pitch))
    for name, level in predictors.levels.items():
        parts[name].fill_(level.start)
    parts["grid"].fill_(known.usual)
    parts[NOISE_SHARE].fill_(UNDECIDED)
    return torch.cat(list(parts.values()), 1)


def afresh(predictors: Predictors, known: Known, memory: Tensor) -> Tensor:
    """The memory (B, K) before the first sample of another recording that is joined on."""
    parts = {name: part.clone() for name, part in _parts(predictors, memory).items()}
    parts["grid"].fill_(known.usual)
    parts["seen"].zero_()
    return torch.cat(list(parts.values()), 1)


def heard_plainly(
    predictors: Predictors,
    known: Known,
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
    parts |= grid.hear(GridState(parts["grid"], parts["seen"]), sample)._asdict()
    if noise is not None:
        level = predictors.levels["slow"]
        disturbed = (parts[CLEAN] + level.floor) * noise.double().unsqueeze(1)
        error = _hear_lattice(parts, CLEAN, sample + FAINT, predictors.lattices[0])
        parts[CLEAN] = _mean(level, parts[CLEAN], error)
        sample = sample + parts["grid"] * (disturbed / parts["grid"]).round()
        sample = sample.clamp(-FULL, FULL - 1)
    sample, disturbed = sample + FAINT, sample - pure
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
    _keep_pitch(parts, pitch.hear(_pitch(parts), values, predictors.pitch))
    return parts


def _hear_lattice(parts: Parts, n: int | str, sample: Tensor, each: Lattice) -> Tensor:
    """The error of the n-th lattice, which then hears the sample."""
    error = sample - parts[f"said {n}"]
    state = lattice.hear(_lattice(parts, n), sample, each.forgetting)
    _keep_lattice(parts, n, state)
    parts[f"said {n}"] = lattice.prediction(state).clamp(-FULL, FULL - 1)
    return error


def _mean(level: Level, former: Tensor, now: Tensor) -> Tensor:
    return level.forgetting * former + (1 - level.forgetting) * now.abs()


def tell(predictors: Predictors, known: Known, parts: Parts) -> Tensor:
    """The features (B, I)."""
    told = (_told(predictors, known, parts, feature) for feature in predictors.features)
    return torch.cat(list(told), 1)


def _told(predictors: Predictors, known: Known, parts: Parts, feature: Feature) -> Tensor:
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
            echo = pitch.one_period_ago(heard, values, predictors.pitch, TAPS)
            period = (heard.lag / predictors.pitch.longest).log() / math.log(2)
            told = torch.cat([_over(echo, slow) / 2, heard.peak, period], 1)
        case Grid():
            state = GridState(parts["grid"], parts["seen"])
            told = torch.cat([grid.certainty(state, known.share), state.grid / FULL], 1)
        case Anchor():
            told = torch.cat(_steered(predictors, known, parts), 1) / FULL
    return told


def _steered(predictors: Predictors, known: Known, parts: Parts) -> tuple[Tensor, Tensor]:
    """The anchor and its level, moved as `steering` says."""
    loud, sharp, slow = (_level(predictors, parts, name) for name in ("loud", "sharp", "slow"))
    heard, values, strength = _pitch(parts), parts[predictors.pitch_line], known.strength
    echo = pitch.one_period_ago(heard, values, predictors.pitch, 0)
    low, high = steering.at_loudness(known.ranges, loud).chunk(2, 1)
    k, b = (parts[name][:, : low.shape[1]] for name in ("k 0", "b 0"))
    pull = steering.spectral_pull(k, b, low, high)
    voice = steering.at_period(known.voices.unsqueeze(1), heard.lag / predictors.pitch.longest)
    pull = pull + steering.voiced_pull(heard.peak, voice, echo)
    anchor = steering.blunted(parts["said 0"], sharp, known.sharpest, strength)
    anchor = (anchor + strength * pull).clamp(-FULL, FULL - 1)
    push = steering.at_loudness(known.pushes.unsqueeze(1), loud)
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
