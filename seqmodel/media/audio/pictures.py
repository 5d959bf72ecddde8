"""Sampled audio on report pages: a waveform, as the range it covers in each stretch of time."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.pictures import Box, Level, Picture

COLUMNS = 800
"""The maximum; about one per pixel."""
THINNEST = 0.004
"""Share of the waveform's height, so that silence is a line."""


def waveform_picture(frames: NDArray[np.float32], definition: FrameDefinition) -> Picture:
    """A piece (T, F): x in columns of samples, y from the lowest to the highest sample in each.

    A column begins with the last sample of the previous one, so that the waveform is connected.
    """
    assert isinstance(definition, AudioFrames)
    samples = np.asarray(frames, np.float64).reshape(-1)
    hop = -(-len(samples) // COLUMNS)
    starts = range(0, len(samples), hop)
    stretches = [samples[max(0, start - 1) : start + hop] for start in starts]
    peak = float(np.abs(samples).max())
    reach = peak or 1.0
    thinnest = THINNEST * 2 * reach
    boxes = []
    for k, stretch in enumerate(stretches):
        low, high = float(stretch.min()), float(stretch.max())
        spare = max(0.0, thinnest - (high - low)) / 2
        boxes.append(Box(k, low - spare, 1, high - low + 2 * spare))
    seconds = len(samples) / definition.rate
    return Picture(
        seconds=seconds,
        width=len(samples) / hop,
        bottom=-1.1 * reach,
        top=1.1 * reach,
        boxes=tuple(boxes),
        levels=tuple(Level(y, f"{y:.2g}") for y in (reach, 0.0, -reach)),
        apart=False,
        summary=f"waveform: {seconds:.1f} s at {definition.rate:,} Hz, peak {peak:.4f}",
    )
