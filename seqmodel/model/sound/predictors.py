"""What the sound encoder hears and tells, declared: its predictors and features at a sample rate.

Everything that depends on the rate is decided here. Times are fixed in milliseconds. The orders of
the lattices grow with the rate up to `MOST_STAGES`, and the pitch is looked for in steps of several
samples above 16 kHz, so that the work per sample is bounded at any rate.

Samples are counted in 16-bit levels, so full scale is 32768.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor

FULL = 32768.0
OFFSET = 1e-9
"""Added to every sample, in levels: in long silences, sums do not sink to denormal numbers."""
UNDECIDED = -1.0
"""The share of noise before the first sample of a piece."""
MOST_STAGES, MOST_TOLD = 64, 32
"""Of a lattice, and of the first one's coefficients that are features."""
CLIP = 8.0
"""Features in units of a level are limited to +- this."""
TAPS = 4
"""On either side of the pitch's lag."""
LEAST_RATE = 4000
"""Times at lower rates are as at this one."""
PITCH_RATE = 16000
"""The residual is averaged for the pitch so that it has at most as many numbers per second."""
SHORTEST, LONGEST = 2.5e-3, 20e-3
"""The periods looked for, in seconds."""


@dataclass(frozen=True)
class Lattice:
    """Burg's lattice with exponential forgetting: a linear predictor that adapts at every sample.

    Stage m turns the forward and backward errors f_m and b_m of order m, f_0 = b_0 = the sample,
    into

        f_m+1(t) = f_m(t) - k_m b_m(t-1),    b_m+1(t) = b_m(t-1) - k_m f_m(t),

    and its reflection coefficient k_m = 2 sum f_m b_m / sum (f_m^2 + b_m^2), over the past with
    weights that fall exponentially, minimises the sum of both errors' squares (Burg 1967, "Maximum
    entropy spectral analysis"; the lattice: Itakura, Saito 1971, "Digital filtering techniques for
    speech analysis and synthesis"). It is always inside (-1, 1), so the predictor is the stable
    filter of an all-pole model at every moment (Makhoul 1977, "Stable and efficient lattice methods
    for linear prediction"), unlike recursive least squares, which blows up when it hears its own
    samples. The memory holds k, b and the two sums, num and den.
    """

    INSIDE: ClassVar[float] = 0.995
    """Coefficients are multiplied by this: poles a little further inside, so fewer tones that
    last."""
    FIRST: ClassVar[float] = 100.0
    """The sum of squares to start from, in squared levels."""
    QUANTISATION: ClassVar[float] = 1 / 12
    """The variance of rounding, added to the squares of both errors: k is finite in silence too."""

    order: int
    forgetting: float


@dataclass(frozen=True)
class Level:
    """The mean absolute value of the recent `of`: SAMPLE, SLOPE or the name of a residual.

    It starts at `start`, and is told with `floor` added.
    """

    of: str
    forgetting: float
    start: float
    floor: float


@dataclass(frozen=True)
class Pitch:
    """Where the recent past repeats itself: the lag at which a residual is most like itself.

    Voiced speech is nearly periodic, and what linear prediction leaves of it has a pulse per
    period, so the residual one period ago predicts the next (Atal, Schroeder 1970, "Adaptive
    predictive coding of speech signals"). The autocorrelation is summed over the past with weights
    that fall exponentially. The memory holds it at each lag, the energy, plus one squared level per
    sample, the lag of the peak, and the peak over the energy. Lags are in steps of `step` samples.
    """

    FIRST: ClassVar[float] = 1e4
    """The energy to start from, in squared levels."""
    LEAST: ClassVar[float] = 1e-3
    """The share of the energy that the peak must exceed; else the period is the shortest."""

    shortest: int
    longest: int
    step: int
    forgetting: float

    @property
    def lags(self) -> int:
        """How many lags are compared."""
        return self.longest - self.shortest + 1


# Features. Each has a `size`, the number of values it tells; (level) names one of the levels.


