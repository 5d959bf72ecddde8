"""Sampled music on report pages: a piano-roll with its notes as boxes."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.music import defaults
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.notes import given_notes, note_name, notes_of
from seqmodel.media.music.onsets import after_silence, has_onsets
from seqmodel.media.pictures import Box, Level, Picture
from seqmodel.media.words import plural

OCTAVE, MIDDLE_C = 12, 60
MARGIN = 2
"""Semitones below the lowest note and above the highest."""


def piano_roll_picture(
    frames: NDArray[np.uint8],
    definition: FrameDefinition,
    *,
    tempo: float = defaults.TEMPO,
    given: NDArray[np.bool_] | None = None,
) -> Picture:
    """A piece (T, 88), or (T, 176) with onsets: x in frames, y the MIDI pitch, Cs marked.

    What is `given` (T, 88) was not drawn from a model.
    """
    assert isinstance(definition, PianoRollFrames)
    notes = notes_of(after_silence(frames) if has_onsets(frames) else frames)
    pitches = notes[:, 2] if len(notes) else np.array([MIDDLE_C])
    low, high = int(pitches.min()), int(pitches.max())
    cs = range(-(-(low - MARGIN) // OCTAVE) * OCTAVE, high + MARGIN + 1, OCTAVE)
    was_there = np.zeros(len(notes), bool) if given is None else given_notes(notes, given)
    boxes = [
        tuple(Box(begin, pitch - 0.5, end - begin, 1) for begin, end, pitch in part.tolist())
        for part in (notes[~was_there], notes[was_there])
    ]
    span = f" from {note_name(low)} to {note_name(high)}" if len(notes) else ""
    return Picture(
        seconds=len(frames) * definition.grid.seconds_per_frame(tempo),
        width=len(frames),
        bottom=low - MARGIN - 0.5,
        top=high + MARGIN + 0.5,
        boxes=boxes[0],
        given=boxes[1],
        levels=tuple(Level(pitch, note_name(pitch)) for pitch in cs),
        apart=True,
        summary=f"piano-roll: {plural(len(notes), 'note')}{span} in {plural(len(frames), 'frame')}",
    )
