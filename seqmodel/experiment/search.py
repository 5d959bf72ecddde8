"""The search of one cell: its trials, what chooses their settings, and which go on.

A search with pruning has two stages: all trials are trained for a few epochs, then the best of them
to completion. This is successive halving (Jamieson and Talwalkar 2016) with a single cut. Optuna's
own pruners judge a trial before later ones begin and never resume one, so the first trials always
go on; and learning rates that are far too low are the slowest of all to stop improving.

`seqmodel train --lr search` is such a search of one cell, whose state is kept in memory: all its
draws are on disk, so a resumed search replays them with the same results. Its folder is a run
folder with the files of the best draw, and all draws under draws/.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial

from seqmodel.config import TRIALS, Config, read_config_file, search_of, to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.experiment.plan import (
    LOG_RATE_RANGE,
    Cell,
    Plan,
    Source,
    Variant,
    default_space,
    finals,
)
from seqmodel.experiment.studies import ENDED, METRICS, Studies, Study
from seqmodel.files import read_bytes, write_file
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import model_tensors, save_checkpoint
from seqmodel.training.loop import Listener, Trainer, begin_run, train_run
from seqmodel.training.state import DivergedError
from seqmodel.training.trackers import Tracker, followed

RANDOM = 5
"""Trials before TPE takes over."""


def paper_rates(seed: int, count: int) -> list[float]:
    """The rates to try: all units try the same ones, and a longer search tries more of them."""
    random = np.random.default_rng([seed, TRIALS])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, count))]


def first_look(config: Config) -> int:
    """The epoch after which the trials are compared: a quarter of the way, at most the twentieth.

    Earlier, the running mean of the weights lags behind them and low rates look worse than they
    are.
    """
    return max(1, min(config.epochs // 4, 20))


@dataclass(frozen=True)
class Run:
    """One run of a cell, about to be trained."""

    cell: Cell
    trial: Trial
    """What takes its figures: one trial up to a first look, another from there."""
    kind: str
    """trial, final or seed."""
    number: int
    """From 0; a final has its trial's."""
    found: Mapping[str, Any]
    """The settings that the search has chosen."""
    look: int | None = None
    """The epoch after which it ends for a first look."""


def run_next(
    studies: Studies, cell: Cell, study: Study, settings: Config, train: Callable[[Run], float]
) -> None:
    """Run the next trial, final or seed of a cell, in its `study` of these.

    `settings` are those before the search; `train` returns the figure of a run, see `train_trial`.
    """
    look = first_look(settings) if study.kind == "trial" and studies.plan.finals else None

    def objective(trial: Trial, index: int) -> float:
        number, found = index, dict[str, Any]()
        if study.kind == "trial":
            found = _drawn(trial, index, studies.plan, settings)
        elif study.kind == "final":
            number = studies.finalists(cell)[index]
            found = studies.trials(cell).indexed()[number].params
        elif winner := studies.winner(cell):
            found = winner[1].params
        return train(Run(cell, trial, study.kind, number, found, look))

    study.run_next(objective)


def _drawn(trial: Trial, index: int, plan: Plan, settings: Config) -> dict[str, Any]:
    """The settings that the search tries in the trial of this index.

    paper: the paper's rates, in order. tpe: first those of `settings` that are in range, then what
    TPE draws. It is seeded by the index: one process alone repeats itself exactly; with several, it
    depends on what the others have found so far.
    """
    given: dict[str, Any] = {}
    if plan.search == "paper":
        given = {"learning_rate": paper_rates(settings.seed, index + 1)[index]}
    elif index == 0:
        values = {name: getattr(settings, name) for name in plan.space}
        given = {k: v for k, v in values.items() if v is not None and v in plan.space[k]}
    seed = np.random.SeedSequence([settings.seed, index]).generate_state(1)[0]
    trial.study.sampler = TPESampler(n_startup_trials=RANDOM, seed=int(seed), constant_liar=True)
    return {name: each.suggested(trial, name, given.get(name)) for name, each in plan.space.items()}


def train_trial(
    trial: Trial, config: Config, dataset: Dataset, folder: Path, look: int | None, **others: Any
) -> float:
    """Train the run of a trial, which notes how it ended; returns its best figure on valid.

    With `look` it is a trial of the first stage, which ends after that epoch at the latest. Epochs
    that the run already has beyond, in a search that is replayed, do not count, so that the same
    settings follow. A run that diverges counts with its best epoch before that. The `others` and
    errors are those of `train_run`; optuna.TrialPruned, its cause the DivergedError, if it diverges
    before an epoch has ended.
    """
    diverged = None
    try:
        train_run(config, dataset, folder, until=look, **others)
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


