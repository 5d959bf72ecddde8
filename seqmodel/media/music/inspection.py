"""What a MIDI file, a piano-roll or a dataset of music holds, as values, text and a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import read_bytes
from seqmodel.media.definitions import Pieces
from seqmodel.media.music.corpus import load_roll
from seqmodel.media.music.grid import LOWEST_PITCH, Grid
from seqmodel.media.music.midi import Score, read_score
from seqmodel.media.music.midi_format import DRUM_CHANNEL
from seqmodel.media.music.pianoroll import piano_roll
from seqmodel.media.music.plots import plot_note_frequencies, plot_piano_roll
from seqmodel.media.music.tempo import seconds_at
from seqmodel.media.music.tonic import semitones_to_c
from seqmodel.media.words import plural

NOTE_NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
MICROSECONDS_PER_MINUTE = 60_000_000


def inspect_midi(path: Path, grid: Grid, plot: Path | None) -> dict[str, Any]:
    """What a MIDI file holds: format, notes, tempo, estimated tonic, frames on `grid`."""
    try:
        score = read_score(read_bytes(path))
        roll = piano_roll(score, grid, drums=False)
    except SourceError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    if plot is not None:
        plot_piano_roll(plot, roll, LOWEST_PITCH, title=str(path), unit=f"frame ({grid})")
    sounding = score.off_tick > score.on_tick  # a note of no length only marks a sample's end
    drums = score.channel == DRUM_CHANNEL
    pitches = score.pitch[sounding & ~drums]
    return {
        "path": str(path),
        "kind": "midi",
        "format": score.format,
        "tracks": score.tracks,
        "channels": sorted({int(channel) + 1 for channel in score.channel}),
        "notes": int(sounding.sum()),
        "drum_notes": int((sounding & drums).sum()),
        "lowest": note_name(int(pitches.min())) if len(pitches) else None,
        "highest": note_name(int(pitches.max())) if len(pitches) else None,
        "tempo_bpm": None if score.smpte else _tempo(score),
        "tempo_changes": len(score.tempo) - 1,
        "seconds": round(seconds(score), 3),
        "tonic": NOTE_NAMES[-semitones_to_c(score) % 12],
        "grid": str(grid),
        "frames": len(roll),
        "notes_per_frame": round(float(roll.sum() / len(roll)), 2),
        "remarks": list(score.remarks),
    }


def inspect_roll(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a piano-roll (T, 88) holds, such as a sampled one; it does not state its grid."""
    try:
        roll = load_roll(path)
    except SourceError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    if plot is not None:
        plot_piano_roll(plot, roll, LOWEST_PITCH, title=str(path), unit="frame")
    pitches = LOWEST_PITCH + np.flatnonzero(roll.any(axis=0))
    onsets = np.diff(roll.astype(np.int8), axis=0, prepend=0) > 0
    return {
        "path": str(path),
        "kind": "roll",
        "notes": int(onsets.sum()),
        "lowest": note_name(int(pitches[0])) if len(pitches) else None,
        "highest": note_name(int(pitches[-1])) if len(pitches) else None,
        "frames": len(roll),
        "notes_per_frame": round(float(roll.sum() / len(roll)), 2),
    }


def file_lines(values: Mapping[str, Any]) -> list[str]:
    """The values of `inspect_midi` or `inspect_roll` as lines of text."""
    density = f"{values['notes_per_frame']:.2f} notes per frame"
    if values["kind"] == "roll":
        return [
            f"{values['path']}: piano-roll of {plural(values['frames'], 'frame')}",
            f"  {_notes(values)}, {density}",
        ]
    tempo = "SMPTE time" if values["tempo_bpm"] is None else f"{values['tempo_bpm']:g} bpm"
    changes = values["tempo_changes"]
    return [
        f"{values['path']}: MIDI format {values['format']}, {plural(values['tracks'], 'track')}",
        f"  {_notes(values)}"
        + (f", {values['drum_notes']:,} of them drums" if values["drum_notes"] else ""),
        f"  {values['seconds']:.1f} s at {tempo}"
        + (f", {plural(changes, 'tempo change')}" if changes else ""),
        f"  tonic {values['tonic']} (estimated)",
        f"  {plural(values['frames'], 'frame')} at {values['grid']}, {density}",
        *(f"  repaired: {remark}" for remark in values["remarks"]),
    ]


def inspect_splits(splits: Mapping[str, Pieces], plot: Path | None, title: str) -> dict[str, Any]:
    """How many notes sound in a frame of each split; the picture shows how often each note does."""
    shares = {name: split.totals() / split.frames for name, split in splits.items()}
    if plot is not None:
        plot_note_frequencies(plot, shares, LOWEST_PITCH, title=title)
    return {"notes_per_frame": {name: round(float(c.sum()), 2) for name, c in shares.items()}}


def note_name(pitch: int) -> str:
    """C4 for 60."""
    return f"{NOTE_NAMES[pitch % 12]}{pitch // 12 - 1}"


def seconds(score: Score) -> float:
    """How long a score lasts, from its start to the end of its last note."""
    return float(seconds_at(score, score.off_tick.max(initial=0, keepdims=True))[0])


def _notes(values: Mapping[str, Any]) -> str:
    span = f" from {values['lowest']} to {values['highest']}" if values["lowest"] else ""
    return plural(values["notes"], "note") + span


def _tempo(score: Score) -> float:
    return round(MICROSECONDS_PER_MINUTE / int(score.tempo[0]), 2)
