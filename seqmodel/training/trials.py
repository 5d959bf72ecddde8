"""The trials of a search, in Optuna's terms: their settings, training one, and which go on.

Used by `train` and by experiments, which store their studies differently. A search with pruning
has two stages: all trials are trained for a few epochs, then the best of them to their end. This
is successive halving (Jamieson and Talwalkar 2016) with a single cut. Optuna's own pruners judge a
trial before later ones begin and never resume one, so the first trials always go on; and learning
rates that are far too low are the slowest of all to stop improving.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from seqmodel.config import TRIALS, Config
from seqmodel.data.dataset import Dataset
from seqmodel.runs import folder as runs
from seqmodel.training.loop import Listener, Tick, train_run
from seqmodel.training.space import LOG_RATE_RANGE
from seqmodel.training.state import DivergedError

ENDED, METRICS = "ended", "metrics"
"""Attributes of a trial: how it ended, and its lines of metrics.jsonl."""
RANDOM = 5
"""Trials before TPE takes over."""


def paper_rates(seed: int, count: int) -> list[float]:
    """The rates to try: all units try the same ones, and a longer search tries more of them."""
    random = np.random.default_rng([seed, TRIALS])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, count))]


class SearchSampler(RandomSampler):
    """What chooses the settings of the next of `count` trials; its base samples none jointly.

    `begun` gives Optuna's numbers of the trials so far, in order. paper: the paper's rates, one for
    each trial in that order. Otherwise TPE, which starts with `config` where it is in range and is
    seeded by the trial's index: one process alone repeats itself exactly; with several, it depends
    on what the others have found so far.
    """

    def __init__(
        self, search: str, config: Config, count: int, begun: Callable[[], Sequence[int]]
    ) -> None:
        super().__init__()
        self._rates = paper_rates(config.seed, count) if search == "paper" else None
        self._config, self._begun, self._samplers = config, begun, dict[int, TPESampler]()

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The paper's rate; or the given setting for the first trial, TPE's for the others."""
        index = self._begun().index(trial.number)
        if self._rates is not None:
            return self._rates[index]
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


def first_look(config: Config) -> int:
    """The epoch after which the trials are compared: a quarter of the way, at most the twentieth.

    Earlier, the running mean of the weights lags behind them and low rates look worse than they
    are.
    """
    return max(1, min(config.epochs // 4, 20))


def ranked(trials: Mapping[int, FrozenTrial]) -> list[int]:
    """The indices of the complete trials, the best first, and of equals the earlier."""
    figures = {
        k: trial.value or 0.0 for k, trial in trials.items() if trial.state == TrialState.COMPLETE
    }
    return sorted(figures, key=lambda k: (figures[k], k))


def train_trial(
    trial: Trial,
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    look: int | None = None,
    listener: Listener | None = None,
    **others: Any,
) -> float:
    """Train the run of a trial, reporting its figures; returns the best on valid.

    With `look` it is a trial of the first stage, which ends after that epoch at the latest; ticks
    then tell the time left until that epoch. Epochs that the run already has beyond, in a search
    that is replayed, are not reported, so that the same settings follow. A run that diverges counts
    with its best epoch before that. The `others` and errors are those of `train_run`;
    optuna.TrialPruned, its cause the DivergedError, if it diverges before an epoch has ended.
    """
    listener = listener or Listener()
    diverged = None

    def reported(lines: Sequence[Mapping[str, Any]]) -> bool:
        for line in lines[:look]:
            trial.report(line["valid_nats_per_frame"], line["epoch"])
        return look is not None and lines[-1]["epoch"] >= look

    def tick(now: Tick) -> None:
        listener.tick(now if look is None else _until(now, look, config.epochs))

    def epoch(line: dict[str, Any], is_best: bool) -> bool:
        heard = listener.epoch(line, is_best)
        return reported([line]) or bool(heard)

    def resumed(lines: Sequence[dict[str, Any]]) -> bool:
        heard = listener.resumed(lines)
        return reported(lines) or bool(heard)

    try:
        heard = replace(listener, tick=tick, epoch=epoch, resumed=resumed)
        train_run(config, dataset, folder, listener=heard, **others)
    except DivergedError as error:  # this rate is too high; others may not be
        diverged = error
    metrics = runs.read_metrics(folder)[:look]
    ended = "complete"
    if diverged is not None:
        ended = f"diverged in epoch {len(metrics) + 1}"
    elif len(metrics) == look != config.epochs:
        ended = f"stopped after epoch {look}"
    elif len(metrics) < config.epochs:
        ended = f"no better for {config.patience} epochs"
    trial.set_user_attr(ENDED, ended)
    trial.set_user_attr(METRICS, metrics)
    figures = [float(line["valid_nats_per_frame"]) for line in metrics]
    best = min(filter(math.isfinite, figures), default=None)  # older versions wrote nan
    if best is None:
        raise optuna.TrialPruned from diverged
    return best


def _until(now: Tick, last: int, epochs: int) -> Tick:
    """A tick whose time left is that until epoch `last` ends, not all `epochs`."""
    if now.seconds_left is None or last == epochs:
        return now
    trained = now.epoch - 1 + now.done / now.total
    return replace(now, seconds_left=now.seconds_left * (last - trained) / (epochs - trained))
