"""How loud notes are, by rule: nobody plays every note alike.

A note's MIDI velocity is 68, plus
- its place in the bar, of four beats: 14 on the first beat, 9 on the third, 6 on the others, and
  2 halfway between two beats; none of it where frames are of real time;
- its voice: 10 if nothing sounds above it where it begins, else 4 if nothing sounds below it;
- its place in the phrase, of four bars: 8 sin(pi p) where p goes from 0 to 1, an arch.

Friberg, Bresin and Sundberg (2006) describe such rules, and measure them on performances.
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

BAR, PHRASE = 4, 16
"""In beats."""
PHRASE_SECONDS = 8.0
"""Of a phrase in real time."""


def velocities(
    notes: NDArray[np.int64], frames: NDArray[np.uint8], grid: Grid, *, flat: bool = False
) -> NDArray[np.int64]:
    """The MIDI velocity (N,) of each of `notes_of(frames)`."""
    if flat:
        return np.full(len(notes), FLAT)
    begin, key = notes[:, 0], notes[:, 2] - LOWEST_PITCH
    roll = sounding(frames)
    top, bottom = NOTES - 1 - roll[:, ::-1].argmax(axis=1), roll.argmax(axis=1)
    voice = np.where(key == top[begin], MELODY, np.where(key == bottom[begin], BASS, 0))
    per_phrase = PHRASE_SECONDS / grid.seconds_per_frame(1.0)
    metre: int | NDArray[np.int64] = 0
    if grid.steps_per_beat is not None:
        per_phrase = PHRASE * grid.steps_per_beat
        metre = _metre(begin, grid.steps_per_beat)
    arch = np.rint(ARCH * np.sin(np.pi * (begin % per_phrase) / per_phrase))
    louder: NDArray[np.int64] = QUIETEST + metre + voice + arch.astype(np.int64)
    return louder


def _metre(begin: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """What the place in the bar adds, for notes that begin at these frames."""
    beat, within = begin // steps % BAR, begin % steps
    on_beat = np.select([beat == 0, beat == BAR // 2], [DOWNBEAT, MIDDLE], BEAT)
    return np.select([within == 0, 2 * within == steps], [on_beat, HALFWAY], 0)
