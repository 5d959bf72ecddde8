"""What chooses the settings of a search's trials: the paper's rates, or TPE."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from seqmodel.config import TRIALS, Config
from seqmodel.training.space import LOG_RATE_RANGE

RANDOM = 5
"""Trials before TPE takes over."""


def sampler(
    search: str, config: Config, count: int, begun: Callable[[], Sequence[int]]
) -> BaseSampler:
    """What chooses the settings of the next of `count` trials.

    `begun` gives Optuna's numbers of the trials so far, in order. paper: the paper's rates.
    Otherwise TPE, which starts with `config` unchanged and is seeded by the trial's index: one
    process alone repeats itself exactly; with several, it depends on what the others have found so
    far.
    """
    if search == "paper":
        return PaperSampler(paper_rates(config.seed, count), begun)
    return GuidedSampler(config, begun)


def paper_rates(seed: int, count: int) -> list[float]:
    """The rates to try: all units try the same ones, and a longer search tries more of them."""
    random = np.random.default_rng([seed, TRIALS])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, count))]


class PaperSampler(RandomSampler):
    """The paper's learning rates, one for each trial in the order in which they began.

    Its base, as that of `GuidedSampler`, samples no settings jointly.
    """

    def __init__(self, rates: Sequence[float], begun: Callable[[], Sequence[int]]) -> None:
        super().__init__()
        self._rates, self._begun = rates, begun

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> float:
        """The trial's rate."""
        return self._rates[self._begun().index(trial.number)]


class GuidedSampler(RandomSampler):
    """TPE, except for the first trial, which takes the given settings where they are in range."""

    def __init__(self, config: Config, begun: Callable[[], Sequence[int]]) -> None:
        super().__init__()
        self._config, self._begun, self._samplers = config, begun, dict[int, TPESampler]()

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The given setting for the first trial, TPE's for the others."""
        index = self._begun().index(trial.number)
        if index == 0:
            assert isinstance(param_distribution, FloatDistribution | IntDistribution)
            given = getattr(self._config, param_name)
            if given is not None and param_distribution.low <= given <= param_distribution.high:
                return given
        if index not in self._samplers:
            seed = np.random.SeedSequence([self._config.seed, index]).generate_state(1)[0]
            self._samplers[index] = TPESampler(
                n_startup_trials=RANDOM, seed=int(seed), constant_liar=True
            )
        return self._samplers[index].sample_independent(
            study, trial, param_name, param_distribution
        )
