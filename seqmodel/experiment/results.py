"""The results of an experiment, and which differences are real: beyond seeds and pieces."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.evaluation.baselines import baselines
from seqmodel.experiment.plan import Cell, Plan
from seqmodel.experiment.studies import ENDED, METRICS, SCORES, Studies
from seqmodel.media.words import spaced
from seqmodel.model.build import meta_model
from seqmodel.model.sequence import ParameterCounts
from seqmodel.outputs.registry import output_class

FEWEST = 6
"""Fewest pieces for a verdict. One of two equal models is ahead on all of five pieces in 6 % of
cases, and assumptions about how pieces differ cannot be checked on so few."""
LEVEL = 0.04
"""Nominal rate of false verdicts. Approximate degrees of freedom overshoot it where one model's
seeds vary five times as much as another's; the measured rate then stays below 5 % (README.md)."""
WIDEST_PAIR = 4
"""The most models that quantiles allow for with the variance of only two models. If a few vary much
more than the others, the best and the worst are among these."""
GRID_STEP = 0.01
"""The step of the grid on which the standard normal distribution is integrated, from -8 to 8."""


class Difference(NamedTuple):
    """How many more nats per frame one model takes than another, on the same pieces."""

    mean: float
    margin: float
    """Half the width of the interval of at least 95 %, valid for all pairs at once."""
    seeds: int
    """Those of the model with fewer; a single seed does not show how much seeds vary."""
    pieces: int
    doubt: str = ""
    """Why the worse may yet catch up, see `Comparison.doubt`."""

    @property
    def interval(self) -> tuple[float, float]:
        return self.mean - self.margin, self.mean + self.margin

    def reversed(self) -> "Difference":
        """The difference seen from the other model."""
        return self._replace(mean=-self.mean)

    @property
    def conclusive(self) -> bool:
        """Whether there are enough seeds and pieces for a verdict."""
        return self.seeds > 1 and self.pieces >= FEWEST

    @property
    def verdict(self) -> str:
        """Whether it is worse or better than the other one, or why that is unknown."""
        if not self.conclusive:
            return "too few"
        if abs(self.mean) <= self.margin:
            return "not told apart"
        return "withheld" if self.doubt else "worse" if self.mean > 0 else "better"

    @property
    def real(self) -> bool:
        """Whether there is a verdict: the interval excludes 0 and the worse trained enough."""
        return self.verdict in ("worse", "better")


@dataclass(frozen=True)
class Attempt:
    """One run: a trial of the search, or a seed of its winner."""

    params: Mapping[str, Any]
    """The settings that the search chose."""
    ended: str | None
    """How it ended; None while it runs or waits."""
    metrics: Sequence[Mapping[str, Any]]
    """The metrics of each epoch, see runs/README.md."""

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The epoch that predicts valid best."""
        return min(self.metrics, key=lambda line: line["valid_nats_per_frame"], default=None)

    @property
    def valid(self) -> float | None:
        """Its figure, in nats per frame."""
        return None if self.best is None else float(self.best["valid_nats_per_frame"])

    @property
    def improving(self) -> bool:
        """Whether it trained for the maximum of epochs and the last is its best."""
        return self.ended == "complete" and self.best is self.metrics[-1]

    @property
    def gain(self) -> float:
        """Nats gained in the second half of its epochs; 0 unless it was improving."""
        figures = [line["valid_nats_per_frame"] for line in self.metrics]
        first = min(figures[: len(figures) // 2], default=math.inf)
        return first - figures[-1] if self.improving else 0.0

    @property
    def seconds(self) -> float:
        return float(sum(line["seconds"] for line in self.metrics))


@dataclass(frozen=True)
class Outcome:
    """The result of a cell."""

    cell: Cell
    config: Config | None
    """The winner's config; None if the search has none."""
    winner: int | None
    """The index of the best trial."""
    parameters: ParameterCounts | None
    trials: Sequence[Attempt]
    seeds: Sequence[Attempt]
    nats: Mapping[str, NDArray[np.float64]]
    """Split -> nats of each piece, (seeds, pieces)."""
    scored: Sequence[int]
    """The seeds of those rows, numbered from 0: one that diverged at once has no row."""

    @property
    def name(self) -> str:
        return self.cell.variant.name

    @property
    def params(self) -> Mapping[str, Any]:
        return {} if self.winner is None else self.trials[self.winner].params

    @property
    def improving(self) -> bool:
        """Whether more epochs might have improved a seed."""
        return any(seed.improving for seed in self.seeds)


