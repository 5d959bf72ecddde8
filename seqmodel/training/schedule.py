"""When training looks at valid, its pace, and how often a training in minutes is planned."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import ceil, inf

from seqmodel.config import Config
from seqmodel.data import batches
from seqmodel.data.dataset import Dataset, Split
from seqmodel.model.build import meta_model
from seqmodel.model.sequence import SequenceModel

MIN_UPDATES = {"epochs": 800, "patience": 200}
"""The fewest updates in the default of each. The epochs that suit a large folder make too few of a
small one, which would be predicted worse than by counting (docs/results/tied-model.md)."""
LOOK_WORK = 5e12
"""Weights times unit steps between two looks. This gives a number of updates that is the same on
any machine, so that the same seed keeps the same best."""
LOOKS = 10
"""Training in minutes has a look at least after each of this many parts of them."""
FIRST_PLAN = 1 / 50
"""After this share of the minutes the speed is known well enough for a first plan."""
CHECKS = 20
"""How often a plan is checked."""
TOLERANCE = 0.02
"""Share of the minutes by which a plan may be off before it is replaced."""

MIN_SECONDS = 1.0
"""Seconds of updates before the time left is shown: the first few are not representative."""
VALID_SHARE = 1 / 3
"""Time to score a frame relative to training on it, until a pass over valid has been timed."""


@dataclass(frozen=True)
class Interval:
    """The maximum between two looks at valid; there is always one at the end of an epoch."""

    updates: float = inf
    seconds: float = inf

    @classmethod
    def of(cls, config: Config, train: Split, model: SequenceModel) -> "Interval":
        """The interval of `valid_every`; auto: part of a long epoch, or of the minutes."""
        every = config.valid_every
        if every.endswith("m"):
            return cls(seconds=60 * float(every[:-1]))
        if every != "auto":
            return cls() if every == "epoch" else cls(float(every))
        if config.minutes is not None:
            return cls(seconds=60 * config.minutes / LOOKS)
        steps = train.frames * model.encoder.steps * model.encoder.rows
        looks = int(steps * model.parameter_counts().with_output / LOOK_WORK)
        if looks < 2:
            return cls()
        return cls(-(-_updates_of_epoch(config, train, model) // looks))

    def looks(self, seconds: float, updates: float) -> float:
        """The number of looks in an epoch of this many seconds and updates."""
        return max(1.0, seconds / self.seconds, updates / self.updates)


def with_enough_epochs(config: Config, dataset: Dataset, given: Collection[str]) -> Config:
    """The config with more epochs, and more patience, if its own make fewer than `MIN_UPDATES`.

    What is among the `given` names of settings, which the user chose, remains. SeqmodelError unless
    the dataset can be trained on.
    """
    if "epochs" in given or not config.epochs:
        return config
    pieces = dataset.manifest["splits"]["train"]["pieces"]
    if pieces >= max(MIN_UPDATES.values()) * config.batch_size:
        return config  # an epoch is enough, and the index of so many pieces takes long to read
    dataset.check_trainable()
    updates = _updates_of_epoch(config, dataset["train"], meta_model(config, dataset.frame))
    enough = {
        name: max(getattr(config, name), ceil(least / updates))
        for name, least in MIN_UPDATES.items()
        if name not in given
    }
    return replace(config, **enough)


def _updates_of_epoch(config: Config, train: Split, model: SequenceModel) -> int:
    """The updates that the batches of the first epoch make, window by window."""
    plan = batches.shuffled(train.lengths, config.batch_size, config.seed, 0)
    window = window_of(config, model.encoder.steps)
    return sum(-(-int(train.lengths[k].max()) // window) if window else 1 for k in plan)


def window_of(config: Config, steps: int) -> int:
    """Frames of each piece in an update; 0: all."""
    return -(-config.truncate // steps)


class Pace:
    """Measures the speed of training and of scoring valid; at each look, the past is halved."""

    def __init__(self) -> None:
        self._frames, self._seconds, self._valid = 0, 0.0, 0.0

    def add_update(self, frames: int, seconds: float) -> None:
        self._frames, self._seconds = self._frames + frames, self._seconds + seconds

    def add_scoring(self, frames: int, seconds: float) -> None:
        self._valid = seconds / frames
        self._frames, self._seconds = self._frames // 2, self._seconds / 2

    @property
    def frames_per_second(self) -> float:
        """The speed of training; 0 before the first update."""
        return self._frames / self._seconds if self._frames else 0.0

    def seconds_left(self, frames: float, valid_frames: float) -> float | None:
        """Time to train on `frames` and score `valid_frames`; None while it would be a guess."""
        if self._seconds < MIN_SECONDS and not self._valid:
            return None
        per_frame = self._seconds / self._frames
        return frames * per_frame + valid_frames * (self._valid or VALID_SHARE * per_frame)
