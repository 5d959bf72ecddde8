"""When a training looks at valid, its pace, and how often plans of so many minutes are made."""

from dataclasses import dataclass
from math import inf

from seqmodel.config import Config
from seqmodel.data import batches
from seqmodel.data.dataset import Split
from seqmodel.model.sequence import SequenceModel

WORK = 5e12
"""Weights times the unit steps that they make between two looks. A number of updates follows, the
same on any machine, so that the same seed keeps the same best."""
LOOKS = 10
"""In a training of so many minutes there is a look after each such part of them, at the most."""
FIRST = 1 / 50
"""After this share of the minutes the speed is known well enough for a first plan."""
CHECKS = 20
"""How often a plan is checked while it is followed."""
TOLERANCE = 0.02
"""Share of the minutes by which a plan may be off without being made anew."""

SETTLED = 1.0
"""Seconds of updates before a time left is given: the first few say nothing about the rest."""
VALID_SHARE = 1 / 3
"""Time to score a frame relative to training on it, until a pass over valid has been timed."""


@dataclass(frozen=True)
class Interval:
    """The most that lies between two looks at valid; there is always one where an epoch ends."""

    updates: float = inf
    seconds: float = inf

    @classmethod
    def of(cls, config: Config, train: Split, model: SequenceModel) -> "Interval":
        """What `valid_every` says; auto: part of an epoch that takes long, or of the minutes."""
        every = config.valid_every
        if every.endswith("m"):
            return cls(seconds=60 * float(every[:-1]))
        if every != "auto":
            return cls() if every == "epoch" else cls(float(every))
        if config.minutes is not None:
            return cls(seconds=60 * config.minutes / LOOKS)
        steps = train.frames * model.encoder.steps * model.encoder.rows
        looks = int(steps * model.parameter_counts().with_output / WORK)
        if looks < 2:
            return cls()
        plan = batches.shuffled(train.lengths, config.batch_size, config.seed, 0)
        window = window_of(config, model.encoder.steps)
        updates = [-(-int(train.lengths[k].max()) // window) if window else 1 for k in plan]
        return cls(-(-sum(updates) // looks))

    def looks(self, seconds: float, updates: float) -> float:
        """How many an epoch of so many seconds and updates has."""
        return max(1.0, seconds / self.seconds, updates / self.updates)


def window_of(config: Config, steps: int) -> int:
    """Frames of each piece in an update; 0: all."""
    return -(-config.truncate // steps)


class Pace:
    """Measures the speed of training and of scoring valid; what was before a look counts half."""

    def __init__(self) -> None:
        self._frames, self._seconds, self._valid = 0, 0.0, 0.0

    def updated(self, frames: int, seconds: float) -> None:
        self._frames, self._seconds = self._frames + frames, self._seconds + seconds

    def scored(self, frames: int, seconds: float) -> None:
        self._valid = seconds / frames
        self._frames, self._seconds = self._frames // 2, self._seconds / 2

    @property
    def frames_per_second(self) -> float:
        """Of training; 0 before the first update."""
        return self._frames / self._seconds if self._frames else 0.0

    def seconds_left(self, frames: float, valid_frames: float) -> float | None:
        """To train on `frames` and score `valid_frames`; None while it would be a wild guess."""
        if self._seconds < SETTLED and not self._valid:
            return None
        a_frame = self._seconds / self._frames
        return frames * a_frame + valid_frames * (self._valid or VALID_SHARE * a_frame)
