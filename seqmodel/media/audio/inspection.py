"""Sound described as values, text and pictures: files, datasets and samples."""

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.media.audio.frames import AudioSettings, Windows, sample_blocks
from seqmodel.media.audio.reader import Recording
from seqmodel.media.definitions import FrameDefinition, Pieces
from seqmodel.media.input import naming
from seqmodel.media.samples import Picture
from seqmodel.media.sound import LOUDEST
from seqmodel.media.words import plural
from seqmodel.plots import ACCENT, PRIMARY, caption, png_bytes, wide_figure, write_lines

# ---- plots ---------------------------------------------------------------------------------------

MAX_COLUMNS = 1000
"""The maximum number of columns in a PNG, however long the recording."""
PAGE_COLUMNS, PAGE_ROWS = 400, 128
"""The maximum on a report page: ten columns per tenth of a second of its clip, in a small file."""

SHADES = 32
"""Steps of 2.5 dB: noise in all shades would make the file three times as large."""

WINDOW_SECONDS = 0.032
"""Long enough for the harmonics of a voice, short enough for syllables."""

MIN_DB, MAX_DB = -90.0, -10.0
"""The ends of every picture's scale, in dB re a full-scale sine, so that pictures are comparable;
MIN_DB is about the noise of 16 bits."""

MAX_WINDOWS = 8
"""The maximum that a column averages over: enough for a long stretch."""


