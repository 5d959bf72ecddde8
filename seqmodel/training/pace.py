"""Training speed, and the time left."""

SETTLED = 1.0
"""Seconds of updates before a time left is given: the first few say nothing about the rest."""
VALID_SHARE = 1 / 3
"""Time to score a frame relative to training on it, until a pass over valid has been timed."""


class Pace:
    """Measures the speed of training and of scoring valid.

    The first update is discarded as soon as there is another: it compiles kernels and touches all
    memory for the first time. Each epoch counts half as much as the next, so that a change in the
    machine's speed soon shows.
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._frames, self._seconds = 0, 0.0
        self._valid = 0.0

    def updated(self, frames: int, seconds: float) -> None:
        """Record an update of `frames` that took `seconds`."""
        if self._first is None:
            self._first = frames, seconds
        else:
            self._frames, self._seconds = self._frames + frames, self._seconds + seconds

    def scored(self, frames: int, seconds: float) -> None:
        """Record a pass over valid, of `frames` in `seconds`, which ends an epoch."""
        self._valid = seconds / frames
        self._frames, self._seconds = self._frames // 2, self._seconds / 2

    @property
    def frames_per_second(self) -> float:
        """Of training; 0 before the first update."""
        frames, seconds = (self._frames, self._seconds) if self._frames else self._first or (0, 1.0)
        return frames / seconds

    def seconds_left(self, frames: int, valid_frames: int) -> float | None:
        """To train on `frames` and score `valid_frames`; None while it would be a wild guess."""
        if self._seconds < SETTLED and not self._valid:
            return None
        if not self._frames:
            return None
        a_frame = self._seconds / self._frames
        return frames * a_frame + valid_frames * (self._valid or VALID_SHARE * a_frame)
