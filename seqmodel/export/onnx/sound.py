"""The sound encoder: lattices, levels, the grid and the pitch, in float64, sample by sample.

The same as `model.sound`, for one piece and without noise. All lattices are computed at once, as
rows of as many stages as the longest has: a stage depends on lower ones alone. What they remember
is one state, a vector of parts; the features follow from it for all samples at once.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from seqmodel.export.onnx.encoders import HEARD, Encoded
from seqmodel.export.onnx.graph import DOUBLE, FLOAT, INT64, Graph, Symbol
from seqmodel.model.sound import predictors as features
from seqmodel.model.sound import steering
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.model.sound.steering import TrainingStatistics

Parts = Mapping[str, Symbol]


def sound(g: Graph, encoder: SoundEncoder, frames: Symbol, frame_size: int) -> Encoded:
    """What adaptive predictors say of the next sample; `frames` are samples (rows, 1)."""
    ear = _Ear(g, encoder.predictors, encoder.steered())
    start = np.concatenate(list(ear.start().values()))
    heard, memory = g.state(HEARD, [], INT64), g.state("sound", [len(start)], DOUBLE)

    def body(old: list[Symbol], rows: list[Symbol]) -> tuple[list[Symbol], list[Symbol]]:
        parts = ear.hear(ear.parts(old[0], 0), rows[0])
        after = g.concat([parts[name] for name in ear.sizes], 0)
        return [after], [after]

    first = g("Where", g("Equal", heard, 0), start, memory)
    (after,), (memories,) = g.scan(body, [first], [frames])
    g.keep("sound", after, [len(start)], DOUBLE)
    end = heard + g.squeeze(g.count(frames), 0)
    g.keep(HEARD, end, [], INT64)
    with g.within("features"):
        parts = ear.parts(memories, 1)
        told = [ear.told(parts, feature) for feature in encoder.predictors.features]
        x = g.unsqueeze(g.cast(g.concat(told, 1), FLOAT), 1)
    last = g("Equal", g("Range", heard + 1, end + 1, 1) % encoder.steps, 0)
    return Encoded(x, x, frames, last)


class _Ear:
    """Hears samples, and tells features of them."""

    def __init__(
        self, g: Graph, predictors: features.Predictors, known: TrainingStatistics
    ) -> None:
        self._g, self._predictors, self._known = g, predictors, known
        self._lattices, self._levels = predictors.lattices, predictors.levels
        self._order = max(each.order for each in self._lattices)
        self.sizes = {name: value.size for name, value in self.start().items()}

    def start(self) -> dict[str, NDArray[np.float64]]:
        """The parts of the memory before the first sample."""
        L, M, p = len(self._lattices), self._order, self._predictors
        return {
            **{name: np.zeros(L * M) for name in ("k", "b", "num")},
            "den": np.full(L * M, features.Lattice.FIRST),
            "said": np.zeros(L),
            "levels": np.array([level.start for level in self._levels.values()]),
            "grid": np.array([self._known.usual]),
            "seen": np.zeros(1),
            "energy": np.array([features.Pitch.FIRST]),
            "lag": np.array([float(p.pitch.shortest)]),
            "peak": np.array([features.Pitch.LEAST]),
            "acf": np.zeros(p.pitch.lags),
            **{line: np.zeros(size) for line, size in p.lines.items()},
        }

    def parts(self, memory: Symbol, axis: int) -> Parts:
        """The parts of a memory (K,), or of memories (rows, K)."""
        values = self._g.split(memory, list(self.sizes.values()), axis)
        return dict(zip(self.sizes, values, strict=True))

    # ---- after a sample ----

    def hear(self, parts: Parts, raw: Symbol) -> Parts:
        """The parts after a sample (1,)."""
        g, p = self._g, self._predictors
        pure = g.cast(raw, DOUBLE) * features.FULL
        sample = pure + features.OFFSET
        errors = sample - parts["said"]
        newest = {features.residual(n): errors[n : n + 1] for n in range(len(self._lattices))}
        newest |= {features.SAMPLE: sample, features.SLOPE: sample - parts[features.SAMPLE][-1:]}
        lines = dict[str, Symbol]()
        for line in p.lines:
            if line == features.SMOOTH:
                latest = lines[features.residual(0)][-p.pitch.step :]
                newest[line] = g("ReduceMean", latest, axes=[0], keepdims=1)
            lines[line] = g.concat([parts[line][1:], newest[line]], 0)
        sizes = g("Abs", g.concat([newest[level.of] for level in self._levels.values()], 0))
        forgetting = np.array([level.forgetting for level in self._levels.values()])
        return {
            **self._hear_lattices(parts, sample),
            "levels": parts["levels"] * forgetting + sizes * (1 - forgetting),
            **self._hear_grid(parts, pure),
            **self._hear_pitch(parts, lines[p.pitch_line]),
            **lines,
        }

    def _hear_lattices(self, parts: Parts, sample: Symbol) -> Parts:
        g, L, M = self._g, len(self._lattices), self._order
        k, b, num, den = (g.reshape(parts[name], L, M) for name in ("k", "b", "num", "den"))
        forgetting = np.array([[each.forgetting] for each in self._lattices])
        f = sample - g("CumSum", k * b, 1, exclusive=1)
        num = num * forgetting + f * b * 2.0
        den = den * forgetting + (f * f + b * b + 2 * features.Lattice.QUANTISATION)
        b = g.concat([g("Expand", sample, np.array([L, 1])), (b - k * f)[:, : M - 1]], 1)
        k = num / den * features.Lattice.INSIDE
        stages = np.arange(M) < np.array([[each.order] for each in self._lattices])
        after = {"k": k, "b": b, "num": num, "den": den}
        return {
            **{name: g.reshape(value, -1) for name, value in after.items()},
            "said": self._within_full_scale(g.sum(k * b * stages.astype(float), 1, keep=False)),
        }

    def _hear_grid(self, parts: Parts, pure: Symbol) -> Parts:
        g, former, powers = self._g, parts["grid"], 2.0 ** np.arange(16)
        divides = g("Equal", g("Floor", pure / powers) * powers, pure)
        lowest = g("ReduceMax", g("Where", divides, powers, 1.0), axes=[0], keepdims=1)
        first, silent = g("Equal", parts["seen"], 0.0), g("Equal", pure, 0.0)
        found = g("Where", first, lowest, g("Min", former, lowest))
        seen = g("Min", parts["seen"] + 1.0, float(features.Grid.MOST))
        return {
            "grid": g("Where", silent, former, found),
            "seen": g("Where", silent, parts["seen"], seen),
        }

    def _hear_pitch(self, parts: Parts, line: Symbol) -> Parts:
        g, how = self._g, self._predictors.pitch
        newest, size = line[-1:], self.sizes[self._predictors.pitch_line]
        energy = parts["energy"] * how.forgetting + newest * newest + 1.0
        back = np.arange(how.shortest, how.longest + 1) * how.step
        acf = parts["acf"] * how.forgetting + newest * g("Gather", line, size - 1 - back)
        most = g("ReduceMax", acf, axes=[0], keepdims=1)
        best = g.cast(g("ArgMax", acf, axis=0), DOUBLE)
        periodic = g("Greater", most, energy * features.Pitch.LEAST)
        return {
            "energy": energy,
            "lag": g("Where", periodic, best, 0.0) + float(how.shortest),
            "peak": g("Max", most / energy, features.Pitch.LEAST),
            "acf": acf,
        }

    # ---- features of all samples ----

    def told(self, parts: Parts, feature: features.Feature) -> Symbol:
        """A feature (rows, size)."""
        g, anchor, slow = self._g, self._said(parts, 0), self._level(parts, "slow")
        match feature:
            case features.Recent(line, size, level, factor):
                latest = np.arange(self.sizes[line] - 1, self.sizes[line] - 1 - size, -1)
                values = g("Gather", parts[line], latest, axis=1)
                values = values - anchor if line == features.SAMPLE else values
                told = self._over(values, self._level(parts, level)) * factor
            case features.Rival(n):
                told = self._over(self._said(parts, n) - anchor, slow)
            case features.Reflections(size):
                told = parts["k"][:, :size]
            case features.Loudness(level, offset):
                told = g("Log", self._level(parts, level)) / 2.0 - offset
            case features.Period():
                echo = self._over(self._one_period_ago(parts, features.TAPS), slow) / 2.0
                period = g("Log", self._period(parts)) / math.log(2)
                told = g.concat([echo, parts["peak"], period], 1)
            case features.Grid():
                odds = g("Pow", parts["grid"], parts["seen"]) * self._known.share
                certainty = odds / (odds + (1 - self._known.share))
                certainty = g("Where", g("Greater", parts["grid"], 1.0), certainty, 0.0)
                told = g.concat([certainty, parts["grid"] / features.FULL], 1)
            case features.Anchor():
                moved = self._steered(parts) if self._known.strength else [anchor, slow]
                told = g.concat(moved, 1) / features.FULL
        return told

    def _steered(self, parts: Parts) -> list[Symbol]:
        """The anchor and its level, moved as `model.sound.steering` says."""
        g, known, strength = self._g, self._known, self._known.strength
        M = known.ranges.shape[1] // 2
        loud, sharp, slow = (self._level(parts, name) for name in ("loud", "sharp", "slow"))
        place = g("Log", loud) / math.log(2)
        low, high = g.split(self._between(known.ranges.numpy(), place), [M, M], 1)
        k, b, peak = parts["k"][:, :M], parts["b"][:, :M], parts["peak"]
        outside = g("Min", g("Max", k, low), high) - k
        pull = g.sum(outside * b, 1) * steering.OUTSIDE
        octaves = g("Log", self._period(parts)) * (steering.AN_OCTAVE / math.log(2))
        voice = self._between(known.voices.numpy()[:, np.newaxis], octaves + (steering.NODES - 1.0))
        pull = pull + peak * (1.0 - peak) * voice * self._one_period_ago(parts, 0)
        softer = g("Pow", g("Min", known.sharpest / sharp, 1.0), strength)
        anchor = self._within_full_scale(self._said(parts, 0) * softer + pull * strength)
        push = self._between(known.pushes.numpy()[:, np.newaxis], place)
        return [anchor, slow * g("Exp", push * strength)]

    def _said(self, parts: Parts, n: int) -> Symbol:
        return parts["said"][:, n : n + 1]

    def _level(self, parts: Parts, name: str) -> Symbol:
        n = list(self._levels).index(name)
        return parts["levels"][:, n : n + 1] + self._levels[name].floor

    def _period(self, parts: Parts) -> Symbol:
        return parts["lag"] / float(self._predictors.pitch.longest)

    def _one_period_ago(self, parts: Parts, taps: int) -> Symbol:
        g, line = self._g, self._predictors.pitch_line
        steps = g.cast(parts["lag"], INT64) - np.arange(-taps, taps + 1)
        places = self.sizes[line] - steps * self._predictors.pitch.step
        return g("GatherElements", parts[line], places, axis=1)

    def _between(self, table: NDArray[np.float64], place: Symbol) -> Symbol:
        """The rows (rows, N) of a table (NODES, N) at places (rows, 1), in between."""
        g = self._g
        place = g("Clip", place, 0.0, steering.NODES - 1.0)
        node = g("Min", g("Floor", place), steering.NODES - 2.0)
        number, stored = g.squeeze(g.cast(node, INT64), 1), g.constant(table, "table")
        below, above = (g("Gather", stored, n) for n in (number, number + 1))
        return below + (above - below) * (place - node)

    def _over(self, values: Symbol, level: Symbol) -> Symbol:
        return self._g("Clip", values / level, -features.CLIP, features.CLIP)

    def _within_full_scale(self, values: Symbol) -> Symbol:
        return self._g("Clip", values, -features.FULL, features.FULL - 1)
