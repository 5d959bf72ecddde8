"""Bars: the next frame's position in the beat and in the bar, from the piece's time signatures.

A gated unit counts poorly, and music depends on where the beats are. The position follows from the
number of frames so far and the piece's metres (`FrameDefinition.metres`): its signatures, each with
the frame of its first bar, and the units in a frame, a beat and a bar.
"""

from typing import Any

from seqmodel.kernels.code.language import unrolled

POSITIONS = 12
"""Positions in a beat, enough to separate halves, thirds and quarters of it."""
BEATS = 8
"""Beats of a bar that are distinguished; later ones count as the last of them."""
REMAINING = 4
"""Remaining beats of the bar that are distinguished; more count as the highest number."""
DIGITS = 3
"""Binary digits of the number of bars since the signature began: phrases have 2, 4 or 8."""
BARS = POSITIONS + BEATS + REMAINING + DIGITS
"""The number of inputs that encode the position."""
SIGNATURE = 4
"""Integers per signature."""


def write_position(out: Any, metres: Any, frames: Any, signatures: Any) -> None:
    """The position (BARS,) of the next frame after `frames` frames; a text of
    `kernels.code.language`.

    The position in the beat, the beat and the beats left, one-hot; then the digits, lowest first.
    """
    first = 0
    for k in range(1, signatures):
        if metres[SIGNATURE * k] <= frames:
            first = SIGNATURE * k
    beat = metres[first + 2]
    bar = metres[first + 3]
    elapsed = (frames - metres[first]) * metres[first + 1]
    position = elapsed % beat * POSITIONS // beat
    beat_index = min(elapsed % bar // beat, BEATS - 1)
    remaining = min((bar - 1 - elapsed % bar) // beat, REMAINING - 1)
    for k in unrolled(POSITIONS):
        out[k] = float(position == k)
    for k in unrolled(BEATS):
        out[POSITIONS + k] = float(beat_index == k)
    for k in unrolled(REMAINING):
        out[POSITIONS + BEATS + k] = float(remaining == k)
    for k in unrolled(DIGITS):
        out[POSITIONS + BEATS + REMAINING + k] = float(elapsed // (bar * (1 << k)) % 2)
