"""Piano-rolls as lists of notes."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import LOWEST_PITCH


def notes_of(roll: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The notes of a roll (T, 88) as rows (N, 3): first frame, frame after the last, MIDI pitch.

    Consecutive frames of a pitch are one note. Notes are in order of their beginnings, then of
    their pitches.
    """
    sounding = np.pad(roll.T.astype(bool), ((0, 0), (1, 1)))
    before, now = sounding[:, :-1], sounding[:, 1:]
    # Both in order of pitch, then frame: the k-th beginning and the k-th end are the same note's.
    pitch, begin = np.nonzero(now & ~before)
    _, end = np.nonzero(before & ~now)
    notes = np.stack([begin, end, pitch + LOWEST_PITCH], axis=1)
    return notes[np.lexsort((pitch, begin))]
