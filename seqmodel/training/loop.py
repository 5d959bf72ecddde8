"""The training loop: epochs, updates, early stopping, and resuming bit for bit.

All randomness is a function of (seed, epoch, update): no generator's state needs saving, and a
resumed run goes on exactly as if it had never stopped.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqmodel.config import Config, to_yaml
from seqmodel.data import batches
from seqmodel.data.batches import Batch
from seqmodel.data.dataset import Dataset
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.files import write_file
from seqmodel.kernels.device import one_thread
from seqmodel.model.build import build_model
from seqmodel.model.carry import Carry
from seqmodel.plots.curves import plot_learning_curve
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.training.loss import window_loss
from seqmodel.training.optimizer import (
    average_tensors,
    learning_rate_at,
    load_average,
    load_optimizer,
    make_average,
    make_optimizer,
    optimizer_tensors,
    rescale_gradient,
    set_learning_rate,
    weight_noise,
)
from seqmodel.training.stopping import InterruptError, StopRequest

CARRY = "carry."
"""Prefix, in a checkpoint, of the state carried between two windows of a batch."""

# Seconds between two savings of the last checkpoint: what a power cut can cost.
SAVE_EVERY = 60.0


class DivergedError(SeqmodelError):
    """The loss or its gradient is no longer a number."""


@dataclass
class Place:
    """How far a run has come: all that resuming needs beside the tensors."""

    epoch: int = 0
    """Epochs that have ended."""
    batch: int = 0
    """Batches of the current epoch that have ended."""
    window: int = 0
    """Windows of the current batch that have ended."""
    update: int = 0
    nats: float = 0.0
    """Summed over the frames trained on in this epoch, at the weights of each moment."""
    frames: int = 0
    learning_rate: float = 0.0
    """Of the last update."""
    best_nats: float = float("inf")
    best_epoch: int = 0
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The epochs that have ended, as in metrics.jsonl."""


@dataclass(frozen=True)
class Tick:
    """What a listener hears after each update, and while valid is scored."""

    epoch: int
    done: int
    """Frames done in this pass."""
    total: int
    """Frames of this pass."""
    nats_per_frame: float | None
    """The epoch's training loss so far; None while valid is scored."""
    frames_per_second: float = 0.0
    seconds_left: float | None = None
    """For all epochs yet to come, if none stops early."""


@dataclass
class Listener:
    """Whom training tells what happens; only the command line prints."""

    tick: Callable[[Tick], None] = lambda tick: None
    epoch: Callable[[dict[str, Any], bool], None] = lambda metrics, is_best: None
    draw: Callable[[int, int, float], None] = lambda number, count, rate: None


class Trainer:
    """One run: a model, its optimizer, its place in the data and its folder."""

    def __init__(self, config: Config, dataset: Dataset, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.frame = dataset.frame
        self.train, self.valid = dataset["train"], dataset["valid"]
        self.place = Place()
        torch.manual_seed(config.seed)
        self.model = build_model(config, self.frame)
        self.model.output.start_at(self.train)
        self.weights = list(self.model.parameters())
        self.optimizer = make_optimizer(self.model, config)
        self.average = make_average(self.model, config)
        self.carry: Carry | None = None
        self._data = dataset.fingerprint()
        self._saved_at = time.monotonic()

    def init_from(self, run: runs.Run) -> None:
        """Start from another run's weights, and from nothing else of it."""
        runs.load_model(self.model, runs.model_tensors(run.model))
        self.average = make_average(self.model, self.config)

    def resume(self) -> None:
        """Take up the run where its last checkpoint left it."""
        tensors, content = load_checkpoint(self.folder / runs.LAST)
        if content["data_sha256"] != self._data:
            raise SeqmodelError(
                f"{self.config.data} is not the dataset that {self.folder} was trained on: "
                "prepare it again as it was, or start a new run with --init-from"
            )
        runs.load_model(self.model, tensors)
        load_optimizer(self.model, self.optimizer, tensors)
        if self.average is not None:
            load_average(self.average, tensors)
        self.place = Place(**content["place"])
        if self.place.window:
            rows = len(self._plan()[self.place.batch])
            count = sum(name.startswith(CARRY) for name in tensors)
            # Cloned, as in _epoch: where a tensor lies in memory decides the last bits of the
            # matrix products that read it.
            self.carry = self.model.start(rows).like(
                [tensors[f"{CARRY}{k}"].clone() for k in range(count)]
            )
        self._write_metrics()  # lines of epochs after the checkpoint are taken back

    def run(self, listener: Listener, stop: StopRequest) -> None:
        """Train until epochs or patience are over; InterruptError after a signal."""
        if not self.place.update:
            self.save()  # from now on a run that is killed can go on
        write_file(self.folder / runs.CONFIG, to_yaml(self.config).encode())
        while not self.finished():
            started, frames_before = time.monotonic(), self.place.frames
            self._epoch(listener, stop)
            seconds = time.monotonic() - started
            self._end_epoch(listener, stop, (self.place.frames - frames_before) / seconds, seconds)
        plot_learning_curve(self.folder / runs.CURVE, self.place.metrics)

    def finished(self) -> bool:
        """Whether all epochs are over, or the best is `patience` epochs old."""
        place = self.place
        stale = place.epoch - place.best_epoch >= self.config.patience
        return place.epoch >= self.config.epochs or stale

    def _plan(self) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
        config = self.config
        return batches.shuffled(
            self.train.lengths, config.batch_size, config.seed, self.place.epoch
        )

    def _epoch(self, listener: Listener, stop: StopRequest) -> None:
        plan, place = self._plan(), self.place
        started, at_start = time.monotonic(), place.frames
        while place.batch < len(plan):
            indices = plan[place.batch]
            keys = None
            if self.config.augment_keys:
                keys = batches.random_variants(
                    self.frame, len(indices), self.config.seed, place.epoch, place.batch
                )
            longest = int(self.train.lengths[indices].max())
            window = self.config.truncate or longest
            for begin in range(place.window * window, longest, window):
                batch = batches.load(self.train, indices, keys, begin=begin, window=window)
                rate = learning_rate_at(
                    self.config, (place.epoch + place.batch / len(plan)) / self.config.epochs
                )
                after = self._update(batch, rate)
                if begin + window < longest:
                    place.window += 1
                    # Cloned: views would keep all of the window alive.
                    self.carry = after.like([t.detach().clone() for t in after.tensors()])
                else:
                    place.batch, place.window, self.carry = place.batch + 1, 0, None
                speed = (place.frames - at_start) / (time.monotonic() - started)
                listener.tick(self._tick(speed))
                self._save_if_due(stop)

    def _update(self, batch: Batch, rate: float) -> Carry:
        """One step down the gradient of a window's mean nats per frame; the carry behind it."""
        place, model = self.place, self.model
        _seed(self.config.seed, place.update)
        frames = torch.from_numpy(batch.frames)
        carry = self.carry or model.start(frames.shape[1])
        self.optimizer.zero_grad()
        with weight_noise(model, self.config.weight_noise):
            loss = window_loss(model, frames, batch.lengths, carry)
            loss.total.backward()  # type: ignore[no-untyped-call]
        nats_per_frame = float(loss.nats)
        with one_thread():
            norm = rescale_gradient(self.weights, self.config.clip)
            if not np.isfinite(nats_per_frame + norm):
                raise DivergedError(
                    f"training diverged at update {place.update} of epoch {place.epoch + 1} "
                    f"(loss {nats_per_frame}); lower --learning-rate, now {rate:.2g}"
                )
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
        place.update += 1
        place.learning_rate = rate
        place.nats += nats_per_frame * loss.frames
        place.frames += loss.frames
        return loss.after

    def _tick(self, speed: float) -> Tick:
        place, total = self.place, self.train.frames
        left = (self.config.epochs - place.epoch) * total - place.frames
        mean = place.nats / place.frames
        return Tick(place.epoch + 1, place.frames, total, mean, speed, left / speed)

    def _end_epoch(
        self, listener: Listener, stop: StopRequest, frames_per_second: float, seconds: float
    ) -> None:
        place = self.place

        def heard(done: int, total: int) -> None:
            listener.tick(Tick(place.epoch + 1, done, total, None))
            self._save_if_due(stop)

        model = self.model if self.average is None else self.average.module
        valid = likelihood(model, self.valid, progress=heard)
        is_best = valid.nats_per_frame < place.best_nats
        metrics = {
            "epoch": place.epoch + 1,
            "updates": place.update,
            "train_nats_per_frame": place.nats / place.frames,
            "valid_nats_per_frame": valid.nats_per_frame,
            **{f"valid_{name}": value for name, value in valid.figures.items()},
            "learning_rate": place.learning_rate,
            "frames_per_second": round(frames_per_second),
            "seconds": round(seconds, 3),
        }
        place.metrics.append(metrics)
        place.epoch, place.batch, place.nats, place.frames = place.epoch + 1, 0, 0.0, 0
        if is_best:
            place.best_nats, place.best_epoch = valid.nats_per_frame, place.epoch
            save_checkpoint(
                self.folder / runs.BEST, runs.model_tensors(model), self._content(place.epoch)
            )
        self.save()
        self._write_metrics()
        listener.epoch(metrics, is_best)

    def _content(self, epoch: int) -> dict[str, Any]:
        return {
            "config": asdict(self.config),
            "media": self.frame.medium.name,
            "frame": self.frame.to_json(),
            "epoch": epoch,
            "longest_piece": int(self.train.lengths.max()),
        }

    def _save_if_due(self, stop: StopRequest) -> None:
        if stop.signal is not None:
            self.save()
            raise InterruptError(
                f"stopped in epoch {self.place.epoch + 1}; the work is saved: go on with "
                f"`seqmodel train --resume --run {self.folder}`",
                stop.signal,
            )
        if time.monotonic() - self._saved_at > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Write the last checkpoint: all that `resume` needs."""
        tensors = {
            **runs.model_tensors(self.model),
            **optimizer_tensors(self.model, self.optimizer),
        }
        if self.average is not None:
            tensors |= average_tensors(self.average)
        if self.carry is not None:
            tensors |= {f"{CARRY}{k}": t for k, t in enumerate(self.carry.tensors())}
        content = {
            **self._content(self.place.epoch),
            "data_sha256": self._data,
            "place": asdict(self.place),
        }
        save_checkpoint(self.folder / runs.LAST, tensors, content)
        self._saved_at = time.monotonic()

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(metrics) + "\n" for metrics in self.place.metrics)
        write_file(self.folder / runs.METRICS, lines.encode())


def _seed(seed: int, update: int) -> None:
    """Seed the generator of noise and dropout, differently for each (seed, update)."""
    digest = hashlib.sha256(f"{seed} {update}".encode()).digest()
    mixed = int.from_bytes(digest[:4])  # torch's generator takes no more than 32 bits
    # torch.manual_seed also leaves a note, with a traceback, for each device that is not in use.
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(mixed)
