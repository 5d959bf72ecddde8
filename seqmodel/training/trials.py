"""The trials of a search, in Optuna's terms: training one, and which of them go on.

Used by `train` and by experiments, which store their studies differently. A search with pruning
has two stages: all trials are trained for a few epochs, then the best of them to their end. This
is successive halving (Jamieson and Talwalkar 2016) with a single cut. Optuna's own pruners judge a
trial before later ones begin and never resume one, so the first trials always go on; and learning
rates that are far too low are the slowest of all to stop improving.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import FrozenTrial, Trial, TrialState

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.runs import folder as runs
from seqmodel.training.loop import CPU, Listener, Tick, train_run
from seqmodel.training.state import DivergedError
from seqmodel.training.stopping import StopRequest

ENDED, METRICS = "ended", "metrics"
"""Attributes of a trial: how it ended, and its lines of metrics.jsonl."""


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
    device: torch.device = CPU,
    look: int | None = None,
    resume: bool = False,
    init_from: runs.Run | None = None,
    listener: Listener | None = None,
    stop: StopRequest | None = None,
    again: str | None = None,
) -> float:
    """Train the run of a trial, reporting its figures; returns the best on valid.

    With `look` it is a trial of the first stage, which ends after that epoch at the latest; ticks
    then tell the time left until that epoch. Epochs that the run already has beyond, in a search
    that is replayed, are not reported, so that the same settings follow. A run that diverges counts
    with its best epoch before that. Other arguments and errors are those of `train_run`;
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
        train_run(
            config,
            dataset,
            folder,
            device=device,
            resume=resume,
            init_from=init_from,
            listener=replace(listener, tick=tick, epoch=epoch, resumed=resumed),
            stop=stop,
            again=again,
        )
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
