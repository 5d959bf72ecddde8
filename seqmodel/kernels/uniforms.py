"""The random stream that pieces are sampled from: SplitMix64 (Steele, Lea, Flood 2014).

Number n, counting from 0, is a hash of key + (n + 1) GAMMA modulo 2^64, so that compiled code can
compute any of them directly. The key comes from NumPy's SeedSequence. A uniform in [0, 1) is the
upper 53 bits over 2^53.
"""

from copy import copy

import numpy as np
from numpy.typing import NDArray

GAMMA = 0x9E3779B97F4A7C15
MIXING = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)
"""Rounds of x = (x xor (x >> shift)) * factor."""
BITS = 53


class Uniforms:
    """The stream of one piece, identified by a seed and the piece's number."""

    def __init__(self, seed: int, number: int = 0) -> None:
        (key,) = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
        self._state = int(key)

    def skip(self, count: int) -> int:
        """Skip `count` numbers; returns key + n GAMMA, where n is the first index skipped."""
        before = self._state
        self._state = (before + count * GAMMA) % 2**64
        return before

    def split(self) -> "Uniforms":
        """An independent stream, determined by this one's position, which does not change."""
        other = copy(self)
        other._state = int(np.random.SeedSequence(self._state).generate_state(1, np.uint64)[0])
        return other

    def take(self, *shape: int) -> NDArray[np.float64]:
        """The next uniforms, in an array of this shape."""
        count = int(np.prod(shape))
        state = np.uint64(self.skip(count))
        bits = state + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        for shift, factor in MIXING:
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        whole = (bits >> np.uint64(64 - BITS)).astype(np.float64)
        return whole.reshape(shape) * 2.0**-BITS
