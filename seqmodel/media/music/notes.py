"""Piano-rolls as lists of notes."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import LOWEST_PITCH, Grid
from seqmodel.media.music.onsets import sounded, sounding, struck

ON_BEAT, OFF_BEAT, NO_BEAT = 92, 72, 80
"""MIDI velocities: a player stresses beats; frames of real time have none."""


def notes_of(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The notes of frames (T, 88) as rows (N, 3): first frame, frame after the last, MIDI pitch.

    Consecutive frames of a pitch are one note; with onsets, (T, 176), each onset begins a new one.
    Notes are sorted by first frame, then by pitch.
    """
    closed = np.pad(frames, ((0, 1), (0, 0)))  # what still sounds ends after the last frame
    begins = struck(closed)
    ends = sounded(closed) & (begins | (sounding(closed) == 0))
    # Both are sorted by pitch, then frame: the k-th begin and the k-th end are of the same note.
    pitch, begin = np.nonzero(begins.T)
    _, end = np.nonzero(ends.T)
    notes = np.stack([begin, end, pitch + LOWEST_PITCH], axis=1)
    return notes[np.lexsort((pitch, begin))]


def velocities(notes: NDArray[np.int64], grid: Grid) -> NDArray[np.int64]:
    """The MIDI velocity (N,) of each of `notes_of`, louder where it begins on a beat."""
    if grid.steps_per_beat is None:
        return np.full(len(notes), NO_BEAT)
    return np.where(notes[:, 0] % grid.steps_per_beat == 0, ON_BEAT, OFF_BEAT)
