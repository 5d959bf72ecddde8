"""Plots of music: piano-rolls, as PNG and in boxes for report pages, and note frequencies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.music import defaults
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.notes import given_notes, note_name, notes_of
from seqmodel.media.music.onsets import after_silence, has_onsets
from seqmodel.media.pictures import Box, Level, Picture
from seqmodel.media.words import plural
from seqmodel.plots import ACCENT, DARK, PRIMARY, caption, png_bytes, wide_figure

OCTAVE, MIDDLE_C = 12, 60
MARGIN = 2
"""Semitones on a report page below the lowest note and above the highest."""

COLUMNS = 1000
"""The maximum number of columns in a PNG, however long the piece."""
SILENCE_COLOUR = "#ffffff00"  # transparent


def piano_roll_png(
    roll: NDArray[Any],
    lowest_pitch: int,
    *,
    title: str,
    unit: str = "frame",
    given: NDArray[np.bool_] | None = None,
    struck: NDArray[Any] | None = None,
) -> bytes:
    """The PNG of a piano-roll (T, D), time to the right, pitch upwards, Cs marked.

    What is `given` (T, D), rather than drawn from the model, has another colour. Notes are dark
    where `struck` (T, D) is set. Beyond the roll itself, memory does not grow with the
    piece: each column of a long one shows all notes in its stretch of time.
    """
    from matplotlib.colors import ListedColormap

    figure, axes = wide_figure(4)
    frames, notes = roll.shape
    hop = max(1, -(-frames // COLUMNS))
    shades = [
        _shade(roll, struck, slice(start, start + hop), given) for start in range(0, frames, hop)
    ]
    axes.imshow(
        np.array(shades, np.uint8).reshape(-1, notes).T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        zorder=2,  # above the lines that mark the Cs
        cmap=ListedColormap([SILENCE_COLOUR, PRIMARY, ACCENT, *DARK]),
        vmin=0,
        vmax=4,
        extent=(0, max(len(shades) * hop, 1), lowest_pitch - 0.5, lowest_pitch + notes - 0.5),
    )
    axes.set_xlim(0, max(frames, 1))
    sounding = np.flatnonzero(np.asarray(roll).any(axis=0)) + lowest_pitch
    if len(sounding):
        axes.set_ylim(sounding[0] - OCTAVE / 2, sounding[-1] + OCTAVE / 2)
    octaves = range(-(-lowest_pitch // OCTAVE), (lowest_pitch + notes - 1) // OCTAVE + 1)
    low, high = axes.get_ylim()
    cs = [k * OCTAVE for k in octaves if low <= k * OCTAVE <= high]
    axes.set_yticks(cs, [f"C{c // OCTAVE - 1}" for c in cs])
    axes.grid(axis="y", linewidth=0.5, color="0.85")
    axes.set_xlabel(unit)
    axes.set_title(caption(title), fontsize=10)
    return png_bytes(figure)


def _shade(
    roll: NDArray[Any],
    struck: NDArray[Any] | None,
    stretch: slice,
    given: NDArray[np.bool_] | None,
) -> NDArray[np.uint8]:
    """The colour indices (D,) of a column: the highest among its frames."""
    shade = np.array(roll[stretch], np.uint8)
    if given is not None:
        shade[given[stretch]] *= 2
    if struck is not None:
        shade[np.asarray(struck[stretch]) > 0] += 2
    column: NDArray[np.uint8] = shade.max(axis=0)
    return column


def plot_note_frequencies(
    path: Path, frequencies: Mapping[str, NDArray[Any]], lowest_pitch: int, *, title: str
) -> None:
    """Draw how often each note sounds, as shares (D,) of all frames, one line per split."""
    figure, axes = wide_figure(4)
    for name, shares in frequencies.items():
        pitches = np.arange(lowest_pitch, lowest_pitch + len(shares))
        axes.step(pitches, shares, where="mid", label=name)
    cs = range(-(-lowest_pitch // OCTAVE) * OCTAVE, int(pitches[-1]) + 1, OCTAVE)
    axes.set_xticks(list(cs), [f"C{c // OCTAVE - 1}" for c in cs])
    axes.set_ylabel("share of frames in which it sounds")
    axes.set_title(caption(title), fontsize=10)
    axes.grid(linewidth=0.5, color="0.85")
    axes.legend(frameon=False)
    write_file(path, png_bytes(figure))


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
