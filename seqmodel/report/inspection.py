"""What a media file, a dataset or a run holds, as plain values and as a picture."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import MANIFEST, Split, open_dataset
from seqmodel.data.prepare import load_roll
from seqmodel.data.sources import MIDI_SUFFIXES
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import read_bytes
from seqmodel.media.audio import reader as audio
from seqmodel.media.definitions import AudioFrames, AudioSettings
from seqmodel.media.music.grid import LOWEST_PITCH, Grid
from seqmodel.media.music.midi import Score, read_score
from seqmodel.media.music.pianoroll import piano_roll
from seqmodel.media.music.tonic import semitones_to_c
from seqmodel.plots.music import plot_learning_curve, plot_note_frequencies, plot_piano_roll
from seqmodel.plots.sound import plot_recording, plot_sample_values
from seqmodel.runs.folder import BEST, CONFIG, load_run, read_metrics

NOTE_NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
MICROSECONDS_A_MINUTE = 60_000_000
CLIPPED = 1 - 1 / 32768
"""From here on a sample is as loud as one of 16 bits can be."""
BINS = 201
"""Of the sizes of samples, an odd number so that silence lies in the middle of one."""
FRAMES_AT_ONCE = 100_000


def kind_of(path: Path) -> str:
    """What `path` is: "run", "dataset", "midi", "roll" or "audio"; SeqmodelError if none."""
    if (path / CONFIG).is_file():
        return "run"
    if (path / MANIFEST).is_file():
        return "dataset"
    if path.is_file() and path.suffix.lower() in MIDI_SUFFIXES:
        return "midi"
    if path.is_file() and path.suffix.lower() == ".npy":
        return "roll"
    if path.is_file() and path.suffix.lower() in audio.SUFFIXES:
        return "audio"
    if not path.exists():
        raise SeqmodelError(f"{path}: no such file or folder")
    raise SeqmodelError(
        f"{path} is neither a MIDI or audio file nor a piano-roll (.npy) nor a prepared dataset "
        "nor a run folder"
    )


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


def inspect_roll(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a piano-roll (T, 88) holds, such as a sampled one; its grid it does not say."""
    try:
        roll = load_roll(path)
    except SourceError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    if plot is not None:
        plot_piano_roll(plot, roll, LOWEST_PITCH, title=str(path), unit="frame")
    pitches = LOWEST_PITCH + np.flatnonzero(roll.any(axis=0))
    begins = np.diff(roll.astype(np.int8), axis=0, prepend=0) > 0
    return {
        "path": str(path),
        "kind": "roll",
        "notes": int(begins.sum()),
        "lowest": note_name(int(pitches[0])) if len(pitches) else None,
        "highest": note_name(int(pitches[-1])) if len(pitches) else None,
        "frames": len(roll),
        "notes_per_frame": round(float(roll.sum() / len(roll)), 2),
    }


def inspect_audio(path: Path, plot: Path | None) -> dict[str, Any]:
    """What an audio file holds: its kind, length and loudness, and what `prepare` makes of it.

    Peak, loudness and clipped samples are of all channels; dB are below full scale.
    """
    frame_size = AudioSettings().frame_size
    samples, clipped, peak, squares = 0, 0, 0.0, 0.0
    try:
        with audio.Recording(path) as recording:
            for block in recording.blocks():
                samples += len(block)
                size = np.abs(block)
                clipped += int((size >= CLIPPED).sum())
                peak = max(peak, float(size.max()))
                squares += float(np.square(block, dtype=np.float64).sum())
        if plot is not None:
            with audio.Recording(path) as again:
                mono = again.mono(again.rate)
                plot_recording(plot, mono, samples, again.rate, title=str(path))
    except SourceError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    mean_square = squares / (samples * recording.channels)
    exact = recording.sixteen_bits and recording.channels == 1
    return {
        "path": str(path),
        "kind": "audio",
        "container": recording.container,
        "subtype": recording.subtype,
        "rate": recording.rate,
        "channels": recording.channels,
        "samples": samples,
        "seconds": round(samples / recording.rate, 3),
        "peak": round(peak, 4),
        "rms_db": round(10 * math.log10(mean_square), 2) if mean_square else None,
        "clipped_samples": clipped,
        "frame_size": frame_size,
        "frames": samples // frame_size,
        "dtype": "int16" if exact else "float32",
        "remarks": recording.remarks,
    }


def inspect_dataset(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a dataset holds: its manifest, and how often notes sound or how long its splits are.

    SeqmodelError where a piece has changed since it was prepared.
    """
    dataset = open_dataset(path)
    dataset.check_content()
    values = {"path": str(path), "kind": "dataset", **dataset.manifest}
    splits = {name: dataset[name] for name in dataset.splits}
    if isinstance(dataset.frame, AudioFrames):
        if plot is not None:
            shares = {name: _sample_values(split) for name, split in splits.items()}
            plot_sample_values(plot, shares, title=str(path))
        per_frame = dataset.frame.frame_size / dataset.frame.rate
        values["seconds"] = {
            name: round(split.frames * per_frame, 3) for name, split in splits.items()
        }
        return values
    counts = {name: split.note_counts() / split.frames for name, split in splits.items()}
    if plot is not None:
        plot_note_frequencies(plot, counts, LOWEST_PITCH, title=str(path))
    values["notes_per_frame"] = {name: round(float(c.sum()), 2) for name, c in counts.items()}
    return values


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
            "frames": str(run.frame),
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


def _sample_values(split: Split) -> NDArray[np.float64]:
    """(BINS,) shares of the samples of a split by size; those beyond full scale count as its."""
    counts = np.zeros(BINS, np.int64)
    step = FRAMES_AT_ONCE * split.frame.rows_per_frame
    for i in range(len(split)):
        rows = split.stored(i)
        for start in range(0, len(rows), step):
            values = np.clip(split.frame.decode(rows[start : start + step]), -1, 1)
            counts += np.histogram(values, BINS, (-1, 1))[0]
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares
