"""Plots of sound: a recording's waveform and spectrogram, and a dataset's sample values."""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.plots.png import ACCENT, PRIMARY, caption, png_bytes

COLUMNS = 1000
"""The maximum number of columns in a picture, however long the recording."""

WINDOW_SECONDS = 0.032
"""A spectrogram window: long enough for the harmonics of a voice, short enough for syllables."""

DEEPEST = 80.0
"""The dynamic range of a spectrogram, in decibels below its loudest point."""


def recording_png(
    blocks: Iterable[NDArray[np.float32]], samples: int, rate: int, *, title: str, primer: int = 0
) -> bytes:
    """The PNG of mono samples, `samples` in all given in blocks (n,): waveform and spectrogram.

    The first `primer` samples, given rather than sampled from the model, have another colour.
    Neither memory nor the picture grows with the recording: each column shows the extremes of its
    stretch of time and the spectrum at its beginning.
    """
    from matplotlib.figure import Figure

    window = 2 ** max(4, round(np.log2(rate * WINDOW_SECONDS)))
    hop = -(-samples // COLUMNS)
    low, high, power = columns(blocks, window, hop)
    seconds = samples / rate
    figure = Figure(figsize=(10, 5), layout="constrained")
    wave, spectrum = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    starts = np.arange(len(low)) * hop / rate
    heard = -(-primer // hop)
    for part, colour in ((slice(heard), ACCENT), (slice(heard, None), PRIMARY)):
        wave.fill_between(
            starts[part], low[part], high[part], step="post", color=colour, linewidth=0.5
        )
    wave.set_xlim(0, seconds)
    wave.set_axisbelow(True)
    wave.grid(linewidth=0.5, color="0.85")
    wave.set_title(caption(title), fontsize=10)
    decibels = 10 * np.log10(power.T + 1e-12)
    spectrum.imshow(
        decibels,
        origin="lower",
        aspect="auto",
        cmap="magma",
        vmin=decibels.max() - DEEPEST,
        vmax=decibels.max(),
        extent=(0, len(low) * hop / rate, 0, rate / 2000),
    )
    spectrum.set_xlabel("seconds")
    spectrum.set_ylabel("kHz")
    return png_bytes(figure)


def columns(
    blocks: Iterable[NDArray[np.float32]], window: int, hop: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """One column per `hop` samples: lowest (C,), highest (C,), power (C, window/2 + 1).

    The power is that of a Hann window at the column's beginning, padded with silence after the
    last sample; a full-scale sine has power 1.
    """
    reach = max(window, hop)
    shape = np.hanning(window)
    rest = np.empty(0, np.float32)
    low, high, power = [], [], []
    for block in chain(blocks, [np.zeros(reach - 1, np.float32)]):
        rest = np.concatenate([rest, block])
        if len(rest) < reach:
            continue
        views = np.lib.stride_tricks.sliding_window_view(rest, reach)[::hop]
        low.append(views[:, :hop].min(axis=1))
        high.append(views[:, :hop].max(axis=1))
        power.append(np.abs(np.fft.rfft(views[:, :window] * shape)) ** 2 / (shape.sum() / 2) ** 2)
        rest = rest[len(views) * hop :]
    return np.concatenate(low), np.concatenate(high), np.concatenate(power)


def plot_sample_values(
    path: Path, shares: Mapping[str, NDArray[np.float64]], *, title: str
) -> None:
    """Draw a histogram of sample values, (N,) equal bins from -1 to 1, one line per split."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    for name, share in shares.items():
        axes.stairs(share, np.linspace(-1, 1, len(share) + 1), label=name)
    axes.set_yscale("log")
    axes.set_xlim(-1, 1)
    axes.set_xlabel("value of a sample")
    axes.set_ylabel("share of samples")
    axes.set_title(caption(title), fontsize=10)
    axes.grid(linewidth=0.5, color="0.85")
    axes.legend(frameon=False)
    write_file(path, png_bytes(figure))