@dataclass(frozen=True)
class Recent:
    """The last `size` values of a line, the latest first, over a level, times `factor`.

    Samples are counted from the anchor.
    """

    line: str
    size: int
    level: str
    factor: float = 1.0


@dataclass(frozen=True)
class Rival:
    """A lattice's prediction less the anchor, over the level `slow`."""

    lattice: int
    size: int = 1


@dataclass(frozen=True)
class Reflections:
    """The first lattice's first reflection coefficients."""

    size: int


@dataclass(frozen=True)
class Loudness:
    """log(level) / 2 - offset."""

    level: str
    offset: float
    size: int = 1


@dataclass(frozen=True)
class Period:
    """One period ago in the residual, `TAPS` steps around, over the level `slow`, halved; then how
    periodic the residual is, and log2 of the period over the longest one."""

    size: int = 2 * TAPS + 3


@dataclass(frozen=True)
class Grid:
    """How certain the recording's grid is, and the grid with full scale 1.

    The grid is the largest power of two that all samples so far are multiples of, the usual one
    while all are 0. Recordings of fewer than 16 bits are on a grid of several levels, such as 256
    for those of 8 bits, and are far likelier under a distribution over its points. FLAC, too, saves
    these "wasted bits". How certain it is, the probability that the next sample is on the grid
    because the recording is, follows from the share of recordings that have one in training, and
    from the chance that one without would have met it so far: a sample is on a grid G by chance
    once in G times. Where the grid is 1 it is 0.
    """

    MOST: ClassVar[int] = 2
    """Samples other than 0 that count as evidence, `seen` in the memory: leaving a grid after
    however many costs no more than that."""

    size: int = 2


@dataclass(frozen=True)
class Anchor:
    """The first lattice's prediction and the level `slow`, both with full scale 1.

    Both are steered, see `steering.py`.
    """

    size: int = 2


Feature = Recent | Rival | Reflections | Loudness | Period | Grid | Anchor

SAMPLE, SMOOTH = "sample", "smooth"
"""The lines of samples, and of averaged residuals."""
SLOPE = "slope"
"""Names the difference of a sample from the one before."""


CLEAN = "clean"
"""Names what the first lattice and its level `slow` would be without noise; kept while there is."""
NOISE_SHARE = "noise share"
"""The part of a memory that says how loud the noise is through which it hears."""


def residual(lattice: int) -> str:
    """The name of the line of a lattice's errors."""
    return f"residual {lattice}"


