"""Timings that hold on a busy machine: contenders take turns, and medians come with their spread.

Whatever slows the machine down for a while then slows all of them down, and their ratio stands.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

# A timing takes at least so many seconds: what is quicker is repeated, as training repeats a step.
# The first time after others have had their turn, its code and data are gone from the caches.
SHORTEST = 50e-3
# Rounds that count at least, after one that does not.
LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Contender:
    """Something to be timed."""

    run: Callable[[], object]
    before: Callable[[], object] | None = None
    """Runs right before, untimed."""
    threads: int | None = None
    """Torch's threads meanwhile; None: as many as ever."""
    slow: bool = False
    """Takes part in every other round only, and needs no repeating."""

    def seconds(self, repeats: int) -> float:
        """The mean time of so many runs."""
        total = 0.0
        with _threads(self.threads):
            for _ in range(repeats):
                if self.before is not None:
                    self.before()
                begin = time.perf_counter()
                self.run()
                total += time.perf_counter() - begin
        return total / repeats


@dataclass(frozen=True)
class Timing:
    """The seconds that something took, round by round."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The shortest one."""
        return min(self.seconds)

    def to_json(self) -> dict[str, float]:
        """The median in milliseconds, its spread, and of how many rounds."""
        return {
            "ms": 1e3 * self.median,
            "spread_percent": spread_percent(self.seconds),
            "rounds": len(self.seconds),
        }


class Budget:
    """So many seconds from now, but `LEAST_ROUNDS` rounds in any case."""

    def __init__(self, seconds: float) -> None:
        self._until = time.perf_counter() + seconds

    def used_up(self, rounds: int) -> bool:
        """Whether no round follows the `rounds` there were."""
        return rounds >= LEAST_ROUNDS and time.perf_counter() >= self._until


def take_turns(contenders: Mapping[str, Contender], seconds: float) -> dict[str, Timing]:
    """Time the contenders one after the other, round by round, until `seconds` are over.

    A first round, in which code is compiled and caches fill, does not count.
    """
    repeats = {}
    for name, contender in contenders.items():
        contender.seconds(1)
        repeats[name] = 1 if contender.slow else math.ceil(SHORTEST / contender.seconds(1))
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    budget, rounds = Budget(seconds), 0
    while not budget.used_up(rounds):
        for name, contender in contenders.items():
            if rounds % 2 == 0 or not contender.slow:
                taken[name].append(contender.seconds(repeats[name]))
        rounds += 1
    return {name: Timing(values) for name, values in taken.items()}


def ratio(theirs: Timing, ours: Timing) -> float:
    """How many times as long as ours theirs takes, by the medians."""
    return theirs.median / ours.median


def spread_percent(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, in percent of the median."""
    if len(values) < 2:
        return 0.0
    low, median, high = statistics.quantiles(values, method="inclusive")
    return 100 * (high - low) / 2 / median


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    former = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(former)
