"""How fast a training goes, and how long what is left of it will take."""

SETTLED = 1.0
"""Seconds of updates before a time left is told: the first few say nothing of the rest."""
VALID_SHARE = 1 / 3
"""Time to score a frame in that to train on it, as long as no pass over valid was timed."""


class Pace:
    """Frames per second, of training and of scoring valid.

    The first update is forgotten as soon as there is another: it compiles kernels and touches all
    memory for the first time. An epoch counts half as much as the next, so that a machine that
    became slower or faster is soon noticed.
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._frames, self._seconds = 0, 0.0
        self._valid = 0.0

    def updated(self, frames: int, seconds: float) -> None:
        """An update took `seconds` for its `frames`."""
        if self._first is None:
            self._first = frames, seconds
        else:
            self._frames, self._seconds = self._frames + frames, self._seconds + seconds

    def scored(self, frames: int, seconds: float) -> None:
        """A pass over valid took `seconds` for its `frames`, and an epoch ended with it."""
        self._valid = seconds / frames
        self._frames, self._seconds = self._frames // 2, self._seconds / 2

    @property
    def frames_per_second(self) -> float:
        """Of training; 0 before the first update."""
        frames, seconds = (self._frames, self._seconds) if self._frames else self._first or (0, 1.0)
        return frames / seconds

    def seconds_left(self, frames: int, valid_frames: int) -> float | None:
        """For `frames` to train on and `valid_frames` to score; None while it is a wild guess."""
        if self._seconds < SETTLED and not self._valid:
            return None
        if not self._frames:
            return None
        a_frame = self._seconds / self._frames
        return frames * a_frame + valid_frames * (self._valid or VALID_SHARE * a_frame)
