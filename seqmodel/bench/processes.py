"""One update of one model on several processes, and what they spend on telling each other."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
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
from seqmodel.kernels.run.allocator import keep_freed_memory
from seqmodel.media.music.medium import MUSIC
from seqmodel.model.build import with_sizes
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


def cases(seconds: float) -> Iterator[Callable[[], dict[str, Any]]]:
    """`measure` of each model."""
    for settings in MODELS:
        yield partial(measure, settings, seconds)


def measure(settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Time updates of a model, and in them the exchange of gradients, once all have theirs."""
    config = with_sizes(resolve({**settings, "parts": PARTS}, {}, MUSIC.presets), FRAMES)
    with TemporaryDirectory() as folder:
        data = str(sample_dataset(Path(folder)))
        rows = {size: _timed(config, data, size, seconds) for size in PROCESSES}
    return {
        "model": config.model,
        "unit": config.unit,
        "weights": rows[1].pop("weights"),
        "batch": config.batch_size,
        "frames": FRAMES_EACH,
        "parts": PARTS,
        "processes": [
            {
                "processes": size,
                "update_ms": row["update_ms"],
                "exchange_ms": row["exchange_ms"],
                "over_one": rows[1]["update_ms"] / row["update_ms"],
            }
            for size, row in rows.items()
        ],
    }


def _timed(config: Config, data: str, size: int, seconds: float) -> dict[str, float]:
    """The medians of the first process, and how many weights the model has."""
    store = meeting()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_work, args=(rank, size, store.port, config, data, seconds, theirs))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        while not ours.poll(1):
            if not all(process.is_alive() for process in processes):
                raise RuntimeError("a process of the benchmark has ended")
        told: dict[str, float] = ours.recv()
    finally:
        for process in processes:
            process.kill()
            process.join()
    return told


def _work(
    rank: int, size: int, port: int, config: Config, data: str, seconds: float, tell: Connection
) -> None:
    keep_freed_memory()  # as the command line does
    torch.set_num_threads(1)
    if size == 1:
        told = _updates(config, data, Group(), seconds)
    else:
        with joined(rank, size, meeting(port)) as group:
            told = _updates(config, data, group, seconds)
    if rank == 0:
        tell.send(told)


def _updates(config: Config, data: str, group: Group, seconds: float) -> dict[str, float]:
    share = config.parts // group.size
    parts = range(group.rank * share, (group.rank + 1) * share)
    state = TrainingState(config, open_dataset(data)["train"], torch.device("cpu"), parts)
    pieces = config.batch_size // config.parts
    frames = piano_rolls(FRAMES_EACH, pieces).to(torch.uint8).numpy()
    windows = dict.fromkeys(parts, Batch(frames, np.full(pieces, FRAMES_EACH)))
    total, timed = FRAMES_EACH * config.batch_size, _Timed(group)

    def once() -> tuple[float, float]:
        timed.seconds, started = 0.0, time.perf_counter()
        update(state, windows, total, config.learning_rate, timed)
        state.carries.clear()
        return time.perf_counter() - started, timed.seconds

    once()  # compiles
    first = group.all(once()[0])[0]
    rounds = max(LEAST_UPDATES, round(seconds / first))
    whole, exchange = zip(*(once() for _ in range(rounds)), strict=True)
    return {
        "update_ms": 1e3 * statistics.median(whole),
        "exchange_ms": 1e3 * statistics.median(exchange),
        "weights": state.model.parameter_counts().with_output,
    }


class _Timed(Group):
    """A group, and the seconds that its sums take."""

    def __init__(self, group: Group) -> None:
        self._group, self.rank, self.size = group, group.rank, group.size
        self.seconds = 0.0

    def all(self, values: Any) -> list[Any]:
        """See `Group`; this is where a process waits for the others."""
        return self._group.all(values)

    def summed(self, numbers: Tensor) -> Tensor:
        """See `Group`."""
        started = time.perf_counter()
        total = self._group.summed(numbers)
        self.seconds += time.perf_counter() - started
        return total

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """See `Group`."""
        return self._group.gathered(tensors)
