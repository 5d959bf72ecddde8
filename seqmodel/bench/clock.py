"""Timings that stay comparable on a busy machine: contenders take turns, and we take medians.

Whatever slows the machine down for a while then slows both down, and their ratio holds.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

# The minimum length of a timing in seconds. Anything quicker is repeated.
SHORTEST = 50e-3
# The minimum number of rounds, besides a warm-up round.
LEAST_ROUNDS = 5

Run = Callable[[], object]


def compare(ours: Run, theirs: Run, seconds: float) -> dict[str, Any]:
    """Time ours and torch.nn's in turn, round by round, for about `seconds`.

    Returns the median milliseconds of each with their spread, the number of rounds, and torch.nn's
    time as a multiple of ours. The first runs, in which code is compiled and caches fill, do not
    count.
    """
    runs = {"ours": ours, "torch_nn": theirs}
    repeats = {}
    for name, run in runs.items():
        _mean(run, 1)
        repeats[name] = math.ceil(SHORTEST / _mean(run, 1))
    taken: dict[str, list[float]] = {name: [] for name in runs}
    until = time.perf_counter() + seconds
    while len(taken["ours"]) < LEAST_ROUNDS or time.perf_counter() < until:
        for name, run in runs.items():
            taken[name].append(_mean(run, repeats[name]))
    timing = {
        name: {"ms": 1e3 * statistics.median(values), "spread_percent": spread_percent(values)}
        for name, values in taken.items()
    }
    ratio = timing["torch_nn"]["ms"] / timing["ours"]["ms"]
    return {**timing, "rounds": len(taken["ours"]), "over_torch_nn": ratio}


def _mean(run: Run, repeats: int) -> float:
    """The mean seconds of `repeats` runs, after an untimed one.

    Training steps, too, follow each other: the first run after the other's turn finds neither its
    code nor its data in the caches, nor its memory where it left it.
    """
    run()
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def spread_percent(values: Sequence[float]) -> float:
    """Half the interquartile range, in percent of the median."""
    low, median, high = statistics.quantiles(values, method="inclusive")
    return 100 * (high - low) / 2 / median
