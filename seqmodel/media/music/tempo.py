"""Conversion of a score's ticks to seconds."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.midi import Score


def seconds_at(score: Score, ticks: NDArray[np.number]) -> NDArray[np.float64]:
    """When each of the ticks (N,), which may be fractional, occurs at the score's tempos.

    Subject to floating-point rounding, unlike the placing of frames by `pianoroll`, which is exact.
    """
    lengths = score.tempo / (1e6 * score.ticks_per_unit)
    begins = np.append(0.0, np.cumsum(np.diff(score.tempo_tick) * lengths[:-1]))
    at = np.searchsorted(score.tempo_tick, ticks, side="right") - 1
    seconds: NDArray[np.float64] = begins[at] + (ticks - score.tempo_tick[at]) * lengths[at]
    return seconds
