"""The drum kit: the percussion sounds of General MIDI level 1, each synthesized by rule.

A sound is a tone of frequency f plus noise, both decaying, t seconds after it was struck:

    s(t) = (1 - n) exp(-t / tau) sin(2 pi f (t + g (1 - exp(-t / g)))) + n exp(-t / tau') w(t)

The noise w is white above a cutoff and falls by 6 dB an octave below it; its largest sample is 1.
Skins (f below 450 Hz) begin an octave higher and fall to their pitch within some g = 15 ms;
other tones have g = 0.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import KIT, PIANO

SKIN, GLIDE = 450.0, 0.015
AUDIBLE_DECAYS = 9.5
"""Time constants after which a sound a fifth of full scale rounds to nothing in 16 bits."""
ATTACK = 0.0005
"""Seconds, so that noise does not begin with a click louder than itself."""


class Sound(NamedTuple):
    """One sound of the kit: f in Hz, tau, n, the cutoff in Hz and tau'."""

    name: str
    tone: float
    tone_seconds: float
    noise: float
    cutoff: float
    noise_seconds: float


SOUNDS = (
    Sound("acoustic bass drum", 52, 0.16, 0.06, 800, 0.012),
    Sound("bass drum", 60, 0.13, 0.10, 1500, 0.010),
    Sound("side stick", 1700, 0.012, 0.40, 2000, 0.010),
    Sound("acoustic snare", 190, 0.070, 0.65, 1500, 0.080),
    Sound("hand clap", 1000, 0.010, 0.95, 1200, 0.060),
    Sound("electric snare", 220, 0.060, 0.70, 2500, 0.070),
    Sound("low floor tom", 78, 0.20, 0.08, 1000, 0.020),
    Sound("closed hi-hat", 7000, 0.010, 0.95, 7000, 0.022),
    Sound("high floor tom", 95, 0.19, 0.08, 1000, 0.020),
    Sound("pedal hi-hat", 6000, 0.010, 0.95, 5500, 0.030),
    Sound("low tom", 115, 0.18, 0.08, 1200, 0.020),
    Sound("open hi-hat", 7000, 0.100, 0.95, 6500, 0.180),
    Sound("low-mid tom", 140, 0.17, 0.08, 1200, 0.020),
    Sound("high-mid tom", 170, 0.16, 0.08, 1500, 0.020),
    Sound("crash cymbal 1", 4200, 0.40, 0.92, 4500, 0.50),
    Sound("high tom", 205, 0.15, 0.08, 1500, 0.020),
    Sound("ride cymbal 1", 3300, 0.30, 0.80, 6000, 0.25),
    Sound("Chinese cymbal", 2300, 0.20, 0.92, 3000, 0.40),
    Sound("ride bell", 2600, 0.35, 0.30, 6000, 0.15),
    Sound("tambourine", 8000, 0.060, 0.85, 8000, 0.070),
    Sound("splash cymbal", 5200, 0.15, 0.92, 5500, 0.22),
    Sound("cowbell", 560, 0.090, 0.10, 2500, 0.020),
    Sound("crash cymbal 2", 3800, 0.45, 0.92, 4000, 0.55),
    Sound("vibraslap", 2800, 0.10, 0.70, 2500, 0.25),
    Sound("ride cymbal 2", 3000, 0.30, 0.80, 5500, 0.28),
    Sound("high bongo", 420, 0.060, 0.10, 2000, 0.010),
    Sound("low bongo", 310, 0.080, 0.10, 2000, 0.010),
    Sound("mute high conga", 340, 0.030, 0.25, 1500, 0.015),
    Sound("open high conga", 340, 0.130, 0.08, 1500, 0.010),
    Sound("low conga", 230, 0.160, 0.08, 1500, 0.010),
    Sound("high timbale", 440, 0.130, 0.25, 2500, 0.040),
    Sound("low timbale", 330, 0.160, 0.25, 2500, 0.040),
    Sound("high agogo", 1250, 0.120, 0.05, 4000, 0.020),
    Sound("low agogo", 940, 0.130, 0.05, 4000, 0.020),
    Sound("cabasa", 7000, 0.010, 0.95, 6500, 0.035),
    Sound("maracas", 8000, 0.010, 0.95, 8000, 0.022),
    Sound("short whistle", 2300, 0.060, 0.15, 3000, 0.050),
    Sound("long whistle", 2300, 0.250, 0.15, 3000, 0.220),
    Sound("short guiro", 2500, 0.030, 0.80, 3000, 0.050),
    Sound("long guiro", 2500, 0.120, 0.80, 3000, 0.180),
    Sound("claves", 2500, 0.025, 0.05, 3000, 0.005),
    Sound("high wood block", 1150, 0.028, 0.12, 2000, 0.008),
    Sound("low wood block", 820, 0.034, 0.12, 2000, 0.008),
    Sound("mute cuica", 720, 0.040, 0.25, 1500, 0.030),
    Sound("open cuica", 520, 0.130, 0.25, 1500, 0.080),
    Sound("mute triangle", 5200, 0.045, 0.10, 7000, 0.020),
    Sound("open triangle", 5200, 0.450, 0.05, 7000, 0.050),
)
"""By row, from key 35 on."""


