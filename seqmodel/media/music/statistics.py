"""Statistics of pieces of music, to compare sampled ones with the data."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import LOWEST_PITCH, NOTES
from seqmodel.media.music.tonic import tonic_of

DISSONANT = (1, 2, 6, 10, 11)
"""Semitones modulo 12: seconds, the tritone, sevenths."""


@dataclass
class Statistics:
    """Five distributions over a set of pieces, value -> count, and figures of each piece."""

    notes_per_frame: Counter[int] = field(default_factory=Counter)
    """How many notes sound in each frame."""
    note_lengths: Counter[int] = field(default_factory=Counter)
    """The length of each note in frames."""
    intervals: Counter[int] = field(default_factory=Counter)
    """Semitones between each pair of notes that sound in a frame."""
    pitch_classes: Counter[int] = field(default_factory=Counter)
    """0 for C to 11 for B, of each note in each frame."""
    melodic_steps: Counter[int] = field(default_factory=Counter)
    """Semitones, up or down, from one highest note to the next."""
    longest_notes: list[int] = field(default_factory=list)
    """The length in frames of each piece's longest note; 0 if it is silent."""
    longest_chords: list[int] = field(default_factory=list)
    """The same for chords, stretches of sound in which no note begins or ends."""
    lengths: list[int] = field(default_factory=list)
    """The length in frames of each piece."""
    last_chords: list[int] = field(default_factory=list)
    """The length in frames of each piece's last chord; 0 if it is silent."""
    on_tonic: list[bool] = field(default_factory=list)
    """Whether each piece's last chord stands on the piece's estimated tonic."""

    @classmethod
    def of(cls, pieces: Iterable[NDArray[np.uint8]]) -> "Statistics":
        """Count pieces (T, 88), or (T, 176) where the second half says which notes are struck."""
        statistics = cls()
        for frames in pieces:
            statistics._add(frames)
        return statistics

    def _add(self, frames: NDArray[np.uint8]) -> None:
        roll, lengths = frames[:, :NOTES], note_lengths(frames)
        self.longest_notes.append(int(lengths.max(initial=0)))
        chords = chord_lengths(frames)
        self.longest_chords.append(int(chords.max(initial=0)))
        self.lengths.append(len(frames))
        self.last_chords.append(int(chords[-1]) if len(chords) else 0)
        self.note_lengths.update(lengths.tolist())
        self.notes_per_frame.update(roll.sum(axis=1, dtype=np.int64).tolist())
        self.melodic_steps.update(melodic_steps(roll).tolist())
        # (88, 88), in how many frames two notes sound together; exact, being far below 2^24.
        together = roll.T.astype(np.float32) @ roll.astype(np.float32)
        pairs = [int(np.trace(together, k)) for k in range(NOTES)]
        self.intervals.update({k: count for k, count in enumerate(pairs) if k and count})
        time = np.bincount((LOWEST_PITCH + np.arange(NOTES)) % 12, np.diag(together), 12)
        self.pitch_classes.update({k: int(n) for k, n in enumerate(time) if n})
        bass = roll[np.flatnonzero(roll.any(axis=1))][-1:].argmax(axis=1)
        self.on_tonic.append(bool(((LOWEST_PITCH + bass) % 12 == tonic_of(time)).any()))

    @property
    def dissonance(self) -> float:
        """The share of `intervals` that are dissonant."""
        clashes = sum(n for k, n in self.intervals.items() if k % 12 in DISSONANT)
        return clashes / max(self.intervals.total(), 1)

    @property
    def voices(self) -> int:
        """The most common number of notes in a non-silent frame; 0 if all are silent."""
        sounding = {k: n for k, n in self.notes_per_frame.items() if k}
        return max(sounding, key=lambda k: sounding[k], default=0)


def note_lengths(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The length in frames of every note of a piece (T, 88) or (T, 176), (notes,).

    A note lasts while it sounds or, if the frames have onsets, until it is struck again.
    """
    # All keys concatenated, with silence between them.
    roll, struck = (np.pad(half, ((1, 1), (0, 0))).T.ravel() for half in _halves(frames))
    begins = np.flatnonzero((roll[1:] > roll[:-1]) | struck[1:])
    ends = np.flatnonzero((roll[1:] < roll[:-1]) | (roll[:-1] & struck[1:]))
    lengths: NDArray[np.int64] = ends - begins
    return lengths


def chord_lengths(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The length in frames of every chord of a piece as in `note_lengths`, (chords,).

    A chord is everything that sounds in a frame, even a single note; it ends where any note begins
    or ends.
    """
    roll, struck = _halves(frames)
    changed = (roll[1:] != roll[:-1]).any(axis=1) | struck[1:].any(axis=1)
    begins = np.append(0, 1 + np.flatnonzero(changed))
    held: NDArray[np.int64] = np.diff(begins, append=len(roll))
    return held[np.flatnonzero(roll[begins].any(axis=1))]


def _halves(frames: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which notes sound and which are struck, (T, 88) each; without onsets, none are struck."""
    roll, struck = frames[:, :NOTES] != 0, frames[:, NOTES:] != 0
    return roll, struck if struck.shape[1] else np.zeros_like(roll)


def melodic_steps(roll: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The steps in the skyline of a roll (T, 88), in semitones (steps,).

    The skyline is the highest note of each frame (Uitdenbogerd, Zobel 1998); a step is a change of
    it between two consecutive frames that both sound.
    """
    highest = NOTES - 1 - roll[:, ::-1].argmax(axis=1)
    steps: NDArray[np.int64] = np.diff(highest)
    sounds = roll.max(axis=1) > 0
    return steps[np.flatnonzero((steps != 0) & sounds[1:] & sounds[:-1])]


def mean(counts: Counter[int]) -> float:
    """The mean of all counted values; 0 if there are none."""
    return sum(value * n for value, n in counts.items()) / max(counts.total(), 1)
