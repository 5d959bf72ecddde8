"""The formats of music by their suffixes; using them loads no reader."""

MIDI_SUFFIXES = frozenset({".mid", ".midi", ".kar", ".rmi"})
ROLL_SUFFIXES = (".mat", ".pickle", ".pkl", ".npz", ".npy")
SOUND_FORMATS = ("wav", "flac", "ogg", "mp3")
"""Of music that is played by the synthesizer."""