SUBSTITUTES = {
    27: 76, 28: 39, 29: 73, 30: 73, 31: 37, 32: 75, 33: 77, 34: 67,
    82: 70, 83: 54, 84: 81, 85: 75, 86: 41, 87: 41,
}  # fmt: skip
"""Keys that only General MIDI level 2 and similar kits have -> the most similar one: high Q, slap,
scratches, sticks, clicks and metronome bell; shaker, jingle bell, bell tree, castanets and surdos.
"""


ROWS = np.array([SUBSTITUTES.get(key, key) for key in range(128)]) - KIT[0]
ROWS[(ROWS < 0) | (len(KIT) <= ROWS)] = -1
"""The row of each key, -1 where a kit has no sound for it."""


# Where drums are parts beside pitched notes, they lie on rows that these hardly use: a row can hold
# but one note, and on the row of its key a kick would cut off the bass.

BY_USE = (
    42, 36, 38, 46, 44, 49, 40, 35, 51, 54, 57, 37, 39, 70, 82, 45, 47, 43, 48, 41, 50, 69, 53, 59,
    56, 55, 52, 62, 63, 64, 60, 61, 81, 80, 75, 67, 68, 76, 77, 65, 66, 58, 73, 74, 71, 72, 78, 79,
)  # fmt: skip
"""The MIDI keys of drums, roughly from those that bands strike most."""
ABOVE = 27
"""How many of these lie above a band's pitches, the commonest on top; the next are below them, and
rare ones, which only General MIDI level 2 has, between."""
ALL_KEYS = [*dict.fromkeys([*BY_USE, *SUBSTITUTES, *PIANO])]
PART_KEYS = (*ALL_KEYS[ABOVE:], *reversed(ALL_KEYS[:ABOVE]))
"""The MIDI key of the drum on each row (88,) of new frames; frames state what theirs have."""


@lru_cache(maxsize=len(KIT))
def drum_sound(key: int, rate: int) -> NDArray[np.float64]:
    """The sound of a key, (n,) samples at `rate` within [-1, 1]; always the same."""
    _, tone, tone_seconds, noise, cutoff, noise_seconds = SOUNDS[key - KIT[0]]
    t = np.arange(round(AUDIBLE_DECAYS * max(tone_seconds, noise_seconds) * rate)) / rate
    glide = GLIDE * -np.expm1(-t / GLIDE) if tone < SKIN else 0.0
    tone_part = np.exp(-t / tone_seconds) * np.sin(2 * np.pi * tone * (t + glide))
    spectrum = np.fft.rfft(2 * np.random.default_rng(key).random(len(t)) - 1)
    frequency = np.fft.rfftfreq(len(t), 1 / rate)
    hiss = np.fft.irfft(spectrum * (frequency / np.hypot(frequency, cutoff)), len(t))
    hiss *= np.exp(-t / noise_seconds) / np.abs(hiss).max()
    sound: NDArray[np.float64] = (1 - noise) * tone_part + noise * hiss
    return sound * np.minimum(t / ATTACK, 1)