@dataclass(frozen=True)
class Comparison:
    """All variants on one dataset."""

    dataset: str
    lengths: Mapping[str, NDArray[np.int64]]
    """Split -> frames of each piece."""
    baselines: Mapping[str, Mapping[str, float]]
    """Split -> trivial model -> nats per frame."""
    outcomes: Sequence[Outcome]
    plan: Plan

    @property
    def judged(self) -> str:
        """The split that decides: test, or valid if there is no test."""
        return "test" if "test" in self.lengths else "valid"

    def figures(self, outcome: Outcome, split: str) -> NDArray[np.float64]:
        """Nats per frame of each seed, (seeds,); empty if the search has no winner."""
        nats = outcome.nats.get(split, np.empty((0, 1)))
        return np.asarray(nats.sum(1) / self.lengths[split].sum())

    def mean(self, outcome: Outcome) -> float:
        """The mean figure of its seeds on the split that decides; there must be one."""
        return float(self.figures(outcome, self.judged).mean())

    def ranked(self) -> list[Outcome]:
        """The outcomes with a figure, the best first."""
        return sorted((o for o in self.outcomes if self.judged in o.nats), key=self.mean)

    @cached_property
    def behind(self) -> dict[str, Difference]:
        """By how many nats per frame each is behind the best on the deciding split, in order."""
        ranked = self.ranked()
        return {o.name: self._between[0, k] for k, o in enumerate(ranked) if k}

    @cached_property
    def compared(self) -> dict[tuple[str, str], Difference]:
        """By how many nats per frame the second of each requested pair is behind the first."""
        names = [outcome.name for outcome in self.ranked()]
        pairs = [*combinations(range(len(names)), 2)]
        if not self.plan.all_pairs:
            against = self.plan.against
            first = names.index(against) if against in names else 0
            pairs = [(first, k) for k in range(len(names)) if k != first]
        return {(names[i], names[k]): self._between[i, k] for i, k in pairs}

    @cached_property
    def _between(self) -> dict[tuple[int, int], Difference]:
        """The differences of all variants with a figure, by their ranks."""
        ranked = self.ranked()
        nats, pairs = [o.nats[self.judged] for o in ranked], [*permutations(range(len(ranked)), 2)]
        gaps = differences(nats, self.lengths[self.judged], pairs)
        doubts = {pair: self.doubt(ranked[max(pair)], abs(gap.mean)) for pair, gap in gaps.items()}
        return {pair: gap._replace(doubt=doubts[pair]) for pair, gap in gaps.items()}

    @property
    def conclusive(self) -> bool:
        """Whether there are enough seeds and pieces for any verdict."""
        return any(gap.conclusive for gap in self.behind.values())

    def leads(self, outcome: Outcome) -> bool:
        """Whether it is the best of several, or not told apart from it; False without verdicts."""
        gap = self.behind.get(outcome.name)
        return self.conclusive and (outcome is self.ranked()[0] if gap is None else not gap.real)

    def at_end(self, outcome: Outcome, name: str) -> bool:
        """Whether its search chose an end of a setting's range, or of the rates tried."""
        if name not in outcome.params:
            return False
        if name != "learning_rate":
            return self.plan.space[name].at_end(outcome.params[name])
        tried = [trial.params[name] for trial in outcome.trials if name in trial.params]
        return outcome.params[name] in (min(tried), max(tried))

    def doubt(self, worse: Outcome, behind: float) -> str:
        """Why a model may yet catch up with another that is `behind` nats better; else empty."""
        for name in self.plan.space:
            if self.at_end(worse, name):
                return f"the {spaced(name)} of {worse.name} is at an end of the range searched"
        # Curves flatten: in as many epochs again it would gain less than in its second half.
        gain = fmean(seed.gain for seed in worse.seeds) if worse.seeds else 0.0
        return f"{worse.name} still improved in its last epoch" if gain > behind else ""

    def trivial(self, split: str) -> tuple[str, float] | None:
        """The best trivial model of a split and its nats per frame; None if there is none."""
        figures = self.baselines.get(split, {})
        return min(figures.items(), key=lambda item: item[1], default=None)

    def no_better_than_trivial(self) -> list[str]:
        """The variants no better than the best trivial model on the split that decides."""
        trivial = self.trivial(self.judged)
        return [o.name for o in self.ranked() if trivial and self.mean(o) >= trivial[1]]