def _studies_of(config: Config) -> tuple[Studies, Cell]:
    """The studies of the learning-rate search of `config`, and the one cell that they have."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = "paper" if config.learning_rate_draws else "tpe"
    plan = Plan(
        sources=(Source("", "", ""),),
        variants=(Variant("", {}),),
        settings={},
        search=kind,
        trials=config.trials,
        seeds=0,
        space=default_space(kind, paper=search_of(config.preset) == "paper"),
        finals=finals(kind, config.trials),
    )
    return Studies(optuna.storages.InMemoryStorage(), "draws", plan), plan.cells()[0]


def begin_search(
    config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None = None
) -> Trainer:
    """As `begin_run`, for `search` to resume."""
    _write_start(config, folder, init_from)
    studies, cell = _studies_of(config)
    settings, begun = config.without_search(), []

    def begin(run: Run) -> float:
        drawn = replace(settings, **run.found)
        begun.append(begin_run(drawn, dataset, folder / runs.DRAWS / str(run.number), init_from))
        return 0.0

    run_next(studies, cell, studies.trials(cell), settings, begin)
    return begun[0]


def search(
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    resume: bool = False,
    init_from: runs.Run | None = None,
    listener: Listener | None = None,
    trackers: Mapping[str, Tracker] | None = None,
    again: str | None = None,
    **others: Any,
) -> None:
    """Train `config` at each learning rate of its search and keep the run that is best on valid.

    Arguments, the `others` too, and errors are those of `train_run`; each draw has `trackers` of
    its own. A draw that diverges counts with its best epoch before that; SeqmodelError if no draw
    has completed an epoch.
    """
    listener = listener or Listener()
    again = again or f"continue with `seqmodel train --resume --run {folder}`"
    _write_start(config, folder, init_from)
    if resume and (folder / runs.INIT).is_dir():  # for draws that have yet to begin
        start = runs.load_run(folder / runs.INIT)
        init_from = replace(start, folder=Path(start.began_from or runs.INIT))
    diverged: BaseException | None = None
    studies, cell = _studies_of(config)
    settings = config.without_search()

    def train(run: Run) -> float:
        nonlocal diverged
        place, final = folder / runs.DRAWS / str(run.number), run.kind == "final"
        drawn = replace(settings, **run.found)
        if run.look is not None:
            _check_rate(drawn.learning_rate, place)
        listener.draw(run.number + 1, config.trials, drawn.learning_rate, final)
        try:
            return train_trial(
                run.trial,
                drawn,
                dataset,
                place,
                run.look,
                resume=(resume or final) and (place / runs.LAST).is_file(),
                init_from=init_from,
                listener=followed(listener, trackers or {}, drawn, place),
                again=again,
                **others,
            )
        except optuna.TrialPruned as pruned:
            diverged = pruned.__cause__ or diverged
            raise

    while (study := studies.unfinished(cell)) is not None:
        run_next(studies, cell, study, settings, train)
    trials = studies.trials(cell).indexed()
    ended = trials | studies.finished(cell)
    results = [_result(k, trials[k], last) for k, last in ended.items()]
    lines = "".join(json.dumps(result, allow_nan=False) + "\n" for result in results)
    write_file(folder / runs.DRAWS_INDEX, lines.encode())
    winner = studies.winner(cell)
    if winner is None:
        raise SeqmodelError(f"every learning rate diverged; the last: {diverged}")
    for name in (runs.METRICS, runs.CURVE, runs.LAST, runs.BEST):
        write_file(folder / name, read_bytes(folder / runs.DRAWS / str(winner[0]) / name))


def _write_start(config: Config, folder: Path, init_from: runs.Run | None) -> None:
    """Write what a search starts from: its config, and the initial weights of all draws, if any."""
    if init_from is not None:
        began = replace(init_from, data_sha256=None, began_from=init_from.folder.resolve().name)
        tensors, path = model_tensors(init_from.model), folder / runs.INIT / runs.BEST
        save_checkpoint(path, tensors, began.to_json())
    write_file(folder / runs.CONFIG, to_yaml(config).encode())


def _check_rate(rate: float, folder: Path) -> None:
    """SeqmodelError if a draw was begun with another rate than its search would choose now."""
    path = folder / runs.CONFIG
    if not path.is_file():
        return
    begun = Config(**read_config_file(path)).learning_rate
    if begun != rate:
        raise SeqmodelError(
            f"{folder} has a learning rate of {begun:.3g}, where the search now tries {rate:.3g}: "
            "its settings were changed, or an older version began it; `seqmodel train --force` "
            "begins again"
        )


def _result(number: int, trial: FrozenTrial, last: FrozenTrial) -> dict[str, Any]:
    """A draw's line in draws.jsonl; `last` is the trial that took its last figures."""
    figures = [line["valid_nats_per_frame"] for line in last.user_attrs[METRICS]]
    return {
        "draw": number,
        "learning_rate": trial.params["learning_rate"],
        "valid_nats_per_frame": min(filter(math.isfinite, figures), default=None),
        "ended": last.user_attrs[ENDED],
    }
