"""The learning-rate search: runs that differ only in their rate; the best is kept.

It tries what an experiment would, see trials.py: the paper's rates, or what TPE suggests from the
earlier draws. These are all on disk, so a resumed search replays them with the same results.

A search folder is a run folder with the files of the best draw, and all draws under draws/.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import Trial, TrialState

from seqmodel.config import Config, search_of, to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.files import read_bytes, write_file
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import save_checkpoint
from seqmodel.runs.content import checkpoint_content, model_tensors
from seqmodel.training.loop import CPU, Listener, Trainer, begin_run
from seqmodel.training.space import default_space
from seqmodel.training.stopping import StopRequest
from seqmodel.training.trials import ENDED, strategy, train_trial


def begin_search(
    config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None = None
) -> Trainer:
    """Write to `folder` a search that has yet to make its first update; `search` resumes it.

    Returns the trainer that would make that update.
    """
    _write_start(config, folder, init_from)
    _, draw, place = next(_draws(config, folder))
    return begin_run(draw, dataset, place, init_from)


def search(
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    device: torch.device = CPU,
    resume: bool = False,
    init_from: runs.Run | None = None,
    listener: Listener | None = None,
    stop: StopRequest | None = None,
) -> None:
    """Train `config` at each learning rate of its search and keep the run that is best on valid.

    Arguments and errors are those of `train_run`. A draw that diverges counts with its best epoch
    before that; SeqmodelError if no draw has completed an epoch.
    """
    listener = listener or Listener()
    _write_start(config, folder, init_from)
    if resume and (folder / runs.INIT).is_dir():  # for draws that have yet to begin
        init_from = runs.load_run(folder / runs.INIT)
    results: list[dict[str, Any]] = []
    diverged: BaseException | None = None
    for trial, draw, place in _draws(config, folder):
        listener.draw(trial.number + 1, config.trials, draw.learning_rate)
        try:
            nats = train_trial(
                trial,
                draw,
                dataset,
                place,
                device=device,
                resume=resume and (place / runs.LAST).is_file(),
                init_from=init_from,
                listener=listener,
                stop=stop,
            )
            trial.study.tell(trial, nats)
        except optuna.TrialPruned as pruned:
            trial.study.tell(trial, state=TrialState.PRUNED)
            diverged = pruned.__cause__
        figures = [line["valid_nats_per_frame"] for line in runs.read_metrics(place)]
        results.append(
            {
                "draw": trial.number,
                "learning_rate": draw.learning_rate,
                "valid_nats_per_frame": min(filter(math.isfinite, figures), default=None),
                "ended": trial.user_attrs[ENDED],
            }
        )
    lines = "".join(json.dumps(result, allow_nan=False) + "\n" for result in results)
    write_file(folder / runs.DRAWS_INDEX, lines.encode())
    scored = [result for result in results if result["valid_nats_per_frame"] is not None]
    if not scored:
        raise SeqmodelError(f"every learning rate diverged; the last: {diverged}")
    winner = min(scored, key=lambda result: result["valid_nats_per_frame"])
    for name in (runs.METRICS, runs.CURVE, runs.LAST, runs.BEST):
        source = folder / runs.DRAWS / str(winner["draw"]) / name
        write_file(folder / name, read_bytes(source))


def _write_start(config: Config, folder: Path, init_from: runs.Run | None) -> None:
    """Write what a search starts from: its config, and the initial weights of all draws, if any."""
    if init_from is not None:
        made, longest = init_from.config, init_from.longest_piece
        content = checkpoint_content(
            made, init_from.frame, epoch=init_from.epoch, longest_piece=longest
        )
        save_checkpoint(folder / runs.INIT / runs.BEST, model_tensors(init_from.model), content)
    write_file(folder / runs.CONFIG, to_yaml(config).encode())


def _draws(config: Config, folder: Path) -> Iterator[tuple[Trial, Config, Path]]:
    """Each draw's trial, config and run folder; the results reported so far decide the next."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    kind = "paper" if config.learning_rate_draws else "tpe"
    rates = default_space(kind, paper=search_of(config.preset) == "paper")["learning_rate"]
    for k in range(config.trials):
        study.sampler, study.pruner = strategy(
            kind, config, config.trials, lambda: range(len(study.trials))
        )
        trial = study.ask()
        rate = float(rates.suggested(trial, "learning_rate"))
        draw = replace(config.without_search(), learning_rate=rate)
        yield trial, draw, folder / runs.DRAWS / str(k)
