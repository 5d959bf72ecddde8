"""What pitches are called."""

import re

NOTE_NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")


def note_name(pitch: int) -> str:
    """C4 for 60."""
    return f"{NOTE_NAMES[pitch % 12]}{pitch // 12 - 1}"


def pitch_of(name: str) -> int:
    """60 for C4, c4, B#3 or 60; ValueError for what is no note."""
    if name.strip().isdecimal():
        return int(name)
    found = re.fullmatch(r"\s*(\D+?)(-?\d)\s*", name)
    if found is None:
        raise ValueError(f"{name!r} is no note")
    return 12 * (int(found[2]) + 1) + semitones_above_c(found[1])


def semitones_above_c(name: str) -> int:
    """3 for Eb, eb or D#, from -1 for Cb to 12 for B#; ValueError for what names no note."""
    found = re.fullmatch(r"([A-Ga-g])([#b]?)", name)
    if found is None:
        raise ValueError(f"{name!r} is no note")
    return NOTE_NAMES.index(found[1].upper()) + {"#": 1, "b": -1, "": 0}[found[2]]