# Compared by identity: compiled code is looked up by it at each call.
@dataclass(frozen=True, eq=False)
class Predictors:
    """All that listen to a recording, and the features that they tell, in order."""

    lattices: tuple[Lattice, ...]
    levels: dict[str, Level]
    pitch: Pitch
    features: tuple[Feature, ...]

    def __deepcopy__(self, memo: dict[int, object]) -> "Predictors":
        """Return self: copies of a model, as sampling makes them, run the same compiled code."""
        return self

    @cached_property
    def lines(self) -> dict[str, int]:
        """How many of the latest values are remembered, by line."""
        lines = {f.line: f.size for f in self.features if isinstance(f, Recent)}
        reach = (self.pitch.longest + TAPS) * self.pitch.step
        for line, least in ((residual(0), self.pitch.step), (self.pitch_line, reach)):
            lines[line] = max(lines.get(line, 0), least)
        return lines

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many numbers each part of a piece's memory has, in order; the lines last."""
        sizes = dict[str, int]()
        for n, lattice in (*enumerate(self.lattices), (CLEAN, self.lattices[0])):
            sizes |= {f"{part} {n}": lattice.order for part in ("k", "b", "num", "den")}
            sizes[f"said {n}"] = 1
        sizes |= dict.fromkeys((*self.levels, CLEAN), 1)
        sizes |= {NOISE_SHARE: 1, "grid": 1, "seen": 1}
        return sizes | {"energy": 1, "lag": 1, "peak": 1, "acf": self.pitch.lags} | self.lines

    @cached_property
    def starts(self) -> dict[str, int]:
        """Where each part of a memory begins."""
        sizes = list(self.sizes.values())
        return dict(zip(self.sizes, accumulate(sizes[:-1], initial=0), strict=True))

    @property
    def pitch_line(self) -> str:
        """The line in which the pitch is looked for."""
        return residual(0) if self.pitch.step == 1 else SMOOTH

    @cached_property
    def input_size(self) -> int:
        """I, the number of features."""
        return sum(feature.size for feature in self.features)

    @cached_property
    def columns(self) -> dict[Feature, slice]:
        """Where each feature is told."""
        ends = list(accumulate(feature.size for feature in self.features))
        return {f: slice(end - f.size, end) for f, end in zip(self.features, ends, strict=True)}

    @property
    def reported_coefficients(self) -> int:
        """M, of how many of the first lattice's stages the coefficients are features."""
        return next(f.size for f in self.features if isinstance(f, Reflections))

    @cached_property
    def memory_size(self) -> int:
        """K, how many numbers are remembered of a piece."""
        return sum(self.sizes.values())

    def start_memory(self, usual: float, batch_size: int, device: torch.device) -> Tensor:
        """The memory (B, K) of pieces before their first sample, float64; `usual` is the grid."""
        memory = torch.zeros(batch_size, self.memory_size, dtype=torch.float64, device=device)
        parts = self.parts(memory)
        for n in (*range(len(self.lattices)), CLEAN):
            parts[f"den {n}"].fill_(Lattice.FIRST)
        for name, level in (*self.levels.items(), (CLEAN, self.levels["slow"])):
            parts[name].fill_(level.start)
        firsts = {"energy": Pitch.FIRST, "lag": self.pitch.shortest, "peak": Pitch.LEAST}
        for name, first in (firsts | {"grid": usual, NOISE_SHARE: UNDECIDED}).items():
            parts[name].fill_(first)
        return memory

    def afresh(self, memory: Tensor, usual: float) -> Tensor:
        """The memory (B, K) before the first sample of another recording that is joined on."""
        memory = memory.clone()
        parts = self.parts(memory)
        parts["grid"].fill_(usual)
        parts["seen"].zero_()
        return memory

    def parts(self, memory: Tensor) -> dict[str, Tensor]:
        """The parts (B, size) of a memory (B, K) by name, views."""
        return dict(zip(self.sizes, torch.split(memory, list(self.sizes.values()), 1), strict=True))


@cache
def predictors_at(rate: int) -> Predictors:
    """The predictors for recordings of `rate` samples per second."""
    rate = max(rate, LEAST_RATE)

    def forgetting(seconds: float) -> float:
        return math.exp(-1 / (rate * seconds))

    def lattice(order: int, seconds: float) -> Lattice:
        """Of `order` at 8 kHz."""
        scaled = min(round(order * rate / 8000), MOST_STAGES)
        return Lattice(scaled, forgetting(seconds))

    lattices = lattice(16, 0.010), lattice(8, 0.003), lattice(32, 0.025), lattice(32, 0.0625)
    levels = {
        "slow": Level(residual(0), forgetting(0.00625), 200.0, 0.5),
        "fast": Level(residual(0), forgetting(0.0012), 200.0, 0.5),
        "loud": Level(SAMPLE, forgetting(0.0125), 300.0, 1.0),
        "sharp": Level(SLOPE, forgetting(0.002), 300.0, 1.0),
    }
    step = -(-rate // PITCH_RATE)
    shortest, longest = (round(rate * period / step) for period in (SHORTEST, LONGEST))
    pitch = Pitch(shortest, longest, step, forgetting(0.021))
    features: tuple[Feature, ...] = (
        Recent(SAMPLE, 16, "loud"),
        Recent(residual(0), 24, "slow", 0.5),
        *(Rival(n) for n in range(1, len(lattices))),
        Recent(residual(3), 8, "slow", 0.5),
        Reflections(min(lattices[0].order, MOST_TOLD)),
        Loudness("slow", 2.0),
        Loudness("fast", 2.0),
        Loudness("loud", 3.0),
        Period(),
        Grid(),
        Anchor(),
    )
    return Predictors(lattices, levels, pitch, features)
