"""The search of one cell: its trials, each trained to completion, and the choice of their settings.

The leader after some of the epochs may not lead at the end (docs/results/searches.md).

`seqmodel train --lr search` is such a search of one cell, with its state in memory: all its trials
are on disk, so a resumed search replays them with the same results. Its folder is a run folder with
the files of the best trial, and all trials under draws/.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial

from seqmodel.config import SEARCHES, TRIALS, Config, read_config_file, search_of, to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.experiment.plan import (
    LOG_RATE_RANGE,
    Cell,
    Plan,
    Range,
    Source,
    Variant,
    default_space,
)
from seqmodel.experiment.studies import ENDED, METRICS, Studies, Study, figure_of
from seqmodel.files import read_bytes, write_file
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import model_tensors, save_checkpoint
from seqmodel.runs.files import epochs_of, resume_command
from seqmodel.training.loop import Trainer, begin_run, train_run
from seqmodel.training.state import DivergedError
from seqmodel.training.trackers import Listener

RANDOM = 5
"""Trials before TPE takes over."""
BRACKET_FACTOR = 4
"""The factor between the first rates of a bracket, and by which it widens."""


def paper_rates(seed: int, count: int) -> list[float]:
    """The rates to try: the same for all units, and more of them in a longer search."""
    random = np.random.default_rng([seed, TRIALS["paper"]])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, count))]


def next_rates(figures: Mapping[float, float], widest: Range) -> tuple[float, float]:
    """The two rates that a bracket tries next, given each rate's figure so far.

    One on either side of the best: halfway to the next on a log scale, or further out by
    `BRACKET_FACTOR`, though never beyond the `widest`: at its end both are on the other side. Among
    equals, such as those that diverged, the lowest is the best.
    """
    best = min(figures, key=lambda rate: (figures[rate], rate))
    below = max((rate for rate in figures if rate < best), default=None)
    above = min((rate for rate in figures if rate > best), default=None)
    lower = max(best / BRACKET_FACTOR**2, widest.low) if below is None else below
    upper = min(best * BRACKET_FACTOR**2, widest.high) if above is None else above
    low, high = math.sqrt(best * lower), math.sqrt(best * upper)
    if lower == best:
        return math.sqrt(best * high), high
    return low, math.sqrt(best * low) if upper == best else high


Train = Callable[[Trial, int, Mapping[str, Any]], float]
"""Trains a run, given the trial that records its figures, its number from 0 and the settings chosen
by the search; returns its figure, see `train_trial`."""


def run_next(studies: Studies, cell: Cell, study: Study, settings: Config, train: Train) -> None:
    """Run the next trial or seed of a cell, from the given `study`; `settings` are unsearched."""

    def objective(trial: Trial, index: int) -> float:
        params: Mapping[str, Any] = {}
        if study.kind == "trial":
            params = _suggest(trial, index, studies.plan, settings, study.runs())
        elif (winner := studies.winner(cell)) is not None:
            params = studies.trials(cell).runs()[winner].params
        return train(trial, index, params)

    study.run_next(objective)


def _suggest(
    trial: Trial, index: int, plan: Plan, settings: Config, trials: Sequence[FrozenTrial]
) -> dict[str, Any]:
    """The settings that the search tries in the trial of this index, one of the `trials` so far.

    bracket: first the rate of `settings`, then pairs, each by the figures of all before it, which
    have ended by then (`Plan.ready`). paper: the paper's rates, in order. tpe: first those of
    `settings` that are in range, then TPE's draws, seeded by the index: a single process repeats
    itself exactly; with several, draws depend on what the others have found so far.
    """
    fixed: dict[str, Any] = {}
    if plan.search == "bracket":
        widest = plan.space["learning_rate"]
        rate = min(max(settings.learning_rate, widest.low), widest.high)
        before = trials[1 : index - (index - 1) % 2] if index else ()
        figures = {rate: figure_of(trials[0])}
        figures |= {trial.params["learning_rate"]: figure_of(trial) for trial in before}
        fixed = {"learning_rate": next_rates(figures, widest)[(index - 1) % 2] if index else rate}
    elif plan.search == "paper":
        fixed = {"learning_rate": paper_rates(settings.seed, index + 1)[index]}
    elif index == 0:
        values = {name: getattr(settings, name) for name in plan.space}
        fixed = {k: v for k, v in values.items() if v is not None and v in plan.space[k]}
    seed = np.random.SeedSequence([settings.seed, index]).generate_state(1)[0]
    trial.study.sampler = TPESampler(n_startup_trials=RANDOM, seed=int(seed), constant_liar=True)
    return {name: each.suggest(trial, name, fixed.get(name)) for name, each in plan.space.items()}


def train_trial(
    trial: Trial, config: Config, dataset: Dataset, folder: Path, **options: Any
) -> float:
    """Train the run of a trial and record how it ended; returns its best figure on valid.

    If it diverged, that is the best before; if there is none, it raises optuna.TrialPruned with the
    DivergedError as its cause. The `options` and errors are those of `train_run`.
    """
    diverged = None
    try:
        train_run(config, dataset, folder, **options)
    except DivergedError as error:  # this rate is too high; others might not be
        diverged = error
    metrics = runs.read_metrics(folder)
    epochs, ended = epochs_of(metrics), "complete"
    if diverged is not None:
        ended = f"diverged in epoch {int(epochs) + 1}"
    elif config.minutes is None and epochs != config.epochs:
        ended = f"no better for {config.patience} epochs"
    trial.set_user_attr(ENDED, ended)
    trial.set_user_attr(METRICS, metrics)
    figures = [float(line["valid_nats_per_frame"]) for line in metrics]
    best = min(filter(math.isfinite, figures), default=None)  # older versions wrote nan
    if best is None:
        raise optuna.TrialPruned from diverged
    return best


def _studies_of(config: Config) -> tuple[Studies, Cell]:
    """The studies of the learning-rate search of `config`, and their only cell."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = next(name for name, setting in SEARCHES.items() if getattr(config, setting))
    plan = Plan(
        sources=(Source("", "", ""),),
        variants=(Variant("", {}),),
        settings={},
        search=kind,
        trials=config.trials,
        seeds=0,
        space=default_space(kind, paper=search_of(config.preset) == "paper"),
    )
    return Studies(optuna.storages.InMemoryStorage(), "draws", plan), plan.cells()[0]


