"""The learning-rate search: runs that differ only in their rate; the best is kept.

It tries what an experiment would, see trials.py: the paper's rates, or what TPE suggests from the
earlier draws, of which the best third are then trained to their end. All draws are on disk, so a
resumed search replays them with the same results.

A search folder is a run folder with the files of the best draw, and all draws under draws/.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import Trial, TrialState

from seqmodel.config import Config, read_config_file, search_of, to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.files import read_bytes, write_file
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import model_tensors, save_checkpoint
from seqmodel.training.loop import Listener, Trainer, begin_run
from seqmodel.training.space import default_space, finals
from seqmodel.training.trackers import Tracker, followed
from seqmodel.training.trials import ENDED, SearchSampler, first_look, ranked, train_trial


@dataclass(frozen=True)
class _Draw:
    """A run of the search."""

    number: int
    """From 0."""
    config: Config
    folder: Path
    trial: Trial
    """What takes its figures: one trial up to a first look, another from there."""


def begin_search(
    config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None = None
) -> Trainer:
    """As `begin_run`, for `search` to resume."""
    _write_start(config, folder, init_from)
    draw = next(_draws(config, folder))
    return begin_run(draw.config, dataset, draw.folder, init_from)


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
    kept = finals(_kind(config), config.trials)
    diverged: BaseException | None = None

    def train(draw: _Draw, look: int | None, *, resume: bool) -> None:
        nonlocal diverged
        rate, final = draw.config.learning_rate, kept > 0 and look is None
        listener.draw(draw.number + 1, config.trials, rate, final)
        try:
            nats = train_trial(
                draw.trial,
                draw.config,
                dataset,
                draw.folder,
                look=look,
                resume=resume and (draw.folder / runs.LAST).is_file(),
                init_from=init_from,
                listener=followed(listener, trackers or {}, draw.config, draw.folder),
                again=again,
                **others,
            )
            draw.trial.study.tell(draw.trial, nats)
        except optuna.TrialPruned as pruned:
            draw.trial.study.tell(draw.trial, state=TrialState.PRUNED)
            diverged = pruned.__cause__ or diverged

    draws = []
    for draw in _draws(config, folder):
        if kept:
            _check_rate(draw)
        train(draw, first_look(config) if kept else None, resume=resume)
        draws.append(draw)
    looks = dict(enumerate(draws[0].trial.study.get_trials()))
    for number in ranked(looks)[:kept]:
        draws[number] = replace(draws[number], trial=optuna.create_study().ask())
        train(draws[number], None, resume=True)
    results = [_result(draw) for draw in draws]
    lines = "".join(json.dumps(result, allow_nan=False) + "\n" for result in results)
    write_file(folder / runs.DRAWS_INDEX, lines.encode())
    scored = [result for result in results if result["valid_nats_per_frame"] is not None]
    if not scored:
        raise SeqmodelError(f"every learning rate diverged; the last: {diverged}")
    winner = min(scored, key=lambda result: result["valid_nats_per_frame"])
    for name in (runs.METRICS, runs.CURVE, runs.LAST, runs.BEST):
        source = folder / runs.DRAWS / str(winner["draw"]) / name
        write_file(folder / name, read_bytes(source))


def _check_rate(draw: _Draw) -> None:
    """SeqmodelError if the draw was begun with another rate than its search would choose now."""
    path = draw.folder / runs.CONFIG
    if not path.is_file():
        return
    rate = Config(**read_config_file(path)).learning_rate
    if rate != draw.config.learning_rate:
        raise SeqmodelError(
            f"{draw.folder} has a learning rate of {rate:.3g}, where the search now tries "
            f"{draw.config.learning_rate:.3g}: its settings were changed, or an older version "
            "began it; `seqmodel train --force` begins again"
        )


def _result(draw: _Draw) -> dict[str, Any]:
    """A draw's line in draws.jsonl."""
    figures = [line["valid_nats_per_frame"] for line in runs.read_metrics(draw.folder)]
    return {
        "draw": draw.number,
        "learning_rate": draw.config.learning_rate,
        "valid_nats_per_frame": min(filter(math.isfinite, figures), default=None),
        "ended": draw.trial.user_attrs[ENDED],
    }


def _kind(config: Config) -> str:
    return "paper" if config.learning_rate_draws else "tpe"


def _write_start(config: Config, folder: Path, init_from: runs.Run | None) -> None:
    """Write what a search starts from: its config, and the initial weights of all draws, if any."""
    if init_from is not None:
        began = replace(init_from, data_sha256=None, began_from=init_from.folder.resolve().name)
        tensors, path = model_tensors(init_from.model), folder / runs.INIT / runs.BEST
        save_checkpoint(path, tensors, began.to_json())
    write_file(folder / runs.CONFIG, to_yaml(config).encode())


def _draws(config: Config, folder: Path) -> Iterator[_Draw]:
    """The draws of a search; the results reported so far decide the next."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    kind = _kind(config)
    rates = default_space(kind, paper=search_of(config.preset) == "paper")["learning_rate"]
    for k in range(config.trials):
        study.sampler = SearchSampler(kind, config, config.trials, lambda: range(len(study.trials)))
        trial = study.ask()
        rate = float(rates.suggested(trial, "learning_rate"))
        draw = replace(config.without_search(), learning_rate=rate)
        yield _Draw(k, draw, folder / runs.DRAWS / str(k), trial)
