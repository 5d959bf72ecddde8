"""The key of a piece: how many semitones its tonic is from C."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.formats import DRUM_CHANNEL
from seqmodel.media.music.grid import LOWEST_PITCH, NOTES

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Score

# The share of a piece's time taken by each pitch, in semitones above the tonic:
# J. Albrecht and D. Shanahan, "The Use of Large Corpora to Train a New Type of Key-Finding
# Algorithm", Music Perception 31(1), 2013, table 1.
MAJOR = (0.238, 0.006, 0.111, 0.006, 0.137, 0.094, 0.016, 0.214, 0.009, 0.080, 0.008, 0.081)
MINOR = (0.220, 0.006, 0.104, 0.123, 0.019, 0.103, 0.012, 0.214, 0.062, 0.022, 0.061, 0.052)


def semitones_to_key(roll: NDArray[np.uint8], tonic: int) -> int:
    """The transposition, from -5 to 6, that moves the estimated tonic of a roll (T, 88) to `tonic`.

    0 is C. Returns 0 for a roll without notes.
    """
    time = np.bincount(np.arange(LOWEST_PITCH, LOWEST_PITCH + NOTES) % 12, roll.sum(axis=0))
    return (tonic - tonic_of(time) + 5) % 12 - 5 if roll.any() else 0


def semitones_to_c(score: "Score") -> int:
    """The transposition, from -5 to 6 semitones, that moves the estimated tonic to C.

    The time each pitch class sounds, in ticks, is correlated with the profiles of all major and
    minor keys, and the tonic of the best key is taken, so a piece in A minor goes to C minor.
    Drums are ignored. So are key signatures: many files have none or a wrong one, and they do not
    distinguish a mode from its relatives.

    Returns 0 if the notes favour no key, or there are none.
    """
    pitched = score.channel != DRUM_CHANNEL
    duration = (score.off_tick - score.on_tick)[pitched]
    tonic = tonic_of(np.bincount(score.pitch[pitched] % 12, weights=duration, minlength=12))
    return 12 - tonic if tonic > 5 else -tonic


def tonic_of(time: NDArray[Any]) -> int:
    """The estimated tonic, 0 for C to 11 for B, given how long each pitch class sounds, (12,).

    0 if the notes favour no key, or there are none.
    """
    # Rows 0 to 11: the time of each degree above the tonics C to B.
    degrees = np.stack([np.roll(time, -tonic) for tonic in range(12)])
    # Products with profiles of mean 0 and norm 1 are correlations, up to a factor that is the same
    # for every key.
    centred = [np.array(profile) - np.mean(profile) for profile in (MAJOR, MINOR)]
    likeness = [degrees @ (profile / np.linalg.norm(profile)) for profile in centred]
    return int(np.maximum(*likeness).argmax()) if np.ptp(time) else 0
