"""The training loop: updates, looks at valid, early stopping, checkpoints, resuming bit for bit.

All randomness is a function of (seed, epoch, update): no generator's state needs saving.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.config import Config, to_yaml
from seqmodel.data import batches
from seqmodel.data.batches import Batch
from seqmodel.data.dataset import Dataset, LostError, Split
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.likelihood import BATCH_SIZE, likelihood
from seqmodel.files import write_file
from seqmodel.media.words import epochs_text
from seqmodel.model.sequence import SequenceModel
from seqmodel.plots import plot_learning_curve
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import (
    check_fit,
    check_labels,
    load_checkpoint,
    model_tensors,
    save_checkpoint,
)
from seqmodel.runs.content import (
    BEGAN_FROM,
    DATA_HASH,
    FACTS_HASH,
    PROGRESS,
    Content,
    Progress,
    TimePlan,
    read_content,
)
from seqmodel.runs.files import VALID_PIECES, resume_command
from seqmodel.sampling.sampler import Sampler
from seqmodel.training import schedule
from seqmodel.training.optimizer import learning_rate_at
from seqmodel.training.processes import Group, check_equal_weights
from seqmodel.training.state import (
    DivergedError,
    TrainingState,
    check_resumable,
    check_valid_figure,
    fixed_threads,
)
from seqmodel.training.stopping import InterruptError, StopRequest
from seqmodel.training.trackers import Listener, Tick, Tracker, with_trackers
from seqmodel.training.update import update, window_gradient
from seqmodel.unit_setting import is_text, unit_name

CPU = torch.device("cpu")
DIGITS = 7
"""Significant ones of how many epochs are done: one may have millions of updates."""

LOOK_SHARE, MIN_PIECES = 1 / 10, 8
"""Frames of valid at a look, as a share of those that updates read between two, where there are
looks within epochs; but no fewer pieces than that."""
LOOK_COST = 1 / 20
"""Share of the time that looks within epochs take in a training of so many minutes, at most."""
SCORED_PIECES, SCORED_STEPS = 64, 2**19
"""Of train, at even steps through it: how many, and about how many of their first unit steps."""
INITIAL_FILES = runs.LAST, runs.CONFIG
"""The files of a run that has made no update."""
LOUD_NOISE = 1.0
"""Weight noise above this drowns the weights, most of which are smaller."""


def train_run(
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    device: torch.device = CPU,
    resume: bool = False,
    init_from: runs.Run | None = None,
    listener: Listener | None = None,
    trackers: Mapping[str, Tracker] = {},
    stop: StopRequest | None = None,
    hint: str | None = None,
    group: Group | None = None,
) -> Progress:
    """Train the run that `config` describes in `folder`, at its one learning rate.

    With `resume`, continue from its last checkpoint; else, with `init_from`, start from the weights
    of another run. `hint` is how errors tell the user to continue, by default to resume this run.
    `group` are the processes that train it together, this one the first.

    Returns how far the run has come; its `metrics` hold every look at valid.

    Raises:
        InterruptError, LostError: `stop` was set, or the dataset changed; the work is saved.
        PeerError: another process is gone or stuck; the last checkpoint remains.
        DivergedError: a loss, a gradient or a valid figure is not finite; earlier epochs are kept.
        SeqmodelError: the run cannot be resumed with this config and dataset.
    """
    if trackers:  # which may write to it at once
        folder.mkdir(parents=True, exist_ok=True)
    listener = with_trackers(listener or Listener(), trackers, config, folder)
    try:
        trainer = Trainer(config, dataset, folder, device, hint, group)
        if resume:
            trainer.resume()
        elif init_from is not None:
            trainer.init_from(init_from)
        trainer.run(listener, stop or StopRequest())
    except BaseException as error:
        listener.ended(error)
        raise
    listener.ended(None)
    return trainer.state.progress


def begin_run(
    config: Config, dataset: Dataset, folder: Path, init_from: runs.Run | None = None
) -> "Trainer":
    """Write a run to `folder`, for `train_run` to resume; returns its trainer, before updates."""
    trainer = Trainer(config, dataset, folder)
    trainer.write(runs.CONFIG, to_yaml(config))
    if init_from is not None:
        trainer.init_from(init_from)
    trainer.save()
    return trainer


class Trainer:
    """One run: its state, its data and its folder.

    Of a run that a `group` of processes trains, each has its own; the first has the folder.
    """

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        folder: Path | None,
        device: torch.device = CPU,
        hint: str | None = None,
        group: Group | None = None,
    ) -> None:
        self.train, self.valid = dataset["train"], dataset["valid"]
        self.config, self.folder, self._group = config, folder, group or Group()
        self._hint = hint or f"continue with {resume_command(folder)}"
        self._batches = -(-len(self.train) // config.batch_size)
        self._scored = self.valid
        self._device = device
        self._hashes = {DATA_HASH: dataset.fingerprint()}
        if config.bars or dataset.frame.known_labels:
            self._hashes[FACTS_HASH] = dataset.facts_hash()
        self._origin: str | None = None
        self._pace, self._is_warm, self._is_new = schedule.Pace(), False, True

    @cached_property
    def state(self) -> TrainingState:
        """Built on first use: it is as large as the config says, which may be untrusted."""
        share = self.config.parts // self._group.size
        first = self._group.rank * share
        parts = range(first, first + share)
        return TrainingState(self.config, self.train, self._device, parts, is_new=self._is_new)

    @cached_property
    def _interval(self) -> schedule.Interval:
        return schedule.Interval.of(self.config, self.train, self.state.model)

    def init_from(self, run: runs.Run) -> None:
        """Start from another run's weights and nothing else of it."""
        self._is_new = False
        self.state.load_weights(model_tensors(run.model), self.train)
        self._origin = f"{run.folder.resolve().name}, epoch {epochs_text(run.epoch)}"

    def resume(self, path: Path | None = None) -> None:
        """Continue from the last checkpoint, by default the folder's."""
        path = path or (self.folder or Path()) / runs.LAST
        tensors, values = load_checkpoint(path)
        trained = read_content(values, path)
        check_labels(trained, self.config, self.train.frame, f"the model of {path.parent}")
        check_resumable(self.config, self._hashes, values, path)
        check_fit(self.config, self.train.frame, tensors, path)
        self._is_new = False
        self.state.load(tensors, values.get(PROGRESS), path)
        self._origin = values.get(BEGAN_FROM)
        self._write_metrics()  # without the looks after the checkpoint

    def run(self, listener: Listener, stop: StopRequest) -> None:
        """Train until epochs, patience or minutes run out; see `train_run` for the errors."""
        progress, self._group.stop = self.state.progress, stop
        if not progress.update:
            self._remove(runs.METRICS, runs.BEST, runs.CURVE)  # of a run that this one replaces
            self.save()  # from here on a run that is killed can be resumed
        self.write(runs.CONFIG, to_yaml(self.config))
        stop.immediate_message = self._stop_message()  # until an update has been made
        try:
            with fixed_threads(self.config):
                ended = bool(progress.metrics and listener.resumed(progress.metrics))
                while not (ended or progress.is_over(self.config)):
                    ended = self._to_next_look(listener, stop)
        except DivergedError:
            self._draw_curve()
            if not progress.update:  # nothing to resume
                self._remove(*INITIAL_FILES)
            raise
        except LostError as error:  # between two updates, where batches are read
            if self._group.size > 1:  # the others make the update
                raise
            self.save()
            raise LostError(
                f"{error}; the work is saved: once the data is back, {self._hint}"
            ) from error
        finally:
            stop.immediate_message = None
        self._draw_curve()

    def _to_next_look(self, listener: Listener, stop: StopRequest) -> bool:
        """Train until a look at valid is due, and score it; whether the listener ends the run."""
        progress, updates = self.state.progress, self._updates()
        while not self._look_is_due():
            former = progress.plan
            next(updates)
            stop.immediate_message = None
            listener.tick(self._tick())
            if progress.plan is not None and progress.plan is not former:
                until = progress.plan.until
                listener.planned(until, round(until / self._epochs * progress.update))
            self._save_if_due()
        metrics, is_best = self._score(listener)
        return bool(listener.epoch(metrics, is_best))

    @property
    def _epochs(self) -> float:
        """Epochs done, and the share of frames of this one."""
        progress = self.state.progress
        frames = progress.before + progress.frames
        return _rounded(progress.epoch + frames / self.train.frames)

    def _look_is_due(self) -> bool:
        """Where an epoch or the minutes end, and so often within, but not shortly before that."""
        progress = self.state.progress
        plan, left = progress.plan, self.train.frames - progress.before - progress.frames
        if progress.batch == self._batches or (plan is not None and self._epochs >= plan.until):
            return True
        updates = progress.update - (progress.metrics[-1]["updates"] if progress.metrics else 0)
        interval = self._interval_now()
        due = updates >= interval.updates or progress.seconds >= interval.seconds
        return due and left > progress.frames / 2

    def _plan_if_due(self, before: float) -> None:
        """Plan how many epochs fit into the minutes, and check it every so often.

        The speed is that since the last plan. What is left goes to updates and looks, one of these
        at the end. `before` is the share of the training that was done before the last update.
        """
        progress, share = self.state.progress, self._share()
        total = 60 * (self.config.minutes or 0.0)
        plan, epochs_done, trained = progress.plan, self._epochs, progress.trained
        spent = trained + progress.scoring
        if plan is None:
            if spent < schedule.FIRST_PLAN * total:
                return
            plan, share = TimePlan(until=math.inf), spent / total
        elif share == 1 or int(schedule.CHECKS * before) == int(schedule.CHECKS * share):
            return
        epoch = (trained - plan.seconds) / (epochs_done - plan.at)
        looks = self._looks(epoch)
        if progress.metrics:
            look = progress.scoring / len(progress.metrics)
        else:
            pieces = self._scored_pieces(self.train.frames / looks) / len(self.valid)
            look = schedule.VALID_SHARE * epoch * pieces * self.valid.frames / self.train.frames
        until = epochs_done + max(total - spent - look, 0.0) / (epoch + looks * look)
        if abs(until - plan.until) * (epoch + looks * look) > schedule.TOLERANCE * total:
            progress.plan = TimePlan(epochs_done, share, trained, _rounded(until))

    def _interval_now(self) -> schedule.Interval:
        """What lies between two looks, which take but a part of a training of so many minutes."""
        progress = self.state.progress
        look = progress.scoring / max(len(progress.metrics), 1)
        return replace(self._interval, seconds=max(self._interval.seconds, look / LOOK_COST))

    def _looks(self, seconds: float) -> float:
        """How many there are in an epoch, whose updates take so many seconds."""
        return self._interval_now().looks(seconds, self.state.progress.update / self._epochs)

    def _scored_pieces(self, frames: float) -> int:
        """How many of valid are scored at each look: all, if the first ends an epoch.

        Else as many as are in proportion to the `frames` of train that it comes after.
        """
        pieces, metrics = len(self.valid), self.state.progress.metrics
        if metrics:
            return int(metrics[0].get(VALID_PIECES, pieces))
        if frames == self.train.frames:
            return pieces
        return min(max(int(LOOK_SHARE * frames / self.valid.frames * pieces), MIN_PIECES), pieces)

    def _warm_up(self, indices: NDArray[np.int64]) -> None:
        """Compile and load what an update needs, on two frames of these pieces.

        So no epoch's time depends on what the process has trained before. Nothing else changes: the
        gradient is dropped, and each update seeds all that is random.
        """
        carries, self.state.carries = self.state.carries, {}
        known = self.state.model.known_labels
        some = batches.load(self.train, indices, window=2, known=known)
        window_gradient(self.state, some, 0)
        self.state.carries, self._is_warm = carries, True

    def _updates(self) -> Iterator[None]:
        """Make the updates that the epoch lacks, yielding after each."""
        config, progress = self.config, self.state.progress
        max_window = schedule.window_of(config, self.state.model.encoder.steps)
        plan = batches.shuffled(self.train.lengths, config.batch_size, config.seed, progress.epoch)
        if not self._is_warm and progress.batch < len(plan):
            some = batches.split_batch(self.train.lengths[plan[progress.batch]], config.parts)[0]
            self._warm_up(plan[progress.batch][some])
        while progress.batch < len(plan):
            indices = plan[progress.batch]
            key, variants = (config.seed, progress.epoch, progress.batch), None
            if config.augment_keys:
                variants = batches.random_variants(self.train.frame, len(indices), *key)
            lengths = self.train.lengths[indices]
            longest, parts = int(lengths.max()), batches.split_batch(lengths, config.parts)
            window = max_window or longest
            for begin in range(progress.window * window, longest, window):
                started, share = time.perf_counter(), self._share()
                rate = learning_rate_at(config, share)
                self.state.model.encoder.anneal(rate / (config.learning_rate or 1.0))
                windows = {
                    part: batches.load(
                        self.train,
                        indices[parts[part]],
                        None if variants is None else variants[parts[part]],
                        begin=begin,
                        window=window,
                        known=self.state.model.known_labels,
                    )
                    for part in self.state.parts
                    if lengths[parts[part]].max(initial=0) > begin
                }
                frames = int((lengths - begin).clip(0, window).sum())
                self._update(windows, frames, rate)
                if begin + window < longest:
                    progress.window += 1
                else:
                    progress.batch, progress.window = progress.batch + 1, 0
                    key = config.seed, progress.epoch, progress.batch
                    goes_on = batches.continues(plan, config.carry_over, *key)
                    carries, carried_over = self.state.carries, self.state.model.carried_over
                    self.state.carries = {k: carried_over(c) for k, c in carries.items() if goes_on}
                seconds = self._shared_time(time.perf_counter() - started)
                progress.seconds += seconds
                self._pace.add_update(frames, seconds)
                if config.minutes is not None:
                    self._plan_if_due(share)
                yield

    def _share(self) -> float:
        """Of the training that is done: by the plan of its minutes, or by the batches of epochs."""
        progress = self.state.progress
        if self.config.minutes is not None:
            return progress.plan.share_at(self._epochs) if progress.plan else 0.0
        epochs = self.config.most_epochs(progress.best_epoch)
        return (progress.epoch + progress.batch / self._batches) / epochs

    def _shared_time(self, seconds: float) -> float:
        """As the first process has measured, where anything depends on it."""
        by_clock = self.config.minutes is not None or self._interval.seconds < math.inf
        return float(self._group.all(seconds)[0]) if by_clock else seconds

    def _update(self, windows: Mapping[int, Batch], frames: int, rate: float) -> None:
        progress = self.state.progress
        nats, norm = update(self.state, windows, frames, rate, self._group)
        if not math.isfinite(nats + norm):
            raise DivergedError(
                f"training diverged at update {progress.update} of epoch {progress.epoch + 1} "
                f"(loss {nats / frames}); {self._advice(rate)}"
            )
        progress.update += 1
        progress.learning_rate = rate
        progress.nats += nats
        progress.frames += frames

    def _advice(self, rate: float) -> str:
        """What may have made a loss infinite; before the first step it is not the learning rate."""
        first, unit = not self.state.progress.update, self.config.unit
        grows = f"does h of {unit_name(unit)} grow from step to step without bound?"
        if first and is_text(unit):
            return grows
        if self.config.weight_noise > (0 if first else LOUD_NOISE):
            return f"lower --weight-noise, now {self.config.weight_noise:.2g}"
        if first:
            return "look for damaged pieces in train with `seqmodel inspect`"
        return f"lower --learning-rate, now {rate:.2g}" + f"; or {grows}" * is_text(unit)

    def try_update(self) -> None:
        """Make the first update without saving it; DivergedError if it diverges."""
        next(self._updates())

    def _tick(self) -> Tick:
        progress, total = self.state.progress, self.train.frames
        mean, speed = progress.nats / progress.frames, self._pace.frames_per_second
        done = progress.before + progress.frames
        if self.config.minutes is not None:
            left = max(60 * self.config.minutes - progress.trained - progress.scoring, 0.0)
            return Tick(progress.epoch + 1, done, total, mean, speed, left)
        epochs = self.config.most_epochs(progress.best_epoch) - progress.epoch
        looks = epochs * self._looks(total / speed)
        valid = self._scored_pieces(epochs * total / looks) / len(self.valid) * self.valid.frames
        seconds = self._pace.seconds_left(epochs * total - done, looks * valid)
        return Tick(progress.epoch + 1, done, total, mean, speed, seconds and max(seconds, 0.0))

    def _score(self, listener: Listener) -> tuple[dict[str, Any], bool]:
        """Correct the encoder, score valid; returns the line of metrics, and whether it is best."""
        progress, model = self.state.progress, self.state.scored_model
        pieces, epochs = self._scored_pieces(progress.frames), self._epochs
        if progress.batch == self._batches:
            epochs = progress.epoch + 1
        if len(self._scored) != pieces:
            self._scored = self.valid.evenly_spaced(pieces)

        def report(done: int, total: int) -> None:
            listener.tick(Tick(progress.epoch + 1, done, total, None))
            self._save_if_due()

        started = time.perf_counter()
        if not progress.corrected:
            seed, number = self.config.seed, len(progress.metrics)
            run_free(model, self.train, seed, number, self._save_if_due)
            progress.corrected = model.encoder.free_frames(self.train.frames) is not None
        check_equal_weights(self._group, model)
        # Few pieces have very different lengths, and padding takes time.
        size = self.config.batch_size if pieces < len(self.valid) else BATCH_SIZE
        valid = likelihood(model, self._scored, batch_size=size, progress=report, group=self._group)
        seconds = self._shared_time(time.perf_counter() - started)
        self._pace.add_scoring(self._scored.frames, seconds)
        metrics = {
            "epoch": epochs,
            "updates": progress.update,
            "train_nats_per_frame": progress.nats / progress.frames,
            "valid_nats_per_frame": valid.nats_per_frame,
            **{f"valid_{name}": value for name, value in valid.figures.items()},
            **({VALID_PIECES: pieces} if pieces < len(self.valid) else {}),
            "learning_rate": progress.learning_rate,
            "frames_per_second": round(progress.frames / (progress.seconds or math.inf)),
            "seconds": round(progress.seconds, 3),
        }
        check_valid_figure(metrics)
        progress.metrics.append(metrics)
        progress.before += progress.frames
        if progress.batch == self._batches:
            progress.epoch, progress.batch, progress.before = progress.epoch + 1, 0, 0
        progress.nats, progress.frames, progress.seconds = 0.0, 0, 0.0
        progress.corrected = False
        if self.config.minutes is not None:
            progress.scoring += seconds
        is_best = valid.nats_per_frame < progress.best_nats
        if is_best:
            progress.best_nats, progress.best_epoch = valid.nats_per_frame, epochs
            content = self._content() | {"epoch": epochs}
            self._write_checkpoint(runs.BEST, model_tensors(model), content)
        self.save()
        self._write_metrics()
        return metrics, is_best

    def _save_if_due(self) -> None:
        if (signal := self._group.signal) is not None:
            self.save()
            raise InterruptError(self._stop_message(), signal)
        if self._group.save_due:
            self.save()

    def _stop_message(self) -> str:
        return f"stopped in epoch {self.state.progress.epoch + 1}; the work is saved: {self._hint}"

    def save(self) -> None:
        """Write the last checkpoint, with all that `resume` needs."""
        content = {**self._content(), **self._hashes, PROGRESS: self.state.progress.to_json()}
        carried = self._group.gather_tensors(self.state.carry_tensors())
        self._write_checkpoint(runs.LAST, self.state.tensors() | carried, content)
        self._group.saved()

    def write(self, name: str, text: str) -> None:
        """Write a file of the run, if it is this process that has the folder."""
        if self.folder is not None:
            write_file(self.folder / name, text.encode())

    def _write_checkpoint(self, name: str, tensors: Mapping[str, Tensor], content: Any) -> None:
        if self.folder is None:
            return
        config = self.folder / runs.CONFIG
        if self.state.progress.update and not config.is_file():  # the folder would come back
            raise SeqmodelError(f"{config} has gone; if the run was renamed, resume it there")
        save_checkpoint(self.folder / name, tensors, content)

    def _write_metrics(self) -> None:
        lines = (json.dumps(line, allow_nan=False) for line in self.state.progress.metrics)
        self.write(runs.METRICS, "".join(f"{line}\n" for line in lines))

    def _draw_curve(self) -> None:
        if self.folder is not None and self.state.progress.metrics:
            plot_learning_curve(self.folder / runs.CURVE, self.state.progress.metrics)

    def _remove(self, *names: str) -> None:
        if self.folder is not None:
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    def _content(self) -> dict[str, Any]:
        epoch, longest = self.state.progress.epoch, int(self.train.lengths.max())
        content = Content(self.config, self.train.frame, epoch, longest, began_from=self._origin)
        return content.to_json()


def run_free(
    model: SequenceModel, train: Split, seed: int, number: int, on_chunk: Callable[[], None]
) -> None:
    """Let the encoder correct itself by what the model draws, if it does; see `Encoder.correct`.

    That depends on the model, the seed and the look's number; models without compiled draw, which
    would take hours, draw nothing. `on_chunk` is called after every few frames.
    """
    frames = model.encoder.free_frames(train.frames)
    if frames is None:
        return
    sampler, chunks = Sampler(model, guidance=1.0), []
    if frames and sampler.is_compiled:
        for chunk in sampler.piece(frames, seed=seed, number=number, shortest=math.inf):
            chunks.append(chunk)
            on_chunk()
    some = train.beginnings(SCORED_PIECES, -(-SCORED_STEPS // model.encoder.steps))
    free = np.concatenate(chunks) if chunks else None
    model.encoder.correct(free, lambda: likelihood(model, some).nats_per_frame)


def _rounded(epochs: float) -> float:
    return float(f"{epochs:.{DIGITS}g}")
