"""Training end to end on the bundled sample, and how its time is divided among the stages.

Between two epochs of the real trainer, an epoch is replayed step by step on a separate model, with
a stopwatch between the stages. What the trainer takes beyond their sum is reported as the rest.
"""

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from seqmodel.bench.clock import Budget, Timing, spread_percent
from seqmodel.bench.music import paper_hidden
from seqmodel.bench.steps import model_gradient
from seqmodel.config import Config, resolve
from seqmodel.data import batches
from seqmodel.data.bundled import sample_dataset
from seqmodel.data.dataset import Split, open_dataset
from seqmodel.kernels.device import one_thread
from seqmodel.model.build import build_model
from seqmodel.training.average import make_average
from seqmodel.training.loop import Listener, Trainer
from seqmodel.training.noise import weight_noise
from seqmodel.training.optimizer import make_optimizer, rescale_gradient
from seqmodel.training.stopping import InterruptError, StopRequest

BATCH = 16
# More epochs than fit into any budget.
EPOCHS = 100_000
STAGES = ("forward_backward", "weight_noise", "optimizer", "batching")


class Replay:
    """Replays epochs of a config and times each stage of their updates."""

    def __init__(self, config: Config, split: Split) -> None:
        self.config, self.split = config, split
        self.model = build_model(config, split.frame)
        self.weights = list(self.model.parameters())
        self.optimizer = make_optimizer(self.model, config)
        self.average = make_average(self.model, config)

    def epoch(self, number: int) -> dict[str, float]:
        """The seconds of each of `STAGES`, summed over one epoch's updates."""
        config, split = self.config, self.split
        seconds, last = dict.fromkeys(STAGES, 0.0), time.perf_counter()

        def lap(stage: str) -> None:
            nonlocal last
            now = time.perf_counter()
            seconds[stage] += now - last
            last = now

        for indices in batches.shuffled(split.lengths, config.batch_size, config.seed, number):
            batch = batches.load(split, indices)
            frames = torch.from_numpy(batch.frames)
            lap("batching")
            with weight_noise(self.model, config.weight_noise):
                lap("weight_noise")
                model_gradient(self.model, self.weights, frames, batch.lengths)
                lap("forward_backward")
            lap("weight_noise")
            with one_thread():
                rescale_gradient(self.weights, config.clip)
                self.optimizer.step(config.learning_rate)
                if self.average is not None:
                    self.average.update()
            lap("optimizer")
        return seconds


def measure_training(unit: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Train the unit at the paper's size with the default preset, but larger batches.

    Returns the median speed of the epochs after the first, and the share of each stage in the
    trainer's median time. The prepared sample and the run are written to `folder`.
    """
    dataset = open_dataset(sample_dataset(folder))
    hidden = paper_hidden(unit)
    config = resolve(
        {
            **{"unit": unit, "hidden": hidden, "batch_size": BATCH},
            **{"epochs": EPOCHS, "patience": EPOCHS},
        }
    )
    trainer, stop = Trainer(config, dataset, folder / unit), StopRequest()
    replay, budget = Replay(config, trainer.train), Budget(seconds)
    epochs: list[float] = []
    played: list[dict[str, float]] = []

    def heard(metrics: dict[str, Any], is_best: bool) -> None:
        stages = replay.epoch(metrics["epoch"])
        if metrics["epoch"] > 1:  # the first compiles code
            epochs.append(trainer.train.frames / metrics["frames_per_second"])
            played.append(stages)
        if budget.used_up(len(epochs)):
            stop.signal = signal.SIGTERM

    with suppress(InterruptError):
        trainer.run(Listener(epoch=heard), stop)
    whole = Timing(epochs)
    shares = {
        stage: Timing([stages[stage] for stages in played]).median / whole.median
        for stage in STAGES
    }
    return {
        "unit": unit,
        "hidden": hidden,
        "batch": BATCH,
        "frames_per_second": trainer.train.frames / whole.median,
        "spread_percent": spread_percent(epochs),
        "epochs": len(epochs),
        "shares": {**shares, "rest": 1 - sum(shares.values())},
    }
