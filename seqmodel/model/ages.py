"""How long each note has sounded or been silent, and how long nothing has changed.

A gated unit counts badly: a chord that it has held for too long in a sample, it holds for ever. So
the frames are counted for it, and it reads which thresholds the counts have passed. They depend on
the past alone: likelihoods stay exact.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.kernels.code.language import unrolled

SOUNDING = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
"""A note has sounded at least as many frames since it was last struck."""
SILENT = (1, 2, 4, 8, 16, 32)
"""A note that has sounded before has been silent for at most as many frames."""
UNCHANGED = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)
"""At least as many frames are the same, since a note was last struck or released."""
AGES = len(SOUNDING) + len(SILENT) + len(UNCHANGED)
"""The number of such inputs per note."""


def ages_size(notes: int) -> int:
    """How many integers remember a piece; all are 0 before its first frame.

    They hold for how many frames each note has sounded or, as a negative number, been silent since
    it last did; and for how many nothing has changed.
    """
    return notes + 1


def unchanged_before(piece: NDArray[np.uint8], D: int) -> NDArray[np.int64]:
    """For how many frames nothing had changed before each of a piece (T, D or 2 D): (T,).

    As `count_ages` has it, and models read it: a silent frame precedes the first.
    """
    line = np.concatenate([np.zeros_like(piece[:1]), piece[:-1]])
    changed = (line[1:, :D] != line[:-1, :D]).any(axis=1) | line[1:, D:].any(axis=1)
    frame = np.arange(len(line))
    return frame + 1 - np.maximum.accumulate(np.append(0, changed * frame[1:]))


def count_ages(frame: Any, ages: Any, D: Any, onsets: bool) -> None:
    """Add a frame of zeros and ones to a piece's `ages`. A text of `kernels.code.language`."""
    ages[D] += 1
    for n in range(D):
        age = ages[n]
        if frame[n] != 0:
            again = frame[D + n] != 0 if onsets else False
            ages[n] = 1 if age <= 0 or again else age + 1
            if ages[n] == 1:
                ages[D] = 1
        elif age > 0:
            ages[n] = -1
            ages[D] = 1
        elif age < 0:
            ages[n] = age - 1


def write_ages(to: Any, ages: Any, n: Any, D: Any) -> None:
    """The inputs (AGES,) of note `n`: 1 for each number in SOUNDING, SILENT and UNCHANGED."""
    age = ages[n]
    for k in unrolled(len(SOUNDING)):
        to[k] = float(age >= SOUNDING[k])
    for k in unrolled(len(SILENT)):
        to[len(SOUNDING) + k] = float(age < 0 and -age <= SILENT[k])
    for k in unrolled(len(UNCHANGED)):
        to[len(SOUNDING) + len(SILENT) + k] = float(ages[D] >= UNCHANGED[k])
