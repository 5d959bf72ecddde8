"""The paper's learning-rate search: runs that differ only in their rate; the best is kept.

A search folder is a run folder with the files of the best draw, and all draws below draws/.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqmodel.config import Config, to_yaml
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.files import read_bytes, write_file
from seqmodel.runs import folder as runs
from seqmodel.training.loop import CPU, Listener, begin_run, train_run
from seqmodel.training.state import DivergedError
from seqmodel.training.stopping import StopRequest

LOG_RATE_RANGE = (-12.0, -6.0)
"""Chung et al. 2014, section 4.3: rates are exp(U(-12, -6)), 6.1e-6 to 2.5e-3."""


def paper_rates(seed: int, count: int) -> list[float]:
    """The rates to try. They depend on nothing else, so all units try the same."""
    random = np.random.default_rng([seed, count])
    return [float(x) for x in np.exp(random.uniform(*LOG_RATE_RANGE, count))]


def learning_rates(config: Config) -> list[float]:
    """Those that a run's search tries."""
    return paper_rates(config.seed, config.learning_rate_draws)


def begin_search(
    config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None = None
) -> None:
    """Write to `folder` a search that has yet to make its first update, to be resumed."""
    write_file(folder / runs.CONFIG, to_yaml(config).encode())
    for draw, place in _draws(config, folder):
        begin_run(draw, dataset, place, init_from)


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
    """Train `config` at each of its `learning_rates` and keep the run that is best on valid.

    Arguments and errors are those of `train_run`. A draw that diverges counts with its best epoch
    before; SeqmodelError where no draw has completed an epoch.
    """
    listener = listener or Listener()
    if init_from is None:
        write_file(folder / runs.CONFIG, to_yaml(config).encode())
    else:  # a draw that starts only after a resume needs the weights too
        begin_search(config, dataset, folder, init_from)
    results: list[dict[str, Any]] = []
    diverged = None
    for k, (draw, place) in enumerate(_draws(config, folder)):
        listener.draw(k + 1, config.learning_rate_draws, draw.learning_rate)
        try:
            train_run(
                draw,
                dataset,
                place,
                device=device,
                resume=resume and (place / runs.LAST).is_file(),
                init_from=init_from,
                listener=listener,
                stop=stop,
            )
        except DivergedError as error:  # this rate is too high; others may not be
            diverged = error
        figures = [line["valid_nats_per_frame"] for line in runs.read_metrics(place)]
        best = min(filter(math.isfinite, figures), default=None)
        results.append(
            {"draw": k, "learning_rate": draw.learning_rate, "valid_nats_per_frame": best}
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


def _draws(config: Config, folder: Path) -> list[tuple[Config, Path]]:
    """Each draw's config, and the folder of its run."""
    return [
        (replace(config, learning_rate=rate, learning_rate_draws=0), folder / runs.DRAWS / str(k))
        for k, rate in enumerate(learning_rates(config))
    ]
