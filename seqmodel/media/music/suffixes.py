"""The music formats by suffix; importing them loads no reader."""

MIDI_SUFFIXES = frozenset({".mid", ".midi", ".kar", ".rmi"})
ROLL_SUFFIXES = (".mat", ".pickle", ".pkl", ".npz", ".npy")
SOUND_FORMATS = ("wav", "flac", "ogg", "mp3")
"""Formats of music rendered by the synthesizer."""
