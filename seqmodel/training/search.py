"""The paper's learning-rate search: so many runs, each with a rate of its own; the best is kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seqmodel.config import Config, to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.files import read_bytes, write_file
from seqmodel.runs import folder as runs
from seqmodel.training.loop import DivergedError, Listener, Trainer
from seqmodel.training.stopping import StopRequest

DRAWS = "draws"
"""Subfolder with one run folder for each rate."""
DRAWS_INDEX = "draws.jsonl"
LOG_RATE_RANGE = (-12.0, -6.0)
"""Chung et al. 2014, section 4.3: rates are exp(U(-12, -6)), 6.1e-6 to 2.5e-3."""


def learning_rates(config: Config) -> list[float]:
    """The rates to try, the same for the same seed."""
    random = np.random.default_rng([config.seed, config.learning_rate_draws])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, config.learning_rate_draws))]


def begin(config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None) -> None:
    """Write to `folder` the run that `config` describes before its first update, to be resumed."""
    write_file(folder / runs.CONFIG, to_yaml(config).encode())
    places = _draws(config, folder) if config.learning_rate_draws else [(config, folder)]
    for draw, place in places:
        trainer = Trainer(draw, dataset, place)
        if init_from is not None:
            trainer.init_from(init_from)
        trainer.save()


def train(
    config: Config,
    dataset: Dataset,
    folder: Path,
    listener: Listener,
    stop: StopRequest,
    *,
    resume: bool = False,
    init_from: runs.Run | None = None,
) -> None:
    """Train the run that `config` describes in `folder`, searching the learning rate if it says so.

    With `resume` an unfinished run is taken up where it was. InterruptError after a signal.
    """
    if not config.learning_rate_draws:
        _train_once(config, dataset, folder, listener, stop, resume=resume, init_from=init_from)
        return
    if init_from is None:
        write_file(folder / runs.CONFIG, to_yaml(config).encode())
    else:  # a draw that begins only after a resume must know its start too
        begin(config, dataset, folder, init_from)
    results: list[dict[str, Any]] = []
    for k, (draw, place) in enumerate(_draws(config, folder)):
        rate = draw.learning_rate
        listener.draw(k + 1, config.learning_rate_draws, rate)
        started = resume and (place / runs.LAST).is_file()
        result = {"draw": k, "learning_rate": rate, "valid_nats_per_frame": None}
        try:
            _train_once(draw, dataset, place, listener, stop, resume=started, init_from=init_from)
            metrics = runs.read_metrics(place)
            result["valid_nats_per_frame"] = min(line["valid_nats_per_frame"] for line in metrics)
        except DivergedError as error:  # this rate was too high; the search is for one that is not
            diverged = error
        results.append(result)
    lines = "".join(json.dumps(result) + "\n" for result in results)
    write_file(folder / DRAWS_INDEX, lines.encode())
    sound = [result for result in results if result["valid_nats_per_frame"] is not None]
    if not sound:
        raise SeqmodelError(f"every learning rate diverged; the last: {diverged}")
    winner = min(sound, key=lambda result: result["valid_nats_per_frame"])
    for name in (runs.METRICS, runs.CURVE, runs.LAST, runs.BEST):
        source = folder / DRAWS / str(winner["draw"]) / name
        write_file(folder / name, read_bytes(source))


def _draws(config: Config, folder: Path) -> list[tuple[Config, Path]]:
    """The config of each draw of a search, and where its run lies."""
    return [
        (replace(config, learning_rate=rate, learning_rate_draws=0), folder / DRAWS / str(k))
        for k, rate in enumerate(learning_rates(config))
    ]


def _train_once(
    config: Config,
    dataset: Dataset,
    folder: Path,
    listener: Listener,
    stop: StopRequest,
    *,
    resume: bool,
    init_from: runs.Run | None,
) -> None:
    trainer = Trainer(config, dataset, folder)
    if resume:
        trainer.resume()
    elif init_from is not None:
        trainer.init_from(init_from)
    trainer.run(listener, stop)
