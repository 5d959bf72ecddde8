"""How long each note has sounded or been silent, and how long nothing has changed.

A gated unit counts poorly: once it has held a chord for too long in a sample, it holds it for ever.
So the frames are counted for it, and it reads which thresholds the counts have passed. The counts
depend only on the past, so likelihoods stay exact.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.kernels.code.language import independent, unrolled

SOUNDING = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
"""The note has sounded for at least this many frames since it was last struck."""
SILENT = (1, 2, 4, 8, 16, 32)
"""The note sounded before and has been silent for at most this many frames."""
UNCHANGED = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)
"""No note has been struck or released for at least this many frames."""
AGES = len(SOUNDING) + len(SILENT) + len(UNCHANGED)
"""The number of these inputs per note."""


def ages_size(notes: int) -> int:
    """The number of integers stored per piece; all are 0 before its first frame.

    They hold the number of frames for which each note has sounded or, if negative, been silent
    since it last sounded; and the number of frames for which nothing has changed.
    """
    return notes + 1


def unchanged_before(piece: NDArray[np.uint8], D: int) -> NDArray[np.int64]:
    """The number of unchanged frames (T,) before each frame of a piece (T, D or 2 D).

    Counted as `count_ages` does and models read it: a silent frame precedes the first.
    """
    line = np.concatenate([np.zeros_like(piece[:1]), piece[:-1]])
    changed = (line[1:, :D] != line[:-1, :D]).any(axis=1) | line[1:, D:].any(axis=1)
    frame = np.arange(len(line))
    return frame + 1 - np.maximum.accumulate(np.append(0, changed * frame[1:]))


def count_ages(frame: Any, ages: Any, D: Any, onsets: bool) -> None:
    """Add a frame of zeros and ones to a piece's `ages`. A text of `kernels.code.language`."""
    changes = 0
    for n in independent(D):
        age = ages[n]
        sounds = frame[n] != 0
        begins = sounds and (age <= 0 or (frame[D + n] != 0 if onsets else False))
        ends = age > 0 and not sounds
        changes += begins or ends
        ages[n] = 1 if begins else -1 if ends else age + (age > 0) - (age < 0)
    ages[D] = 1 if changes > 0 else ages[D] + 1


def write_ages(out: Any, ages: Any, n: Any, D: Any) -> None:
    """The inputs (AGES,) of note `n`: 1 for each number in SOUNDING, SILENT and UNCHANGED."""
    age = ages[n]
    for k in unrolled(len(SOUNDING)):
        out[k] = float(age >= SOUNDING[k])
    for k in unrolled(len(SILENT)):
        out[len(SOUNDING) + k] = float(age < 0 and -age <= SILENT[k])
    write_unchanged(out[len(SOUNDING) + len(SILENT) :], ages[D])


def write_unchanged(out: Any, frames: Any) -> None:
    """Whether nothing has changed for at least each number of frames in UNCHANGED."""
    for k in unrolled(len(UNCHANGED)):
        out[k] = float(frames >= UNCHANGED[k])
