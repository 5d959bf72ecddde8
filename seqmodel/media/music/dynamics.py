"""How loud notes are, by rule: nobody plays every note alike.

A note's MIDI velocity is 68, plus
- its place in the bar: 14 on the first beat, 9 in the middle of a bar of four quarter notes, 6 on
  the other beats, and 2 halfway between two; none of it where frames are of real time;
- its voice: 10 if nothing sounds above it where it begins, else 4 if nothing sounds below it;
- its place in the phrase, of four bars: 8 sin(pi p) where p goes from 0 to 1, an arch.

Friberg, Bresin and Sundberg (2006) describe such rules of performance.
"""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import LOWEST_PITCH, NOTES, Grid
from seqmodel.media.music.onsets import sounding

QUIETEST = 68
DOWNBEAT, MIDDLE, BEAT, HALFWAY = 14, 9, 6, 2
MELODY, BASS = 10, 4
ARCH = 8
LOUDEST = QUIETEST + DOWNBEAT + MELODY + ARCH
"""No note is louder."""
FLAT = 80
"""The velocity of all notes that are played alike."""

COMMON_TIME = 4, 4
PHRASE_BARS = 4
PHRASE_SECONDS = 8.0
"""Of a phrase in real time."""


def velocities(
    notes: NDArray[np.int64],
    frames: NDArray[np.uint8],
    grid: Grid,
    *,
    meter: tuple[int, int] | None = None,
    flat: bool = False,
) -> NDArray[np.int64]:
    """The MIDI velocity (N,) of each of `notes_of(frames)`, in bars of `meter`, else 4 over 4."""
    if flat:
        return np.full(len(notes), FLAT)
    begin, key = notes[:, 0], notes[:, 2] - LOWEST_PITCH
    roll = sounding(frames)
    top, bottom = NOTES - 1 - roll[:, ::-1].argmax(axis=1), roll.argmax(axis=1)
    voice = np.where(key == top[begin], MELODY, np.where(key == bottom[begin], BASS, 0))
    if grid.steps_per_beat is None:
        metre, per_phrase = np.zeros_like(begin), PHRASE_SECONDS / grid.seconds_per_frame(1.0)
    else:
        beats, of = meter or COMMON_TIME
        bar = 4 * beats / of * grid.steps_per_beat
        metre, per_phrase = _metre(begin, grid.steps_per_beat, bar), PHRASE_BARS * bar
    arch = np.rint(ARCH * np.sin(np.pi * (begin % per_phrase) / per_phrase))
    louder: NDArray[np.int64] = QUIETEST + metre + voice + arch.astype(np.int64)
    return louder


def _metre(begin: NDArray[np.int64], steps: int, bar: float) -> NDArray[np.int64]:
    """What the place in a bar of so many frames adds, for notes that begin at these."""
    place = begin % bar
    middle = (2 * place == bar) & (bar == 4 * steps)
    places = [place == 0, middle, place % steps == 0, 2 * (place % steps) == steps]
    return np.select(places, [DOWNBEAT, MIDDLE, BEAT, HALFWAY], 0)
