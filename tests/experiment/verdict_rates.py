"""How often a comparison calls equal models different, and how often it finds a difference.

    python tests/experiment/verdict_rates.py [TIMES]

prints the table of seqmodel/experiment/README.md. Runs are simulated: figures vary with the seed
and, piece by piece, with the model and the run. Lengths of pieces differ, too.
"""

import itertools
import sys
from typing import NamedTuple

import numpy as np

from seqmodel.experiment.results import differences, jointly

OF_PIECES, OF_RUNS = 0.1, 0.05
"""Deviation of a model's nats per frame from piece to piece, and of a run's on a piece."""
LIKELY = 0.03
"""Deviation from seed to seed, as on the published rolls."""


class Runs(NamedTuple):
    """What is simulated."""

    models: int
    seeds: int
    pieces: int
    of_seeds: float
    unequal: float = 1.0
    """How much more the first model varies than the others do, over seeds and pieces."""


def drawn(runs, gap, random):
    """Nats of each model, the best first, and lengths; one model is worse by `gap`."""
    models, seeds, pieces = runs[:3]
    lengths = random.integers(5, 200, pieces)
    scale = np.ones((models, 1, 1))
    scale[0] = runs.unequal
    nats = random.normal(0, 1, (models, seeds, 1)) * scale * runs.of_seeds
    nats = nats + random.normal(0, 1, (models, 1, pieces)) * scale * OF_PIECES
    nats = 8 + nats + random.normal(0, OF_RUNS, (models, seeds, pieces))
    nats[-1] += gap
    order = np.argsort((nats * lengths).sum((1, 2)))
    return nats[order] * lengths, lengths, int(np.argwhere(order == models - 1)[0, 0])


def behind_the_first(nats, lengths):
    """How far each model but the first, the best, is behind it."""
    return [*differences(nats, lengths, [(0, k) for k in range(1, len(nats))]).values()]


def verdicts(runs, times, gap=0.0, *, all_pairs=False):
    """Whether any model is told from the best, or any other; with a gap, whether the worse is."""
    random = np.random.default_rng([7, *runs[:3]])
    for _ in range(times):
        nats, lengths, worse = drawn(runs, gap, random)
        if all_pairs:
            pairs = [*itertools.combinations(range(runs.models), 2)]
            yield any(found.real for found in differences(nats, lengths, pairs).values())
        else:
            found = [False, *(difference.real for difference in behind_the_first(nats, lengths))]
            yield found[worse] if gap else any(found)


def joint_rate(runs, datasets, times, gap=0.0):
    """The share of verdicts on the last of the models against the first, over several datasets."""
    random, found = np.random.default_rng([8, *runs[:3]]), []
    for _ in range(times):
        gaps = []
        for _ in range(datasets):
            nats, lengths, worse = drawn(runs, gap, random)
            others = [k for k in range(runs.models) if k != worse]
            pair = others[0], worse
            gaps.append(differences(nats, lengths, [pair])[pair])
        found.append(jointly(gaps).real)
    return float(np.mean(found))


def rate(*given, **named):
    """The share of `verdicts`."""
    return float(np.mean([*verdicts(*given, **named)]))


def at_worst(models, seeds, pieces, times, *, all_pairs=False):
    """The highest rate of equal models, however their figures vary."""
    return max(
        rate(Runs(models, seeds, pieces, of_seeds, unequal), times, all_pairs=all_pairs)
        for of_seeds in (0.0, LIKELY, 0.2)
        for unequal in (1.0, 5.0)
    )


def main(times):
    """Print the table."""
    counts = (2, 3, 9)
    print("| seeds | pieces |", *(f"{n} models: false | by 0.1 | by 0.2 |" for n in counts))
    print("|---:|---:|" + "---:|---:|---:|" * len(counts))
    settings = [*itertools.product((2, 3, 5), (6, 30, 300))]
    for seeds, pieces in settings:
        cells = []
        for models in counts:
            worst = at_worst(models, seeds, pieces, times)
            likely = Runs(models, seeds, pieces, LIKELY)
            found = [rate(likely, times // 4, gap) for gap in (0.1, 0.2)]
            cells.append(f"{worst:.1%} | " + " | ".join(f"{share:.0%}" for share in found))
        print(f"| {seeds} | {pieces} |", " | ".join(cells), "|", flush=True)
    for models in counts:
        worst = max(at_worst(models, *setting, times, all_pairs=True) for setting in settings)
        print(f"{models} models, any of all pairs told apart: {worst:.1%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
