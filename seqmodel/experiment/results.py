"""The results of an experiment, read from its storage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.evaluation.baselines import baselines
from seqmodel.experiment.differences import Difference, behind_the_first
from seqmodel.experiment.plan import Cell, Plan, Range
from seqmodel.experiment.studies import ENDED, METRICS, Studies
from seqmodel.model.build import outline
from seqmodel.model.sequence import ParameterCounts
from seqmodel.outputs.registry import output_class


@dataclass(frozen=True)
class Attempt:
    """One run: a trial of the search, or a seed of its winner."""

    index: int
    found: Mapping[str, Any]
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
        """Whether its last epoch, at the most that it may train, is its best."""
        return self.ended == "complete" and self.best is self.metrics[-1]

    @property
    def seconds(self) -> float:
        """How long it trained."""
        return float(sum(line["seconds"] for line in self.metrics))


@dataclass(frozen=True)
class Outcome:
    """The result of a cell."""

    cell: Cell
    config: Config | None
    """The winner's; None if the search has none."""
    winner: int | None
    """The index of the best trial."""
    parameters: ParameterCounts | None
    trials: Sequence[Attempt]
    seeds: Sequence[Attempt]
    nats: Mapping[str, NDArray[np.float64]]
    """Split -> nats of each piece, (seeds, pieces)."""
    scored: Sequence[int]
    """The seeds of those rows, counted from 0: one that diverged at once has no row."""

    @property
    def name(self) -> str:
        """The variant's."""
        return self.cell.variant.name

    def runs(self) -> list[tuple[str, Attempt]]:
        """All runs: trials, then seeds."""
        return [*(("trial", run) for run in self.trials), *(("seed", run) for run in self.seeds)]

    @property
    def found(self) -> Mapping[str, Any]:
        """The settings that the search chose for the winner."""
        return {} if self.winner is None else self.trials[self.winner].found


@dataclass(frozen=True)
class Comparison:
    """All variants on one dataset."""

    dataset: str
    lengths: Mapping[str, NDArray[np.int64]]
    """Split -> frames of each piece."""
    baselines: Mapping[str, Mapping[str, float]]
    """Split -> trivial model -> nats per frame."""
    outcomes: Sequence[Outcome]
    space: Mapping[str, Range] = field(default_factory=dict)
    """Setting -> the range searched."""

    @property
    def judged(self) -> str:
        """The split that decides: test, or valid if there is no test."""
        return "test" if "test" in self.lengths else "valid"

    def figures(self, outcome: Outcome, split: str) -> NDArray[np.float64]:
        """Nats per frame of each seed, (seeds,); empty if the search has no winner."""
        nats = outcome.nats.get(split, np.empty((0, 1)))
        return np.asarray(nats.sum(1) / self.lengths[split].sum())

    def mean(self, outcome: Outcome) -> float:
        """The mean figure of its seeds on the split that decides; it needs one."""
        return float(self.figures(outcome, self.judged).mean())

    def ranked(self) -> list[Outcome]:
        """The outcomes with a figure, the best first."""
        return sorted((o for o in self.outcomes if self.judged in o.nats), key=self.mean)

    @cached_property
    def behind(self) -> dict[str, Difference]:
        """How many more nats per frame each variant but the best takes, in order.

        Measured on the split that decides.
        """
        split, ranked = self.judged, self.ranked()
        gaps = behind_the_first([each.nats[split] for each in ranked], self.lengths[split])
        return {o.name: gap for o, gap in zip(ranked[1:], gaps, strict=True)}

    @property
    def told(self) -> bool:
        """Whether there are seeds and pieces enough for any verdict."""
        return any(gap.told for gap in self.behind.values())

    def leads(self, outcome: Outcome) -> bool:
        """Whether it is the best of several, or not told apart from it; no one without verdicts."""
        gap = self.behind.get(outcome.name)
        return self.told and (outcome is self.ranked()[0] if gap is None else not gap.real)

    def improving(self) -> list[Outcome]:
        """The outcomes with a seed that more epochs might have improved."""
        return [o for o in self.outcomes if any(seed.improving for seed in o.seeds)]

    def at_end(self, name: str) -> list[Outcome]:
        """The outcomes whose search chose a value of the setting `name` at an end of its range."""
        bounds = self.space[name]
        return [o for o in self.outcomes if name in o.found and bounds.at_end(o.found[name])]

    def trivial(self, split: str) -> tuple[str, float] | None:
        """The best trivial model of a split and its nats per frame; None if there is none."""
        found = self.baselines.get(split, {})
        return min(found.items(), key=lambda item: item[1], default=None)

    def no_better_than_trivial(self) -> list[Outcome]:
        """The outcomes no better than the best trivial model on the split that decides."""
        trivial = self.trivial(self.judged)
        return [o for o in self.ranked() if trivial is not None and self.mean(o) >= trivial[1]]


def results(studies: Studies) -> list[Comparison]:
    """The results so far, dataset by dataset.

    Raises:
        SeqmodelError: if a dataset is not the plan's.
    """
    plan, found = studies.plan, []
    for source in plan.sources:
        cells = [cell for cell in plan.cells() if cell.source == source]
        dataset = cells[0].dataset()
        outcomes = [_outcome(studies, cell, dataset) for cell in cells]
        lengths = {split: dataset[split].lengths for split in dataset.splits}
        baselines = _baselines(plan, cells, dataset)
        found.append(Comparison(source.name, lengths, baselines, outcomes, plan.space))
    return found


def _outcome(studies: Studies, cell: Cell, dataset: Dataset) -> Outcome:
    seeds = studies.seeds(cell)
    winner = studies.winner(cell) if studies.searched(cell) else None
    trials = {k: _attempt(k, trial) for k, trial in studies.trials(cell).indexed().items()}
    for number, final in studies.finished(cell).items():
        if METRICS in final.user_attrs:
            going_on = _attempt(number, final)
            trials[number] = replace(trials[number], ended=going_on.ended, metrics=going_on.metrics)
    config = None if winner is None else studies.plan.config(cell, dataset, winner[1].params, 0)
    every = seeds.indexed().items()
    scores = {k: trial.user_attrs["scores"] for k, trial in every if "scores" in trial.user_attrs}
    return Outcome(
        cell,
        config,
        None if winner is None else winner[0],
        None if config is None else outline(config, dataset.frame).parameter_counts(),
        [*trials.values()],
        [_attempt(k, trial) for k, trial in every],
        {s: np.array([found[s] for found in scores.values()]) for s in dataset.splits if scores},
        [*scores],
    )


def _attempt(index: int, trial: FrozenTrial) -> Attempt:
    attributes = trial.user_attrs
    return Attempt(index, trial.params, attributes.get(ENDED), attributes.get(METRICS, []))


def _baselines(plan: Plan, cells: Sequence[Cell], dataset: Dataset) -> dict[str, dict[str, float]]:
    """The baselines of each split, of densities or probabilities as all models are."""
    frame, train = dataset.frame, dataset["train"]
    discrete = output_class(plan.config(cells[0], dataset, {}, 0), frame).discrete
    return {
        split: baselines(train, dataset[split], frame, discrete=discrete)
        for split in dataset.splits
    }