def results(studies: Studies) -> list[Comparison]:
    """The results so far, dataset by dataset; SeqmodelError if a dataset is not the plan's."""
    plan, comparisons = studies.plan, []
    for source in plan.sources:
        cells, dataset = [Cell(source, variant) for variant in plan.variants], source.dataset()
        outcomes = [_outcome(studies, cell, dataset) for cell in cells]
        splits, frame = {name: dataset[name] for name in dataset.splits}, dataset.frame
        lengths = {name: split.lengths for name, split in splits.items()}
        discrete = output_class(plan.config(cells[0], dataset, {}, 0), frame).discrete
        trivial = {
            name: baselines(splits["train"], split, frame, discrete=discrete)
            for name, split in splits.items()
        }
        comparisons.append(Comparison(source.name, lengths, trivial, outcomes, plan))
    return comparisons


def _outcome(studies: Studies, cell: Cell, dataset: Dataset) -> Outcome:
    search, seeds = studies.trials(cell), studies.seeds(cell).runs()
    trials = [*map(_attempt, search.runs())]
    best = studies.winner(cell) if search.complete() else None
    config = None if best is None else studies.plan.config(cell, dataset, trials[best].params, 0)
    found = enumerate(seed.user_attrs for seed in seeds)
    scores = {k: attributes[SCORES] for k, attributes in found if SCORES in attributes}
    return Outcome(
        cell,
        config,
        best,
        None if config is None else meta_model(config, dataset.frame).parameter_counts(),
        trials,
        [*map(_attempt, seeds)],
        {s: np.array([score[s] for score in scores.values()]) for s in dataset.splits if scores},
        [*scores],
    )


def _attempt(trial: FrozenTrial) -> Attempt:
    attributes = trial.user_attrs
    return Attempt(trial.params, attributes.get(ENDED), attributes.get(METRICS, []))


def jointly(gaps: Sequence[Difference]) -> Difference:
    """The mean of one pair's differences on several datasets, which vary independently.

    In doubt if there would be no verdict once the worse had caught up wherever it may.
    """
    margin = math.hypot(*(gap.margin for gap in gaps)) / len(gaps)
    seeds, pieces = min(gap.seeds for gap in gaps), min(gap.pieces for gap in gaps)
    mean = fmean(gap.mean for gap in gaps)
    doubtful = [gap for gap in gaps if gap.doubt and gap.mean * mean > 0]
    certain = abs(mean) - sum(abs(gap.mean) for gap in doubtful) / len(gaps)
    doubts = [gap.doubt for gap in doubtful[:1] if certain <= margin]
    return Difference(mean, margin, seeds, pieces, *doubts)


