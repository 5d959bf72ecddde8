"""One update of one model on several processes, and what they spend on telling each other."""

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodel.bench.models import piano_rolls
from seqmodel.config import Config, resolve
from seqmodel.data.batches import Batch
from seqmodel.data.bundled import FRAMES, sample_dataset
from seqmodel.data.dataset import open_dataset
from seqmodel.kernels.run.machine import keep_freed_memory
from seqmodel.media.music.medium import MUSIC
from seqmodel.model.build import outline, with_sizes
from seqmodel.training.processes import Group, joined, meeting
from seqmodel.training.state import TrainingState
from seqmodel.training.update import update

PARTS = 4
PROCESSES = (1, 2, 4)
MODELS: tuple[dict[str, Any], ...] = (
    {"batch_size": 4},
    *(
        {"model": "frame-wise", "unit": "lstm", "params": n, "batch_size": 16}
        for n in (300_000, 1_200_000, 5_000_000)
    ),
)
"""The default, and lstms over whole frames."""
FRAMES_EACH = 160
"""In a window."""
LEAST_UPDATES = 5


def rows(seconds: float) -> Iterator[dict[str, Any]]:
    """`measure` of each model."""
    for settings in MODELS:
        yield measure(settings, seconds)


def measure(settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Time updates of a model, and in them the exchange of gradients, once all have theirs."""
    config = with_sizes(resolve({**settings, "parts": PARTS}, {}, MUSIC.presets), FRAMES)
    with TemporaryDirectory() as folder:
        data = str(sample_dataset(Path(folder)))
        timed = [_timed(config, data, size, seconds) for size in PROCESSES]
    return {
        "model": config.model,
        "unit": config.unit,
        "weights": outline(config, FRAMES).parameter_counts().with_output,
        "batch": config.batch_size,
        "frames": FRAMES_EACH,
        "parts": PARTS,
        "processes": [
            {**row, "over_one": timed[0]["update_ms"] / row["update_ms"]} for row in timed
        ],
    }


def _timed(config: Config, data: str, size: int, seconds: float) -> dict[str, float]:
    """The medians of the first process."""
    store, spawn = meeting(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(size, spawn) as pool:
        arguments = size, store.port, config, data, seconds
        first, *_ = [pool.submit(_work, rank, *arguments) for rank in range(size)]
        return first.result()


def _work(
    rank: int, size: int, port: int, config: Config, data: str, seconds: float
) -> dict[str, float]:
    keep_freed_memory()  # as the command line does
    torch.set_num_threads(1)
    if size == 1:
        return _updates(config, data, Group(), seconds)
    with joined(rank, size, meeting(port)) as group:
        return _updates(config, data, group, seconds)


def _updates(config: Config, data: str, group: Group, seconds: float) -> dict[str, float]:
    share = config.parts // group.size
    parts = range(group.rank * share, (group.rank + 1) * share)
    state = TrainingState(config, open_dataset(data)["train"], torch.device("cpu"), parts)
    pieces = config.batch_size // config.parts
    frames = piano_rolls(FRAMES_EACH, pieces).to(torch.uint8).numpy()
    windows = dict.fromkeys(parts, Batch(frames, np.full(pieces, FRAMES_EACH)))
    total, summed, spent = FRAMES_EACH * config.batch_size, group.summed, 0.0

    def timed(numbers: Tensor) -> Tensor:
        nonlocal spent
        started = time.perf_counter()
        numbers = summed(numbers)
        spent += time.perf_counter() - started
        return numbers

    def once() -> tuple[float, float]:
        nonlocal spent
        spent, started = 0.0, time.perf_counter()
        update(state, windows, total, config.learning_rate, group)
        state.carries.clear()
        return time.perf_counter() - started, spent

    group.summed = timed  # type: ignore[method-assign]
    once()  # compiles
    first = group.all(once()[0])[0]
    rounds = max(LEAST_UPDATES, round(seconds / first))
    whole, exchange = zip(*(once() for _ in range(rounds)), strict=True)
    return {
        "processes": group.size,
        "update_ms": 1e3 * statistics.median(whole),
        "exchange_ms": 1e3 * statistics.median(exchange),
    }
