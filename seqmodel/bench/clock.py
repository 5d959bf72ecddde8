"""Timings that stay comparable on a busy machine: contenders take turns, and we take medians.

Whatever slows the machine down for a while then slows all contenders down, and their ratio holds.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

# The minimum length of a timing in seconds. Anything quicker is repeated.
SHORTEST = 50e-3
# The minimum number of rounds, besides a warm-up round.
LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Contender:
    """Something to be timed."""

    run: Callable[[], object]
    before: Callable[[], object] | None = None
    """Runs right before each run, untimed."""
    threads: int | None = None
    """The number of torch's threads during the run; None leaves it alone."""
    slow: bool = False
    """Takes part only in every other round, and runs only once in it."""

    def seconds(self, repeats: int) -> float:
        """The mean time of `repeats` runs.

        Unless the contender is slow, an untimed run comes first, since training steps also follow
        each other: the first run after the other contenders' turns finds neither its code nor its
        data in the caches, nor its memory where it left it.
        """
        with _threads(self.threads):
            if not self.slow:
                self._run()
            return sum(self._run() for _ in range(repeats)) / repeats

    def _run(self) -> float:
        """The seconds of one run."""
        if self.before is not None:
            self.before()
        begin = time.perf_counter()
        self.run()
        return time.perf_counter() - begin


@dataclass(frozen=True)
class Timing:
    """The seconds that a contender took, round by round."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The median time."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The shortest time."""
        return min(self.seconds)

    def to_json(self) -> dict[str, float]:
        """The median in milliseconds, its spread, and the number of rounds."""
        return {
            "ms": 1e3 * self.median,
            "spread_percent": spread_percent(self.seconds),
            "rounds": len(self.seconds),
        }


class Budget:
    """A number of seconds from now, but at least `LEAST_ROUNDS` rounds."""

    def __init__(self, seconds: float) -> None:
        self._until = time.perf_counter() + seconds

    def used_up(self, rounds: int) -> bool:
        """Whether to stop after `rounds` rounds."""
        return rounds >= LEAST_ROUNDS and time.perf_counter() >= self._until


def take_turns(contenders: Mapping[str, Contender], seconds: float) -> dict[str, Timing]:
    """Time the contenders one after the other, round by round, for about `seconds`.

    The first round, in which code is compiled and caches fill, does not count.
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
    """Their median time as a multiple of ours."""
    return theirs.median / ours.median


def finished(run: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """`run`, followed on a GPU by a wait until its work is done."""
    if device.type != "cuda":
        return run

    def run_and_wait() -> None:
        run()
        torch.cuda.synchronize(device)

    return run_and_wait


def spread_percent(values: Sequence[float]) -> float:
    """Half the interquartile range, in percent of the median."""
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
