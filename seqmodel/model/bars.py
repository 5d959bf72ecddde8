"""Bars: the next frame's position in the beat and in the bar, from the piece's time signatures.

A gated unit counts poorly, and music depends on where the beats are. The position follows from the
number of frames so far and what is given of the piece (`FrameDefinition.given`): its signatures,
each with the frame of its first bar, and the units in a frame, a beat and a bar.
"""

from typing import Any

from seqmodel.kernels.code.language import unrolled

PLACES = 12
"""Positions in a beat, enough to separate halves, thirds and quarters of it."""
BEATS = 8
"""Beats of a bar that are distinguished; later ones count as the last of them."""
LEFT = 4
"""Remaining beats of the bar that are distinguished; more count as the highest number."""
DIGITS = 3
"""Binary digits of the number of bars since the signature began: phrases have 2, 4 or 8."""
BARS = PLACES + BEATS + LEFT + DIGITS
"""The number of inputs that encode the position."""
SIGNATURE = 4
"""Integers per signature."""


def write_place(to: Any, given: Any, frames: Any, signatures: Any) -> None:
    """The position (BARS,) of the next frame after `frames` frames; a text of
    `kernels.code.language`.

    The position in the beat, the beat and the beats left, one-hot; then the digits, lowest first.
    """
    at = 0
    for k in range(1, signatures):
        if given[SIGNATURE * k] <= frames:
            at = SIGNATURE * k
    beat = given[at + 2]
    bar = given[at + 3]
    elapsed = (frames - given[at]) * given[at + 1]
    place = elapsed % beat * PLACES // beat
    number = min(elapsed % bar // beat, BEATS - 1)
    left = min((bar - 1 - elapsed % bar) // beat, LEFT - 1)
    for k in unrolled(PLACES):
        to[k] = float(place == k)
    for k in unrolled(BEATS):
        to[PLACES + k] = float(number == k)
    for k in unrolled(LEFT):
        to[PLACES + BEATS + k] = float(left == k)
    for k in unrolled(DIGITS):
        to[PLACES + BEATS + LEFT + k] = float(elapsed // bar >> k & 1)
