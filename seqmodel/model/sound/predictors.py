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

FULL = 32768.0
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
    """See `lattice.py`."""

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
    """See `pitch.py`; lags are in steps of `step` samples."""

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
    """How certain the recording's grid is, see `grid.py`, and the grid with full scale 1."""

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
    def told_stages(self) -> int:
        """M, of how many of the first lattice's stages the coefficients are features."""
        return next(f.size for f in self.features if isinstance(f, Reflections))

    @cached_property
    def memory_size(self) -> int:
        """K, how many numbers are remembered of a piece."""
        return sum(self.sizes.values())


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
