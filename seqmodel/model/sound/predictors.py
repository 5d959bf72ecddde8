"""The sound encoder's predictors, levels and features at a sample rate; `kernel.py` computes them.

Everything that depends on the rate is decided here. Times are fixed in milliseconds. The orders of
the lattices grow with the rate up to `MAX_STAGES`, and above 16 kHz the pitch is searched for in
steps of several samples, so that the work per sample is bounded at any rate.

Samples are counted in 16-bit levels, so full scale is 32768.
"""

import math
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor

FULL = 32768.0
OFFSET = 1e-9
"""Added to every sample, in levels, so that sums do not become denormal in long silences."""
UNDECIDED = -1.0
"""The share of noise before the first sample of a piece."""
MAX_STAGES, MAX_REPORTED = 64, 32
"""The most stages of a lattice, and the most coefficients of the first that are features."""
INSIDE, FIRST_SQUARES, QUANTISATION = 0.995, 100.0, 1 / 12
"""For lattices: a factor on reflection coefficients, which moves poles a little further inside, so
that fewer tones last; the initial sum of squares, in squared levels; and the variance of rounding,
added to the squares of both errors, so that k is finite in silence as well."""
FIRST_ENERGY, MIN_PEAK = 1e4, 1e-3
"""For the pitch: the initial energy, in squared levels; the share of the energy that the peak must
exceed, else the period is the shortest."""
MAX_SEEN = 2
"""The most nonzero samples that count as evidence of a grid, which bounds the cost of leaving it
later."""
CLIP = 8.0
"""Features in units of a level are limited to +- this."""
TAPS = 4
"""The number on either side of the pitch's lag."""
MIN_RATE = 4000
"""At lower rates, times are as at this one."""
PITCH_RATE = 16000
"""For the pitch, the residual is averaged to at most this many numbers per second."""
MIN_PERIOD, MAX_PERIOD = 2.5e-3, 20e-3
"""The range of periods searched, in seconds."""

MOMENT = 0.02
"""Seconds between the moments of a course, see `steering.py`."""

SAMPLES, ERRORS, SLOW_ERRORS, SMOOTH = "samples", "errors", "slow errors", "smooth"
"""The lines: samples, the first and the last lattice's errors, and averages of the first's."""
CLEAN = "clean"
"""Names what the first lattice and its level `slow` would be without noise; used with noise."""
NOISE_SHARE = "noise share"
"""The part of a memory that states how loud the noise is with which samples are read."""


@dataclass(frozen=True)
class Lattice:
    """An adaptive linear predictor with exponential forgetting, see `kernel.adapt`."""

    order: int
    forgetting: float


@dataclass(frozen=True)
class Level:
    """A recent mean absolute value: it starts at `start`, and is read with `floor` added."""

    forgetting: float
    start: float
    floor: float


@dataclass(frozen=True)
class Pitch:
    """Where the period is searched for, see `kernel.find_pitch`. Lags are in steps of samples."""

    shortest: int
    longest: int
    step: int
    forgetting: float

    @property
    def lags(self) -> int:
        return self.longest - self.shortest + 1


