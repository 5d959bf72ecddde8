"""Bars: where in the beat and in the bar the next frame is, by the piece's time signatures.

A gated unit counts badly, and music turns on where the beats are. The place follows from the number
of frames so far and from what is given of the piece (`FrameDefinition.given`): its signatures, each
with the frame at which its first bar begins, and the units in a frame, in a beat and in a bar.
"""

from typing import Any

from seqmodel.kernels.code.language import unrolled

PLACES = 12
"""Of a beat, so that halves, thirds and quarters of it have places of their own."""
BEATS = 8
"""Beats of a bar that are told apart; later ones count as the last of them."""
LEFT = 4
"""The same of the beats that follow in the bar, more counting as the last number."""
DIGITS = 3
"""Binary digits of the number of bars since the signature began: phrases are of 2, 4 or 8."""
BARS = PLACES + BEATS + LEFT + DIGITS
"""How many numbers tell the place."""
SIGNATURE = 4
"""Integers of a signature."""


def write_place(to: Any, given: Any, frames: Any, signatures: Any) -> None:
    """The place of the next frame after so many, (BARS,); a text of `kernels.code.language`.

    One number is 1 and the others 0 of those that tell the place in the beat, the beat, and the
    beats left; then come the digits, the lowest first.
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
