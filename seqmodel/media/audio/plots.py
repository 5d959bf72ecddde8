"""Plots of sound: a recording's waveform and spectrogram, and a dataset's sample values."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.media.audio.spectrogram import LOUD, QUIET, SCALE, columns, decibels, window_at
from seqmodel.plots.png import ACCENT, PRIMARY, caption, png_bytes

COLUMNS = 1000
"""The maximum number of columns in a picture, however long the recording."""

SHADES = 32
"""Steps of 2.5 dB: noise in all shades would make the file three times as large."""


def recording_png(
    blocks: Iterable[NDArray[np.float32]], samples: int, rate: int, *, title: str, primer: int = 0
) -> bytes:
    """The PNG of mono samples, `samples` in all given in blocks (n,): waveform and spectrogram.

    The first `primer` samples, given rather than sampled from the model, have another colour.
    Neither memory nor the picture grows with the recording: each column shows the extremes and the
    mean spectrum of its stretch of time.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    hop = -(-samples // COLUMNS)
    low, high, power = columns(blocks, window_at(rate), hop)
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
    shown = spectrum.imshow(
        decibels(power.T),
        origin="lower",
        aspect="auto",
        cmap=colormaps["magma"].resampled(SHADES),
        interpolation="nearest",
        vmin=QUIET,
        vmax=LOUD,
        extent=(0, len(low) * hop / rate, 0, rate / 2000),
    )
    figure.colorbar(shown, ax=[wave, spectrum], label=SCALE, pad=0.01)
    spectrum.set_xlabel("seconds")
    spectrum.set_ylabel("kHz")
    return png_bytes(figure)


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
