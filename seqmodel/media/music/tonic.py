"""The key of a piece: by how many semitones its tonic lies from C."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.midi_format import DRUM_CHANNEL

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Score

# How much of a piece's time each degree of the scale takes, in semitones above the tonic:
# J. Albrecht and D. Shanahan, "The Use of Large Corpora to Train a New Type of Key-Finding
# Algorithm", Music Perception 31(1), 2013, table 1.
MAJOR = (0.238, 0.006, 0.111, 0.006, 0.137, 0.094, 0.016, 0.214, 0.009, 0.080, 0.008, 0.081)
MINOR = (0.220, 0.006, 0.104, 0.123, 0.019, 0.103, 0.012, 0.214, 0.062, 0.022, 0.061, 0.052)


def semitones_to_c(score: "Score") -> int:
    """Return the transposition, from -5 to 6 semitones, that moves the estimated tonic to C.

    The time that each of the twelve pitch classes sounds, in ticks, is correlated with the
    profiles of the major and the minor key on every tonic, and the best key's tonic is taken, so
    that a piece in A minor goes to C minor. Drums do not count. Key signatures in the file do not
    either: many files have none or a wrong one, and they cannot tell a mode from its relatives.

    Returns 0 where the notes favour no key, as where there are none.
    """
    pitched = score.channel != DRUM_CHANNEL
    duration = (score.off_tick - score.on_tick)[pitched]
    time = np.bincount(score.pitch[pitched] % 12, weights=duration, minlength=12)
    # Rows 0 to 11: the time of each degree above the tonics C to B.
    degrees = np.stack([np.roll(time, -tonic) for tonic in range(12)])
    likeness = np.maximum(degrees @ _standardised(MAJOR), degrees @ _standardised(MINOR))
    if np.ptp(time) == 0:
        return 0
    tonic = int(likeness.argmax())
    return 12 - tonic if tonic > 5 else -tonic


def _standardised(profile: tuple[float, ...]) -> NDArray[np.float64]:
    """Return the profile with mean 0 and length 1.

    Products with it are then correlations, but for what is the same for every key: the spread of
    the piece's own times.
    """
    centred = np.array(profile) - np.mean(profile)
    standardised: NDArray[np.float64] = centred / np.linalg.norm(centred)
    return standardised
