"""What a media file, a dataset or a run holds, as plain values and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from seqmodel.dataset import MANIFEST, Dataset, open_dataset
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import read_bytes
from seqmodel.frames.grid import LOWEST_PITCH, Grid
from seqmodel.frames.midi import Score, read_score
from seqmodel.frames.pianoroll import piano_roll
from seqmodel.frames.tonic import semitones_to_c
from seqmodel.plots import plot_learning_curve, plot_note_frequencies, plot_piano_roll
from seqmodel.runs import BEST, CONFIG, load_run, read_metrics
from seqmodel.sources import MIDI_SUFFIXES

NOTE_NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
MICROSECONDS_A_MINUTE = 60_000_000


def kind_of(path: Path) -> str:
    """Whether `path` is a "run", a "dataset" or a "midi" file; SeqmodelError where it is none."""
    if (path / CONFIG).is_file():
        return "run"
    if (path / MANIFEST).is_file():
        return "dataset"
    if path.is_file() and path.suffix.lower() in MIDI_SUFFIXES:
        return "midi"
    if not path.exists():
        raise SeqmodelError(f"{path}: no such file or folder")
    raise SeqmodelError(f"{path} is neither a MIDI file nor a prepared dataset nor a run folder")


def inspect_midi(path: Path, grid: Grid, plot: Path | None) -> dict[str, Any]:
    """What stands in a MIDI file: its build, notes, tempo, estimated tonic, frames on `grid`."""
    try:
        score = read_score(read_bytes(path))
        roll = piano_roll(score, grid, drums=False)
    except SourceError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    if plot is not None:
        plot_piano_roll(plot, roll, LOWEST_PITCH, title=str(path), unit=f"frame ({grid})")
    sounding = score.off_tick > score.on_tick  # one of no length only marks where a sample ends
    pitches = score.pitch[sounding & (score.channel != 9)]
    return {
        "path": str(path),
        "kind": "midi",
        "format": score.format,
        "tracks": score.tracks,
        "channels": sorted({int(channel) + 1 for channel in score.channel}),
        "notes": int(sounding.sum()),
        "drum_notes": int((sounding & (score.channel == 9)).sum()),
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


def inspect_dataset(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a dataset holds: its manifest, and how often notes sound."""
    dataset = open_dataset(path)
    if plot is not None:
        counts = {
            name: dataset[name].note_counts() / dataset[name].frames for name in dataset.splits
        }
        plot_note_frequencies(plot, counts, LOWEST_PITCH, title=str(path))
    manifest = dict(dataset.manifest)
    manifest["notes_per_frame"] = {name: _density(dataset, name) for name in dataset.splits}
    return {"path": str(path), "kind": "dataset", **manifest}


def inspect_run(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a run has come to: its settings, size, epochs and best figure."""
    metrics = read_metrics(path)
    if plot is not None:
        if not metrics:
            raise SeqmodelError(f"{path} has no epoch to draw yet")
        plot_learning_curve(plot, metrics)
    values: dict[str, Any] = {"path": str(path), "kind": "run", "epochs": len(metrics)}
    if (path / BEST).is_file():
        run = load_run(path)
        values |= {
            "unit_parameters": run.model.unit.parameter_count(),
            "parameters": sum(weight.numel() for weight in run.model.parameters()),
            "grid": str(run.frame.grid),
            "config": run.config.__dict__,
        }
        # The checkpoint is written before its line of metrics: a run killed between has only one.
        if run.epoch <= len(metrics):
            values["best"] = metrics[run.epoch - 1]
    return values


def note_name(pitch: int) -> str:
    """C4 for 60."""
    return f"{NOTE_NAMES[pitch % 12]}{pitch // 12 - 1}"


def seconds(score: Score) -> float:
    """How long a score sounds, from its start to the end of its last note."""
    end = int(score.off_tick.max(initial=0))
    begins = np.minimum(score.tempo_tick, end)
    lengths = np.diff(np.append(begins, end))
    return float((lengths * (score.tempo / score.ticks_per_unit)).sum() / 1e6)


def _tempo(score: Score) -> float:
    return round(MICROSECONDS_A_MINUTE / int(score.tempo[0]), 2)


def _density(dataset: Dataset, name: str) -> float:
    split = dataset[name]
    return round(float(split.note_counts().sum() / split.frames), 2)