class Predictors:
    """Everything that predicts a recording's next sample, and the layout of its memory.

    Compared by identity: compiled code is looked up by it at each call.

    Attributes:
        reported_coefficients: M, the number of the first lattice's stages that are features.
        columns: where each kind of feature is among all of them, see `kernel.write_features`.
        input_size: I, the number of features.
        pitch_line: the line in which the pitch is searched for.
        lines: how many of the latest values are remembered, by line.
        line_names: the lines in order.
        line_numbers: the place of each line among them.
        sizes: the size of each part of a piece's memory, in order; the lines last.
        memory_size: K, the sum of these sizes.
        starts: where each part of a memory begins.
        lattice_starts: where each lattice's parts begin; the last is the one without noise.
        combinations: R, how many combinations of labels have a course, see `steering.py`.
        moments_per_sample: how many moments of a course pass per sample.
    """

    def __init__(
        self, lattices: tuple[Lattice, ...], levels: dict[str, Level], pitch: Pitch,
        combinations: int = 0, moments_per_sample: float = 0.0,
    ) -> None:  # fmt: skip
        self.lattices, self.levels, self.pitch = lattices, levels, pitch
        self.combinations, self.moments_per_sample = combinations, moments_per_sample
        self.reported_coefficients = min(lattices[0].order, MAX_REPORTED)
        features = {SAMPLES: 16, ERRORS: 24, "rivals": len(lattices) - 1, SLOW_ERRORS: 8}
        features |= {"reflections": self.reported_coefficients, "loudness": 3}
        features |= {"period": 2 * TAPS + 3, "course": 2 if combinations else 0}
        features |= {"grid": 2, "anchor": 2}
        self.columns = {k: slice(at, at + features[k]) for k, at in _starts(features).items()}
        self.input_size = sum(features.values())
        self.pitch_line = ERRORS if pitch.step == 1 else SMOOTH
        self.lines = {SAMPLES: 16, ERRORS: max(24, pitch.step), SLOW_ERRORS: 8}
        reach = (pitch.longest + TAPS) * pitch.step
        self.lines[self.pitch_line] = max(self.lines.get(self.pitch_line, 0), reach)
        self.line_names = tuple(self.lines)
        self.line_numbers = {name: number for number, name in enumerate(self.lines)}
        self.sizes = dict[str, int]()
        for n, lattice in (*enumerate(lattices), (CLEAN, lattices[0])):
            self.sizes |= {f"{part} {n}": lattice.order for part in ("k", "b", "num", "den")}
            self.sizes[f"predicted {n}"] = 1
        self.sizes |= dict.fromkeys((*levels, CLEAN), 1)
        self.sizes |= dict.fromkeys((NOISE_SHARE, "grid", "seen"), 1)
        self.sizes |= dict.fromkeys(("combination", "moment") if combinations else (), 1)
        self.sizes |= {"energy": 1, "lag": 1, "peak": 1, "acf": pitch.lags} | self.lines
        self.memory_size = sum(self.sizes.values())
        self.starts = _starts(self.sizes)
        self.lattice_starts = [self.starts[f"k {n}"] for n in (*range(len(lattices)), CLEAN)]

    def __deepcopy__(self, memo: dict[int, object]) -> "Predictors":
        """Return self: copies of a model, as sampling makes them, run the same compiled code."""
        return self

    def start_memory(self, grid: float, batch_size: int, device: torch.device) -> Tensor:
        """The memory (B, K) of pieces before their first sample, float64, on this `grid`."""
        memory = torch.zeros(batch_size, self.memory_size, dtype=torch.float64, device=device)
        parts = self.parts(memory)
        for n in (*range(len(self.lattices)), CLEAN):
            parts[f"den {n}"].fill_(FIRST_SQUARES)
        for name, level in (*self.levels.items(), (CLEAN, self.levels["slow"])):
            parts[name].fill_(level.start)
        firsts = {"energy": FIRST_ENERGY, "lag": self.pitch.shortest, "peak": MIN_PEAK}
        for name, first in (firsts | {"grid": grid, NOISE_SHARE: UNDECIDED}).items():
            parts[name].fill_(first)
        return memory

    def afresh(self, memory: Tensor, grid: float) -> Tensor:
        """The memory (B, K) before the first sample of another recording joined to the last."""
        memory = memory.clone()
        parts = self.parts(memory)
        parts["grid"].fill_(grid)
        for name in ("seen", "moment") if self.combinations else ("seen",):
            parts[name].zero_()
        return memory

    def parts(self, memory: Tensor) -> dict[str, Tensor]:
        """The parts (B, size) of a memory (B, K) by name, views."""
        return dict(zip(self.sizes, torch.split(memory, list(self.sizes.values()), 1), strict=True))


def _starts(sizes: dict[str, int]) -> dict[str, int]:
    """Where parts of these sizes begin, one after another."""
    return dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))


@cache
def predictors_at(rate: int, combinations: int = 0) -> Predictors:
    """The predictors for `rate` samples per second, with courses of `combinations` of labels."""
    rate = max(rate, MIN_RATE)

    def forgetting(seconds: float) -> float:
        return math.exp(-1 / (rate * seconds))

    def lattice(order: int, seconds: float) -> Lattice:
        """A lattice whose order is `order` at 8 kHz."""
        scaled = min(round(order * rate / 8000), MAX_STAGES)
        return Lattice(scaled, forgetting(seconds))

    lattices = lattice(16, 0.010), lattice(8, 0.003), lattice(32, 0.025), lattice(32, 0.0625)
    levels = {  # of the first lattice's errors, twice; of the samples, and of their differences
        "slow": Level(forgetting(0.00625), 200.0, 0.5),
        "fast": Level(forgetting(0.0012), 200.0, 0.5),
        "loud": Level(forgetting(0.0125), 300.0, 1.0),
        "sharp": Level(forgetting(0.002), 300.0, 1.0),
        "initial": Level(forgetting(0.00625), 1000.0, 0.0),  # of nothing, see `steering.py`
        "dc": Level(forgetting(0.05), 0.0, 0.0),  # of the samples, with their signs
    }
    step = -(-rate // PITCH_RATE)
    shortest, longest = (round(rate * period / step) for period in (MIN_PERIOD, MAX_PERIOD))
    pitch = Pitch(shortest, longest, step, forgetting(0.021))
    return Predictors(lattices, levels, pitch, combinations, 1 / max(1, round(MOMENT * rate)))
