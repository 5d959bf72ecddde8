"""The formats of music by suffix; constants of standard MIDI files, and our own limits.

Importing them loads no reader.
"""

MIDI_SUFFIXES = frozenset({".mid", ".midi", ".kar", ".rmi"})
ROLL_SUFFIXES = (".mat", ".pickle", ".pkl", ".npz", ".npy")
SOUND_FORMATS = ("wav", "flac", "ogg", "mp3")
"""Formats of music rendered by the synthesizer."""

DRUM_CHANNEL = 9
"""Channel 10 to musicians, who count from 1."""

GIVEN, DRAWN = "given", "drawn"
"""The names of the tracks of music that was drawn around what was there."""

END_OF_PIECE = b"end of piece"
"""The marker at the end of a piece that ends in silence. A file's own end says nothing: many
programs pad it."""

DEFAULT_TEMPO = 500_000
"""Microseconds per beat before the first tempo event: 120 beats per minute."""

LARGEST_DIVISION = 2**15 - 1
"""The most ticks per beat that a header can hold."""

LARGEST_QUANTITY = 2**28 - 1
"""The largest variable-length quantity, in deltas and in lengths."""

MAX_TICK = 2**38
"""The last tick that is read: longer than any music, and tick * tempo fits into 64 bits."""

SMPTE_TEMPO = {24: 125_000, 25: 120_000, 29: 100_100, 30: 100_000}
"""Microseconds in three frames of film, by the format's frame rates.

29 means 30000/1001 frames per second; three is the smallest count that is whole for all four.
"""