def differences(
    nats: Sequence[NDArray[np.float64]],
    lengths: NDArray[np.int64],
    pairs: Sequence[tuple[int, int]],
) -> dict[tuple[int, int], Difference]:
    """By how many nats per frame the second model of each pair is behind, and how sure that is.

    Other pieces and other seeds would give other figures, and both count, as in Clark's min F'
    (1973): their margins are added in quadrature. Pieces are compared in pairs, and their variance
    is the jackknife's of a ratio, nats over frames (Efron, Tibshirani 1993). Seeds are those of
    either model. Each margin is the larger of two, from the variance pooled over all models and
    from that of the two alone, with Welch's degrees of freedom, because models may vary
    differently. Quantiles are those of the studentized range (Tukey), which allows for all pairs,
    and so for one chosen by these very figures.

    `nats` holds those of each piece, (seeds, pieces), for each model; `lengths` are in frames.
    """
    frames, models, pieces = lengths.sum(), len(nats), len(lengths)
    figures = [each.sum(1) / frames for each in nats]
    means = [float(each.mean()) for each in figures]
    seeds = [len(each) for each in figures]
    if not pairs:
        return {}
    if min(pieces, max(seeds)) < 2:  # nothing varies
        return {
            (i, k): Difference(means[k] - means[i], 0.0, min(seeds[i], seeds[k]), pieces)
            for i, k in pairs
        }

    seed_vars = [float(each.var(ddof=1)) if len(each) > 1 else 0.0 for each in figures]
    pooled_df = sum(seeds) - models
    pooled_variance = sum(v * (s - 1) for v, s in zip(seed_vars, seeds, strict=True)) / pooled_df
    # The change from leaving out a piece; its square, times (P - 1) / P, sums to the variance.
    average = np.array([each.mean(0) for each in nats])
    changes = (average - np.outer(means, lengths)) / (frames - lengths) * math.sqrt(1 - 1 / pieces)
    centred = changes - changes.mean(0)
    # Long pieces weigh more, so that there are fewer degrees of freedom than pieces.
    weights = lengths.astype(float) ** 2
    piece_df = float(weights.sum() ** 2 / (weights**2).sum()) - 1

    gaps, pair_models = dict[tuple[int, int], Difference](), min(models, WIDEST_PAIR)
    for i, k in pairs:
        parts = [seed_vars[m] / seeds[m] for m in (i, k)]
        shares = [part**2 / max(seeds[m] - 1, 1) for m, part in zip((i, k), parts, strict=True)]
        margins = [
            _margin(sum(parts), sum(parts) ** 2 / sum(shares) if any(shares) else 1.0, pair_models),
            _margin(pooled_variance * (1 / seeds[i] + 1 / seeds[k]), pooled_df, models),
            _margin(float(((changes[k] - changes[i]) ** 2).sum()), piece_df, pair_models),
            _margin(2 * float((centred**2).sum()) / (models - 1), piece_df * (models - 1), models),
        ]
        margin = math.hypot(max(margins[:2]), max(margins[2:]))
        gaps[i, k] = Difference(means[k] - means[i], margin, min(seeds[i], seeds[k]), pieces)
    return gaps


def _margin(variance: float, freedom: float, models: int) -> float:
    # Rounded down, because every new number costs an integration.
    return math.sqrt(variance) * quantile(models, max(1.0, math.floor(freedom * 10) / 10))


@cache
def quantile(models: int, freedom: float, level: float = LEVEL) -> float:
    """How many standard errors apart the best and the worst of equal models are, at most.

    The quantile of the studentized range over the square root of 2, which is Student's t for two
    models, exceeded with probability `level`. `freedom` is the standard error's.
    """
    freedom, width = min(freedom, 1e5), 1 / math.sqrt(2 * min(freedom, 1e5))
    logs = np.linspace(-12 / freedom - 8 * width, min(8 * width, 2.2), 400)
    errors = np.exp(logs)  # estimated over true
    density = np.exp(freedom * (logs - errors**2 / 2 + 0.5))
    density /= density.sum()
    ranges, below = _range(models)

    def tail(bound: float) -> float:
        return 1 - float(density @ np.interp(bound * math.sqrt(2) * errors, ranges, below))

    low, high = 0.0, 1.0
    while tail(high) > level:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > level else (low, middle)
    return high


@cache
def _range(models: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Ranges of as many standard normals as models, and the probability of less."""
    values = np.arange(-8, 8, GRID_STEP)
    normal = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in values])
    density = np.exp(-(values**2) / 2)
    density /= density.sum()
    below = [0.0]
    for k in range(1, len(values)):
        lower = np.concatenate([np.zeros(k), normal[:-k]])
        below.append(models * float(density @ (normal - lower) ** (models - 1)))
    return np.arange(len(values)) * GRID_STEP, np.array(below)
