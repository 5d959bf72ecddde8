"""Places in bars, from quarter notes as fractions."""

import math
from fractions import Fraction

METRES = [(4, 4), (3, 4), (6, 8), (9, 8), (12, 8), (5, 4), (7, 8), (3, 8), (2, 2), (3, 16), (11, 4)]


def place_of(frame, found, steps):
    """(Place in the beat, beat, bar, beats of a bar) of a frame, of `steps` a quarter note.

    `found` are signatures (frame, beats, of).
    """
    first, beats, of = max(each for each in found if each[0] <= frame)
    dotted = of >= 8 and beats in (6, 9, 12)
    count = beats // 3 if dotted else beats
    elapsed = Fraction(frame - first, steps) / Fraction(4 * (3 if dotted else 1), of)  # in beats
    number = math.floor(elapsed)
    return elapsed - number, number % count, number // count, count
