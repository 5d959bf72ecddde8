"""8-bit mu-law: 256 levels of a sample, narrow near silence, wide at full scale.

A sample x in [-1, 1) is companded as in van den Oord et al. 2016, WaveNet, after ITU-T G.711:

    f(x) = sign(x) log(1 + mu |x|) / log(1 + mu), mu = 255

Its level is floor(128 f(x)), from -128 to 127: 256 equal steps of f, as in the code of SampleRNN
(Mehri et al. 2017) and SaShiMi (Goel et al. 2022), which count them from 0. Zero is the lower end
of level 0. A level stands for the sample at the middle of its step, rounded to 16 bits, so that
decoding, writing 16 bits and encoding again gives the same levels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.sound import FULL_SCALE

MU, LEVELS = 255, 256


def _expanded(f: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of f."""
    return np.sign(f) * np.expm1(np.abs(f) * np.log1p(MU)) / MU


BOUNDARIES = _expanded(np.arange(-127, 128) / 128)
"""(255,), the lower ends of all levels but the lowest."""
SAMPLES = (np.rint(_expanded(np.arange(-127.5, 128) / 128) * FULL_SCALE) / FULL_SCALE).astype(
    np.float32
)
"""(256,), the sample that each level stands for."""


def encode(samples: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
    """The levels of samples of any shape; those beyond full scale have the outermost levels."""
    return (np.searchsorted(BOUNDARIES, samples, side="right") - LEVELS // 2).astype(np.int8)


def decode(levels: NDArray[np.int8]) -> NDArray[np.float32]:
    """The samples that levels stand for, in [-1, 1) and multiples of 2^-15."""
    return SAMPLES[levels.astype(np.int16) + LEVELS // 2]
