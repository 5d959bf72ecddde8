"""What the standard MIDI file format fixes, and the limits this project adds to it.

They stand apart from the reader so that using them does not load the compiler.
"""

DRUM_CHANNEL = 9
"""Channel 10 of the musicians, who count from 1."""

DEFAULT_TEMPO = 500_000
"""Microseconds per beat until the file says otherwise: 120 beats per minute."""

LONGEST_TEMPO = 2**24 - 1
"""Microseconds per beat that a tempo event can hold."""

LARGEST_DIVISION = 2**15 - 1
"""Ticks per beat that a header can hold."""

LARGEST_QUANTITY = 2**28 - 1
"""The largest number of the format's variable length, in deltas and in lengths."""

MAX_TICK = 2**38
"""The last tick that is read: no music lasts so long, and tick * tempo stays within 64 bits."""

SMPTE_TEMPO = {24: 125_000, 25: 120_000, 29: 100_100, 30: 100_000}
"""Microseconds in three frames of film, by the format's frame rates.

29 means 30000/1001 frames per second; three frames are the least that is whole for all four.
"""
