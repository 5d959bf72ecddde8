"""Piano-rolls as lists of notes."""

import re

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import LOWEST_PITCH
from seqmodel.media.music.onsets import sounded, sounding, struck

NOTE_NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")


def note_name(pitch: int) -> str:
    """C4 for 60."""
    return f"{NOTE_NAMES[pitch % 12]}{pitch // 12 - 1}"


def pitch_of(name: str) -> int:
    """60 for C4, c4, B#3 or 60; ValueError for what is no note."""
    if name.strip().isdecimal():
        return int(name)
    found = re.fullmatch(r"\s*(\D+?)(-?\d)\s*", name)
    if found is None:
        raise ValueError(f"{name!r} is no note")
    return 12 * (int(found[2]) + 1) + semitones_above_c(found[1])


def semitones_above_c(name: str) -> int:
    """3 for Eb, eb or D#, from -1 for Cb to 12 for B#; ValueError for what names no note."""
    found = re.fullmatch(r"([A-Ga-g])([#b]?)", name)
    if found is None:
        raise ValueError(f"{name!r} is no note")
    return NOTE_NAMES.index(found[1].upper()) + {"#": 1, "b": -1, "": 0}[found[2]]


def given_notes(notes: NDArray[np.int64], given: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of `notes_of` frames (N, 3) begin in what is given (T, 88): (N,)."""
    return given[notes[:, 0], notes[:, 2] - LOWEST_PITCH]


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
