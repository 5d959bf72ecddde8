"""The trials of a search, in Optuna's terms: their samplers and pruners, and training one.

Used by `train` and by experiments, which store their studies differently.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, Trial

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.runs import folder as runs
from seqmodel.training.loop import CPU, Listener, train_run
from seqmodel.training.space import LOG_RATE_RANGE
from seqmodel.training.state import DivergedError
from seqmodel.training.stopping import StopRequest

ENDED, METRICS = "ended", "metrics"
"""Attributes of a trial: how it ended, and its lines of metrics.jsonl."""


RANDOM, COMPLETE = 5, 3
"""Trials before TPE takes over, and complete ones before any trial is pruned."""


def strategy(
    search: str, config: Config, count: int, begun: Callable[[], Sequence[int]]
) -> tuple[BaseSampler, BasePruner]:
    """The sampler and the pruner for the next of `count` trials.

    `begun` gives Optuna's numbers of the trials so far, in order. paper: the paper's rates, without
    pruning. Otherwise TPE, which starts with `config` unchanged and is seeded by how many trials
    have begun: one process alone repeats itself exactly; with several, it depends on what the
    others have found so far. A trial is pruned if its best figure is worse than the median of the
    complete trials at its epoch, but not in its first epochs, when the running mean of the weights
    lags behind them and low rates look worse than they are.
    """
    if search == "paper":
        return PaperSampler(paper_rates(config.seed, count), begun), NopPruner()
    number = np.random.SeedSequence([config.seed, len(begun())]).generate_state(1)[0]
    spared = min(config.epochs // 4, 20)
    return GuidedSampler(config, begun, int(number)), MedianPruner(COMPLETE, spared + 1)


class GuidedSampler(TPESampler):
    """TPE, except for the first trial, which takes the given settings where they are in range."""

    def __init__(self, config: Config, begun: Callable[[], Sequence[int]], seed: int) -> None:
        super().__init__(n_startup_trials=RANDOM, seed=seed, constant_liar=True)
        self._config, self._begun = config, begun

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The given setting for the first trial, TPE's for the others."""
        if self._begun().index(trial.number) == 0:
            assert isinstance(param_distribution, FloatDistribution | IntDistribution)
            given = getattr(self._config, param_name)
            if given is not None and param_distribution.low <= given <= param_distribution.high:
                return given
        return super().sample_independent(study, trial, param_name, param_distribution)


def paper_rates(seed: int, count: int) -> list[float]:
    """The rates to try. They depend on nothing else, so all units try the same ones."""
    random = np.random.default_rng([seed, count])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, count))]


class PaperSampler(BaseSampler):
    """The paper's learning rates, one for each trial in the order in which they began."""

    def __init__(self, rates: Sequence[float], begun: Callable[[], Sequence[int]]) -> None:
        self._rates, self._begun = rates, begun

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Empty: nothing is sampled jointly."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As above."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> float:
        """The trial's rate."""
        return self._rates[self._begun().index(trial.number)]


def train_trial(
    trial: Trial,
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    device: torch.device = CPU,
    resume: bool = False,
    init_from: runs.Run | None = None,
    listener: Listener | None = None,
    stop: StopRequest | None = None,
) -> float:
    """Train the run of a trial, reporting its figures; returns the best on valid.

    Arguments and further errors are those of `train_run`. A pruned run that is resumed is pruned
    again. A run that diverges counts with its best epoch before that.

    Raises:
        optuna.TrialPruned: if it is pruned, or diverges before an epoch has ended; the
            DivergedError is then the cause.
    """
    listener = listener or Listener()
    pruned, diverged = False, None

    def judged(lines: Sequence[Mapping[str, Any]]) -> bool:
        nonlocal pruned
        for line in lines:
            trial.report(line["valid_nats_per_frame"], line["epoch"])
        # Without pruning there is no need to query a database.
        pruned = not isinstance(trial.study.pruner, NopPruner) and trial.should_prune()
        return pruned

    def epoch(line: dict[str, Any], is_best: bool) -> bool:
        heard = listener.epoch(line, is_best)
        return judged([line]) or bool(heard)

    def resumed(lines: Sequence[dict[str, Any]]) -> bool:
        heard = listener.resumed(lines)
        return judged(lines) or bool(heard)

    try:
        train_run(
            config,
            dataset,
            folder,
            device=device,
            resume=resume,
            init_from=init_from,
            listener=replace(listener, epoch=epoch, resumed=resumed),
            stop=stop,
        )
    except DivergedError as error:  # this rate is too high; others may not be
        diverged = error
    metrics = runs.read_metrics(folder)
    ended = "complete"
    if diverged is not None:
        ended = f"diverged in epoch {len(metrics) + 1}"
    elif pruned:
        ended = f"pruned after epoch {len(metrics)}"
    elif len(metrics) < config.epochs:
        ended = f"no better for {config.patience} epochs"
    trial.set_user_attr(ENDED, ended)
    trial.set_user_attr(METRICS, metrics)
    figures = [float(line["valid_nats_per_frame"]) for line in metrics]
    best = min(filter(math.isfinite, figures), default=None)  # older versions wrote nan
    if pruned or best is None:
        raise optuna.TrialPruned from diverged
    return best
