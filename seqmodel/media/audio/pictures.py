"""Sampled audio on report pages: a spectrogram."""

import math

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.spectrogram import LOUD, QUIET, columns, decibels, window_at
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.pictures import Level, Picture, Shades

COLUMNS, ROWS = 400, 128
"""The maximum: a tenth of a second of a page's clip is ten columns, and its file stays small."""


def spectrogram_picture(frames: NDArray[np.float32], definition: FrameDefinition) -> Picture:
    """A piece (T, F): x in columns, y in kHz up to half the rate, from `QUIET` to `LOUD` dB.

    A row is as loud as the loudest frequency in it.
    """
    assert isinstance(definition, AudioFrames)
    samples, rate = np.asarray(frames, np.float32).reshape(-1), definition.rate
    hop = -(-len(samples) // COLUMNS)
    _, _, power = columns([samples], window_at(rate), hop)
    rows = min(ROWS, power.shape[1])
    starts = np.arange(rows) * power.shape[1] // rows
    loudness = decibels(np.maximum.reduceat(power, starts, axis=1).T[::-1])
    shades = np.rint(255 * (loudness - QUIET) / (LOUD - QUIET)).astype(np.uint8)
    seconds, peak = len(samples) / rate, float(np.abs(samples).max())
    square = float(np.square(samples, dtype=np.float64).mean())
    level = f"RMS {10 * math.log10(square):.1f} dB, peak {peak:.4f}" if square else "silent"
    return Picture(
        seconds=seconds,
        width=len(samples) / hop,
        bottom=0.0,
        top=rate / 2000,
        boxes=(),
        levels=tuple(Level(khz, f"{khz:g} kHz") for khz in _marks(rate / 2000)),
        apart=False,
        summary=f"spectrogram: {seconds:.1f} s at {rate:,} Hz, from {QUIET:.0f} to {LOUD:.0f} dB; "
        f"{level}",
        shades=Shades(len(power), rows, shades.tobytes()),
    )


def _marks(top: float) -> list[float]:
    """Two to five round heights up to `top`."""
    ten = 10.0 ** math.floor(math.log10(top))
    step = next(step for step in (0.2 * ten, 0.5 * ten, ten, 2 * ten) if top < 5.5 * step)
    return [step * k for k in range(1, math.floor(top / step + 1e-9) + 1)]