def recording_png(
    blocks: Iterable[NDArray[np.float32]], samples: int, rate: int, *, title: str, primer: int = 0
) -> bytes:
    """The PNG of `samples` mono samples, given in blocks (n,): waveform and spectrogram.

    The first `primer` samples, which were given, have a different colour. Each column shows the
    extremes and the mean spectrum of its stretch of time, so memory does not grow with the
    recording.
    """
    from matplotlib import colormaps

    hop = -(-samples // MAX_COLUMNS)
    low, high, power = columns(blocks, window_size(rate), hop)
    seconds = samples / rate
    figure, (wave, spectrum) = wide_figure(5, 2, 1, sharex=True, height_ratios=(1, 2))
    starts = np.arange(len(low)) * hop / rate
    prime_columns = -(-primer // hop)
    for x, colour in ((slice(prime_columns), ACCENT), (slice(prime_columns, None), PRIMARY)):
        wave.fill_between(starts[x], low[x], high[x], step="post", color=colour, linewidth=0.5)
    wave.set_xlim(0, seconds)
    wave.set_axisbelow(True)
    wave.grid(linewidth=0.5, color="0.85")
    wave.set_title(caption(title), fontsize=10)
    image = spectrum.imshow(
        decibels(power.T),
        origin="lower",
        aspect="auto",
        cmap=colormaps["magma"].resampled(SHADES),
        interpolation="nearest",
        vmin=MIN_DB,
        vmax=MAX_DB,
        extent=(0, len(low) * hop / rate, 0, rate / 2000),
    )
    figure.colorbar(image, ax=[wave, spectrum], label="dB of a full-scale sine", pad=0.01)
    spectrum.set_xlabel("seconds")
    spectrum.set_ylabel("kHz")
    return png_bytes(figure)


def spectrogram_picture(frames: NDArray[np.float32], definition: FrameDefinition) -> Picture:
    """A piece (T, F): x in columns, y in kHz up to half the rate, from `MIN_DB` to `MAX_DB` dB.

    A row is as loud as the loudest frequency in it.
    """
    samples, rate = np.asarray(frames, np.float32).reshape(-1), definition.rate
    hop = -(-len(samples) // PAGE_COLUMNS)
    _, _, power = columns([samples], window_size(rate), hop)
    rows = min(PAGE_ROWS, power.shape[1])
    starts = np.arange(rows) * power.shape[1] // rows
    loudness = decibels(np.maximum.reduceat(power, starts, axis=1).T[::-1])
    cells = np.rint(255 * (loudness - MIN_DB) / (MAX_DB - MIN_DB)).astype(np.uint8)
    seconds, peak = len(samples) / rate, float(np.abs(samples).max())
    square = float(np.square(samples, dtype=np.float64).mean())
    level = f"RMS {10 * math.log10(square):.1f} dB, peak {peak:.4f}" if square else "silent"
    return Picture(
        seconds=seconds,
        width=len(samples) / hop,
        bottom=0.0,
        top=rate / 2000,
        boxes=(),
        ticks={khz: f"{khz:g} kHz" for khz in _tick_values(rate / 2000)},
        summary=f"spectrogram: {seconds:.1f} s at {rate:,} Hz, from {MIN_DB:.0f} to {MAX_DB:.0f} "
        f"dB; {level}",
        heatmap=cells,
    )


def _tick_values(top: float) -> list[float]:
    ten = 10.0 ** math.floor(math.log10(top))
    step = next(step for step in (0.2 * ten, 0.5 * ten, ten, 2 * ten) if top < 5.5 * step)
    return [step * k for k in range(1, math.floor(top / step + 1e-9) + 1)]


def window_size(rate: int) -> int:
    """The power of two nearest to `WINDOW_SECONDS`, in samples."""
    return int(2 ** max(4, round(np.log2(rate * WINDOW_SECONDS))))


def columns(
    blocks: Iterable[NDArray[np.float32]], window: int, hop: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """One column per `hop` samples: lowest (C,), highest (C,), power (C, window/2 + 1).

    The power is that of a Hann window around the column or, if several fit into it, the mean of up
    to `MAX_WINDOWS`, the first at its beginning. The recording is padded with silence. A full-scale
    sine has power 1.
    """
    span, count = max(window, hop), min(MAX_WINDOWS, max(1, hop // window))
    before = (span - hop) // 2
    hann = np.hanning(window)
    windows, low, high, power = Windows(span, hop), [], [], []
    silence = np.zeros(span - 1, np.float32)
    for block in chain([silence[:before]], blocks, [silence[before:]]):
        views = windows.of(block)
        if not len(views):
            continue
        low.append(views[:, before : before + hop].min(axis=1))
        high.append(views[:, before : before + hop].max(axis=1))
        starts = (hop * k // count for k in range(count))
        spectra = (np.fft.rfft(views[:, start : start + window] * hann) for start in starts)
        power.append(sum(np.abs(each) ** 2 for each in spectra) / (count * (hann.sum() / 2) ** 2))
    return np.concatenate(low), np.concatenate(high), np.concatenate(power)


def decibels(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Power in dB re a full-scale sine, clipped to MIN_DB and MAX_DB."""
    return np.clip(10 * np.log10(power + 1e-12), MIN_DB, MAX_DB)


# ---- inspection ----------------------------------------------------------------------------------

BINS = 201
"""Bins in a histogram of samples; odd, so that silence is in the middle of one."""


def inspect_audio(path: Path, _: Mapping[str, Any], plot: Path | None) -> dict[str, Any]:
    """Describe an audio file, over all channels, and what `prepare` makes of it."""
    frame_size = AudioSettings().frame_size
    samples, clipped, peak, squares = 0, 0, 0.0, 0.0
    with naming(path):
        with Recording(path) as recording:
            for block in recording.blocks():
                samples += len(block)
                size = np.abs(block)
                clipped += int((size >= LOUDEST).sum())
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
    """`Medium.file_lines`."""
    level = "silent" if values["rms_db"] is None else f"RMS {values['rms_db']:.1f} dB"
    return [
        f"{values['path']}: {values['container']} {values['subtype']}, {values['rate']:,} Hz, "
        f"{plural(values['channels'], 'channel')}",
        f"  {values['seconds']:,.3f} s, {plural(values['samples'], 'sample')}",
        f"  peak {values['peak']:.4f}, {level}, {values['clipped_samples']:,} clipped",
        f"  {plural(values['frames'], 'frame')} of {values['frame_size']} samples, mono, stored as "
        f"{values['dtype']}",
        *(f"  remark: {remark}" for remark in values["remarks"]),
    ]


def inspect_splits(splits: Mapping[str, Pieces], plot: Path | None, title: str) -> dict[str, Any]:
    """The duration of each split; the picture shows how often each sample value occurs."""
    frame_seconds = {name: of.frame.frame_size / of.frame.rate for name, of in splits.items()}
    seconds = {name: round(of.frames * frame_seconds[name], 3) for name, of in splits.items()}
    if plot is not None:
        figure, axes = wide_figure(4)
        for name, split in splits.items():
            axes.stairs(_sample_values(split), np.linspace(-1, 1, BINS + 1), label=name)
        axes.set_yscale("log")
        axes.set_xlim(-1, 1)
        axes.set_xlabel("value of a sample")
        axes.set_ylabel("share of samples")
        axes.set_title(caption(title), fontsize=10)
        write_lines(plot, figure, axes)
    return {"seconds": seconds}


def _sample_values(split: Pieces) -> NDArray[np.float64]:
    """(BINS,), shares of a split's samples by value; those beyond full scale count as full."""
    counts = np.zeros(BINS, np.int64)
    for i in range(len(split)):
        for samples in sample_blocks(split, i):
            counts += np.histogram(np.clip(samples, -1, 1), BINS, (-1, 1))[0]
    return counts / counts.sum()
