"""Axes: the position of a value along one, and its ticks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HEADROOM = 0.05
"""Share of the data's height left free above and below it."""
STEEP, CUT = 3.0, 2.0
"""If the first epochs make a chart more than STEEP times as high as the others do, it is cut off at
CUT times that height: there would be no room to tell the others apart."""
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

    Its ticks, at most `most`, are 1, 2 or 5 times a power of ten apart.
    """
    if not low < high:
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    least = (high - low) / (most - 1) * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= least)
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
    return low, low + CUT * (rest - low)


def logarithmic(values: Sequence[float]) -> Scale:
    """An axis of logarithms to base ten around positive values, with at least two ticks.

    Its ticks are the powers of ten; if fewer than two are near the values, it runs from the tick
    below the values to the one above, and has ticks at twice and five times each power too.
    """
    low, high = min(values) / LOG_ROOM, max(values) * LOG_ROOM
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [tick for tick in _steps(powers, (1,)) if low <= tick[0] <= high]
    if len(ticks) < 2:
        steps = _steps(powers, (1, 2, 5))
        first = max(k for k, (value, _) in enumerate(steps) if value < min(values))
        last = min(k for k, (value, _) in enumerate(steps) if value > max(values))
        ticks = steps[first : last + 1]
        low, high = ticks[0][0], ticks[-1][0]
    logs = tuple((math.log10(value), text) for value, text in ticks)
    return Scale(math.log10(low), math.log10(high), logs)


def _steps(powers: Iterable[int], factors: Sequence[int]) -> list[tuple[float, str]]:
    return [
        (k * 10.0**power, (f"{k}·" if k > 1 else "") + f"10{str(power).translate(SUPERSCRIPTS)}")
        for power in powers
        for k in factors
    ]
