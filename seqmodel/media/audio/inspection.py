"""Describes audio files and datasets of audio as values, text and pictures."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.media.audio.frames import AudioFrames, AudioSettings, sample_blocks
from seqmodel.media.audio.plots import plot_sample_values, recording_png
from seqmodel.media.audio.reader import Recording
from seqmodel.media.definitions import Pieces
from seqmodel.media.input import named
from seqmodel.media.sound import FULL_SCALE
from seqmodel.media.words import plural

CLIPPED = 1 - 1 / FULL_SCALE
"""From here on, a sample is as loud as 16 bits allow."""
BINS = 201
"""In a histogram of samples; odd, so that silence is in the middle of a bin."""


def inspect_audio(path: Path, _: Mapping[str, Any], plot: Path | None) -> dict[str, Any]:
    """`Medium.inspect_file`, which has no options here.

    What an audio file holds: format, length and loudness, and what `prepare` makes of it.

    Peak, loudness and clipped samples are over all channels; dB are relative to full scale.
    """
    frame_size = AudioSettings().frame_size
    samples, clipped, peak, squares = 0, 0, 0.0, 0.0
    with named(path):
        with Recording(path) as recording:
            for block in recording.blocks():
                samples += len(block)
                size = np.abs(block)
                clipped += int((size >= CLIPPED).sum())
                peak = max(peak, float(size.max()))
                squares += float(np.square(block, dtype=np.float64).sum())
        if plot is not None:
            with Recording(path) as again:
                mono = again.mono(again.rate)
                picture = recording_png(mono, samples, again.rate, title=str(path))
            write_file(plot, picture)
    mean_square = squares / (samples * recording.channels)
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
        "dtype": "int16",
        "remarks": recording.remarks,
    }


def file_lines(values: Mapping[str, Any]) -> list[str]:
    """The values of `inspect_audio` as lines of text."""
    level = "silent" if values["rms_db"] is None else f"RMS {values['rms_db']:.1f} dB"
    return [
        f"{values['path']}: {values['container']} {values['subtype']}, {values['rate']:,} Hz, "
        f"{plural(values['channels'], 'channel')}",
        f"  {values['seconds']:,.3f} s, {plural(values['samples'], 'sample')}",
        f"  peak {values['peak']:.4f}, {level}, {values['clipped_samples']:,} clipped",
        f"  {plural(values['frames'], 'frame')} of {values['frame_size']} samples, mono, stored as "
        f"{values['dtype']}",
        *(f"  repaired: {remark}" for remark in values["remarks"]),
    ]


def inspect_splits(splits: Mapping[str, Pieces], plot: Path | None, title: str) -> dict[str, Any]:
    """How long each split lasts; the picture shows how often each sample value occurs."""
    seconds = {}
    for name, split in splits.items():
        frame = split.frame
        assert isinstance(frame, AudioFrames)
        seconds[name] = round(split.frames * (frame.frame_size / frame.rate), 3)
    if plot is not None:
        shares = {name: _sample_values(split) for name, split in splits.items()}
        plot_sample_values(plot, shares, title=title)
    return {"seconds": seconds}


def _sample_values(split: Pieces) -> NDArray[np.float64]:
    """(BINS,), shares of a split's samples by value; beyond full scale counts as full scale."""
    counts = np.zeros(BINS, np.int64)
    for i in range(len(split)):
        for samples in sample_blocks(split, i):
            counts += np.histogram(np.clip(samples, -1, 1), BINS, (-1, 1))[0]
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares
