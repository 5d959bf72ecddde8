"""The spectrogram of a recording of any length, in columns of time, on a scale of its own."""

from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio.frames import Windows

WINDOW_SECONDS = 0.032
"""Long enough for the harmonics of a voice, short enough for syllables."""

QUIET, LOUD = -90.0, -10.0
"""The ends of every picture's scale, in dB of a full-scale sine, so that pictures can be compared:
QUIET is about the noise of 16 bits."""

SCALE = "dB of a full-scale sine"

WINDOWS = 8
"""The maximum that a column is a mean of: enough for the average of a long stretch."""


def window_at(rate: int) -> int:
    """The power of two nearest to `WINDOW_SECONDS`, in samples."""
    return int(2 ** max(4, round(np.log2(rate * WINDOW_SECONDS))))


def columns(
    blocks: Iterable[NDArray[np.float32]], window: int, hop: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """One column per `hop` samples: lowest (C,), highest (C,), power (C, window/2 + 1).

    The power is that of a Hann window around the column, or, where several fit into it, the mean of
    up to `WINDOWS`, the first at its beginning. Around the recording is silence. A full-scale sine
    has power 1. Memory is that of a block and the columns.
    """
    reach, count = max(window, hop), min(WINDOWS, max(1, hop // window))
    before = (reach - hop) // 2
    shape = np.hanning(window)
    windows, low, high, power = Windows(reach, hop), [], [], []
    silence = np.zeros(reach - 1, np.float32)
    for block in chain([silence[:before]], blocks, [silence[before:]]):
        views = windows.of(block)
        if not len(views):
            continue
        low.append(views[:, before : before + hop].min(axis=1))
        high.append(views[:, before : before + hop].max(axis=1))
        starts = (hop * k // count for k in range(count))
        heard = (np.fft.rfft(views[:, start : start + window] * shape) for start in starts)
        power.append(sum(np.abs(each) ** 2 for each in heard) / (count * (shape.sum() / 2) ** 2))
    return np.concatenate(low), np.concatenate(high), np.concatenate(power)


def decibels(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Power in dB of a full-scale sine, within QUIET and LOUD."""
    found: NDArray[np.float64] = np.clip(10 * np.log10(power + 1e-12), QUIET, LOUD)
    return found
