"""Notes to sound: an additive synthesizer, a few decaying sines for each note.

The tone of a pitch of frequency f in equal temperament is, t seconds after it was struck,

    s(t) = sum over k = 1..8 of  a_k exp(-k t / tau) sin(2 pi k f t),

with a_k proportional to k^-1.5 and summing to 1; partials above half the sampling rate are left
out. tau is 1.3 s at middle C and halves every 18 semitones upwards, so high notes fade sooner, as
do high partials. A hollow tone, such as a stopped pipe's or a clarinet's, has the odd partials
alone. A note fades in over 5 ms and, from its end, out over 100 ms, both along half a
cosine, so that nothing clicks.

Loudness depends on nothing but the sample itself, so a passage sounds the same whatever else the
piece holds: every note is at most a fifth of full scale; a sum x within +-0.8, which four notes,
including those fading out, never exceed, is unchanged; beyond 0.8 it is soft-clipped to
0.8 + 0.2 d / (1 + d), d = (|x| - 0.8) / 0.2, which is smooth and always below 1.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RATE = 44_100
"""Samples per second."""

CONCERT_PITCH, CONCERT_FREQUENCY = 69, 440.0
MIDDLE_C = 60

PARTIALS = 8
ROLL_OFF = 1.5
DECAY_SECONDS = 1.3
"""The time constant of middle C's fundamental."""
HALVED_AFTER = 18.0
"""Semitones over which the time constant halves."""

ATTACK = round(0.005 * RATE)
RELEASE = round(0.1 * RATE)
FADE_IN = 0.5 - 0.5 * np.cos(np.pi * np.arange(ATTACK) / ATTACK)
FADE_OUT = 0.5 + 0.5 * np.cos(np.pi * np.arange(RELEASE) / RELEASE)

LOUDEST_NOTE = 0.2
KNEE = 0.8
INAUDIBLE = 2**-16
"""Half a 16-bit level."""

BLOCK = 2**16
"""Samples rendered at a time, 1.5 s."""
STRIDE = 256
"""The stride of `_tone`, near the square root of a note's length."""


def sample_count(seconds: float) -> int:
    """Samples in a piece whose frames last `seconds`; its last notes end 100 ms later."""
    return round(seconds * RATE) + RELEASE


def render(
    notes: NDArray[np.int64], times: NDArray[np.float64], loudness: NDArray[np.float64],
    hollow: NDArray[np.bool_] | None = None,
) -> Iterator[NDArray[np.float32]]:  # fmt: skip
    """Mono sound at `RATE` in blocks (n,), in (-1, 1), `sample_count(times[-1])` samples in all.

    The same notes give the same samples.

    Args:
        notes: rows (N, 3) of first frame, frame after the last and MIDI pitch, sorted by first
            frame; notes do not interact, they only add up.
        times: (T + 1,), when each frame begins, and the last one ends, in seconds.
        loudness: (N,), of each note, at most 1.
        hollow: (N,), which have a hollow tone; none without it.
    """
    borders = np.rint(times * RATE).astype(np.int64)
    samples = sample_count(float(times[-1]))
    begin, end, pitch = borders[notes[:, 0]], borders[notes[:, 1]], notes[:, 2]
    # The time after which a note, however long it is held, rounds to zero.
    audible = np.log(LOUDEST_NOTE / INAUDIBLE) * _decay_seconds(pitch)
    last = np.minimum(end + RELEASE, begin + np.ceil(RATE * audible).astype(int))
    sounding, seen = np.arange(0), 0
    for start in range(0, samples, BLOCK):
        block = np.zeros(min(BLOCK, samples - start))
        stop = start + len(block)
        begun = int(np.searchsorted(begin, stop))
        sounding = np.append(sounding, np.arange(seen, begun))
        sounding, seen = sounding[last[sounding] > start], begun
        for note in sounding:
            first = int(begin[note])
            low, high = max(start, first), min(stop, int(last[note]))
            held = int(end[note]) - first
            tone = int(pitch[note]), hollow is not None and bool(hollow[note])
            sound = _note(*tone, held, low - first, high - first)
            block[low - start : high - start] += loudness[note] * sound
        yield _bent(block).astype(np.float32)


def _note(pitch: int, hollow: bool, held: int, low: int, high: int) -> NDArray[np.float64]:
    """Samples `low` to `high`, from its beginning, of a note held for `held` samples."""
    sound = _tone(pitch, hollow, low, high)
    if low < ATTACK:
        fade = FADE_IN[low:high]
        sound[: len(fade)] *= fade
    if high > held:
        fading = max(0, held - low)
        sound[fading:] *= FADE_OUT[low + fading - held : high - held]
    return sound


def _tone(pitch: int, hollow: bool, low: int, high: int) -> NDArray[np.float64]:
    """Samples `low` to `high` of a pitch struck at sample 0.

    A partial is the imaginary part of z^n, and z^(low + i STRIDE + j) is z^(low + i STRIDE) z^j, so
    a table over i and one over j suffice, and summing the partials is a matrix product.
    """
    exponents, near = _tables(pitch, hollow)
    rows = low + STRIDE * np.arange(-(-(high - low) // STRIDE))
    far = np.exp(np.outer(rows, exponents))
    return (np.hstack([far.real, far.imag]) @ near).reshape(-1)[: high - low]


@lru_cache(maxsize=256)  # every MIDI pitch, with either tone
def _tables(pitch: int, hollow: bool) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """(K,) log z of each partial; (2K, STRIDE) factors of `_tone`'s real and imaginary parts.

    The factors include the partials' loudness.
    """
    k = np.arange(1.0, PARTIALS + 1, 2 if hollow else 1)
    loudness = LOUDEST_NOTE * k**-ROLL_OFF / (k**-ROLL_OFF).sum()
    frequency = CONCERT_FREQUENCY * 2 ** ((pitch - CONCERT_PITCH) / 12)
    heard = k * frequency < RATE / 2
    fundamental = complex(-1 / _decay_seconds(pitch), 2 * np.pi * frequency) / RATE
    exponents = np.complex128(fundamental) * k[heard]
    near = loudness[heard, None] * np.exp(np.outer(exponents, np.arange(STRIDE)))
    return exponents, np.vstack([near.imag, near.real])


def _decay_seconds(pitch: int | NDArray[np.int64]) -> float | NDArray[np.float64]:
    """tau, the time in which the fundamental falls to 1/e."""
    return DECAY_SECONDS * 2 ** ((MIDDLE_C - pitch) / HALVED_AFTER)


def _bent(sound: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sound soft-clipped beyond `KNEE`, so that all of it is within (-1, 1)."""
    excess = np.maximum(np.abs(sound) - KNEE, 0) / (1 - KNEE)
    return np.clip(sound, -KNEE, KNEE) + np.copysign((1 - KNEE) * excess / (1 + excess), sound)
