"""Axes: the position of a value along one, and its ticks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HEADROOM = 0.05
"""Share of the data's height left free above and below it."""
STEEP, KEPT = 3.0, 2.0
"""If the first epochs make a chart more than STEEP times as high as the others do, it is cut off at
KEPT times that height: there would be no room to tell the others apart."""
FIRST = 5
"""The first epochs of a curve are the first 1/FIRST of them."""
LOG_ROOM = 1.5
"""The factor by which a log scale extends beyond its values."""


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """The position of `value`: 0 at the low end, 1 at the high end; not clipped."""
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, most: int = 6) -> Scale:
    """A linear axis from exactly `low` to `high`, or around them if they are equal.

    It has at most `most` ticks.
    """
    if not low < high:
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    step = _step((high - low) / (most - 1))
    places = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = (round(k * step, places) for k in range(first, last + 1))
    return Scale(low, high, tuple((value, f"{value:,.{places}f}") for value in values))


def padded(low: float, high: float) -> Scale:
    """A vertical axis with some room below `low` and above `high`."""
    room = HEADROOM * (high - low)
    return linear(low - room, high + room, most=8)


def settled(curves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The lowest value of curves, and the highest to show: first epochs may lie above it."""
    low, high = min(map(min, curves)), max(map(max, curves))
    rest = max(max(line[len(line) // FIRST :]) for line in curves)
    if rest == low or high - low <= STEEP * (rest - low):
        return low, high
    return low, low + KEPT * (rest - low)


def _step(least: float) -> float:
    """The smallest of 1, 2 and 5 times the powers of ten that is not below `least`."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= least * (1 - 1e-9))


def logarithmic(values: Iterable[float]) -> Scale:
    """An axis of logarithms to base ten around positive values, with at least two ticks.

    Its ticks are the powers of ten; if fewer than two are near the values, it runs from the tick
    below the values to the one above, and has ticks at twice and five times each power too.
    """
    found = [*values]
    low, high = min(found) / LOG_ROOM, max(found) * LOG_ROOM
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = tuple(tick for tick in _steps(powers, (1,)) if low <= tick[0] <= high)
    if len(ticks) < 2:
        steps = _steps(powers, (1, 2, 5))
        first = max(k for k, (value, _) in enumerate(steps) if value < min(found))
        last = min(k for k, (value, _) in enumerate(steps) if value > max(found))
        ticks = tuple(steps[first : last + 1])
        low, high = ticks[0][0], ticks[-1][0]
    logs = tuple((math.log10(value), text) for value, text in ticks)
    return Scale(math.log10(low), math.log10(high), logs)


def _steps(powers: Iterable[int], factors: Sequence[int]) -> list[tuple[float, str]]:
    return [(k * 10.0**power, _power(k, power)) for power in powers for k in factors]


def _power(factor: int, power: int) -> str:
    ten = f"10{str(power).translate(SUPERSCRIPTS)}"
    return ten if factor == 1 else f"{factor}·{ten}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit for a time axis of this length: its seconds and its name."""
    if seconds < 120:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 7200 else (3600.0, "hours")