def begin_search(
    config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None = None
) -> Trainer:
    """Like `begin_run`, for `search` to resume."""
    if init_from is not None:  # for trials that begin later
        start = replace(init_from, data_sha256=None, began_from=init_from.folder.resolve().name)
        tensors, path = model_tensors(init_from.model), folder / runs.INIT / runs.BEST
        save_checkpoint(path, tensors, start.to_json())
    write_file(folder / runs.CONFIG, to_yaml(config).encode())
    studies, cell = _studies_of(config)
    settings, trainers = config.without_search(), []

    def begin(trial: Trial, number: int, params: Mapping[str, Any]) -> float:
        tried = replace(settings, **params)
        trainers.append(begin_run(tried, dataset, folder / runs.DRAWS / str(number), init_from))
        return 0.0

    run_next(studies, cell, studies.trials(cell), settings, begin)
    return trainers[0]


def search(
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    listener: Listener | None = None,
    hint: str | None = None,
    **options: Any,
) -> None:
    """Train `config` at each learning rate of its search and keep the run that is best on valid.

    It continues what is in `folder`. Other arguments and errors are those of `train_run`;
    SeqmodelError if no trial has completed an epoch.
    """
    listener = listener or Listener()
    hint = hint or f"continue with {resume_command(folder)}"
    write_file(folder / runs.CONFIG, to_yaml(config).encode())
    init_from = None
    if (folder / runs.INIT).is_dir():
        start = runs.load_run(folder / runs.INIT)
        init_from = replace(start, folder=Path(start.began_from or runs.INIT))
    diverged: BaseException | None = None
    studies, cell = _studies_of(config)
    settings = config.without_search()

    def train(trial: Trial, number: int, params: Mapping[str, Any]) -> float:
        nonlocal diverged
        trial_folder, tried = folder / runs.DRAWS / str(number), replace(settings, **params)
        _check_rate(tried.learning_rate, trial_folder)
        listener.draw(number + 1, config.trials, tried.learning_rate)
        try:
            return train_trial(
                trial,
                tried,
                dataset,
                trial_folder,
                resume=(trial_folder / runs.LAST).is_file(),
                init_from=init_from,
                listener=listener,
                hint=hint,
                **options,
            )
        except optuna.TrialPruned as pruned:
            diverged = pruned.__cause__ or diverged
            raise

    while (study := studies.unfinished(cell)) is not None:
        run_next(studies, cell, study, settings, train)
    lines = ""
    for number, trial in enumerate(studies.trials(cell).runs()):
        line = {"draw": number, "learning_rate": trial.params["learning_rate"]}
        line |= {"valid_nats_per_frame": trial.value, "ended": trial.user_attrs[ENDED]}
        lines += json.dumps(line, allow_nan=False) + "\n"
    write_file(folder / runs.DRAWS_INDEX, lines.encode())
    winner = studies.winner(cell)
    if winner is None:
        raise SeqmodelError(f"every learning rate diverged; the last: {diverged}")
    for name in (runs.METRICS, runs.CURVE, runs.LAST, runs.BEST):
        write_file(folder / name, read_bytes(folder / runs.DRAWS / str(winner) / name))


def _check_rate(rate: float, folder: Path) -> None:
    """SeqmodelError if a trial was begun with another rate than its search now chooses."""
    path = folder / runs.CONFIG
    if not path.is_file():
        return
    stored = Config(**read_config_file(path)).learning_rate
    if stored != rate:
        raise SeqmodelError(
            f"{folder} has a learning rate of {stored:.3g}, where the search now tries {rate:.3g}: "
            "its settings were changed, or an older version began it; `seqmodel train --force` "
            "starts over"
        )
