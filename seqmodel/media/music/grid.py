"""The time grid, the formats of music, their limits, names of notes; no NumPy."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from seqmodel.errors import SourceError, UsageError

# ---- formats, of standard MIDI files among them, and limits --------------------------------------

MIDI_SUFFIXES = frozenset({".mid", ".midi", ".kar", ".rmi"})
ROLL_SUFFIXES = (".mat", ".pickle", ".pkl", ".npz", ".npy", ".json")
SOUND_FORMATS = ("wav", "flac", "ogg", "mp3")
"""Formats of music rendered by the synthesizer."""

DRUM_KIND = "drums"
"""The kind of frames of a drum kit."""
DRUM_CHANNEL = 9
"""Channel 10 to musicians, who count from 1."""

GIVEN, DRAWN = "given", "drawn"
"""The names of tracks of given notes, unless they keep their own, and of drawn notes."""

END_OF_PIECE = b"end of piece"
"""The marker at the end of a piece that ends in silence. A file's own end means nothing, because
many programs pad it."""

MAX_DIVISION = 2**15 - 1
"""The most ticks per beat that a header can state."""

MAX_TICK = 2**38
"""The last tick that is read: later than any music, and tick * tempo fits into 64 bits."""

# ---- defaults ------------------------------------------------------------------------------------

STEPS_PER_BEAT = 4
PUBLISHED_STEPS_PER_BEAT = 2
"""The published rolls of Boulanger-Lewandowski et al. 2012 are in eighth notes."""

SAMPLE_LENGTH = 256
"""Frames in a sampled piece."""

PARTICLES, SWEEPS = 64, 2
"""See `sampling.filling`; chosen by the figures in its README."""

DEFAULT_BPM = 120.0
"""The tempo if none is stated."""

Restrike = Literal["close", "discard"]
"""Whether a note struck again while it sounds ends there, or is discarded."""

MIN_TEMPO, MAX_TEMPO = 4.0, 1000.0
"""Limits of tempos, in beats per minute."""


# ---- grid ----------------------------------------------------------------------------------------

LOWEST_PITCH = 21
HIGHEST_PITCH = 108
NOTES = HIGHEST_PITCH - LOWEST_PITCH + 1
"""The keys of a piano, A0 to C8; the width of a piano-roll."""

PIANO = range(LOWEST_PITCH, HIGHEST_PITCH + 1)
KIT = range(35, 82)
"""The rows of a frame, by MIDI key: of a kit the percussion sounds of General MIDI level 1, on
channel 10, which `kit.SOUNDS` names."""
KIT_KEYS = f"{KIT[0]} to {KIT[-1]}"
REST = -1
"""Stands for the pitch of a silent voice."""

MAX_FRAMES = 1_000_000
"""Per piece: some 35 hours of sixteenths at 120 beats per minute, 88 MB as a roll. A longer one is
a damaged file or has a wrong grid."""

MAX_STEP_NANOSECONDS = 60 * 10**9
"""One minute; keeps the exact arithmetic of `placing.place` within 64 bits."""


@dataclass(frozen=True)
class Grid:
    """How a piece is cut into frames: equal parts of a quarter note, or of real time.

    Exactly one is set, by `of_beats` or `of_seconds`; UsageError if it is out of range.
    """

    steps_per_beat: int | None = None
    step_nanoseconds: int = 0

    def __post_init__(self) -> None:
        steps, nanoseconds = self.steps_per_beat, self.step_nanoseconds
        if (steps is None) == (nanoseconds == 0):
            raise UsageError("give either --steps-per-beat or --step-seconds")
        if steps is not None and not 1 <= steps <= MAX_DIVISION:  # as in MIDI
            raise UsageError(f"--steps-per-beat must be from 1 to {MAX_DIVISION}, not {steps}")
        if not 0 <= nanoseconds <= MAX_STEP_NANOSECONDS:
            raise UsageError(f"--step-seconds must be above 0 and at most 60, not {self._seconds}")

    @classmethod
    def of_beats(cls, steps_per_beat: int) -> "Grid":
        return cls(steps_per_beat=steps_per_beat)

    @classmethod
    def of_seconds(cls, seconds: str | int | float | Decimal) -> "Grid":
        """A grid of frames of exactly this length as written: the float 0.6 is six tenths.

        UsageError if it is not a number, out of range or finer than a nanosecond.
        """
        try:
            exact = Decimal(str(seconds).strip())
        except InvalidOperation:
            raise UsageError(f"--step-seconds must be a number, not {seconds!r}") from None
        if not exact.is_finite() or not 0 < exact <= MAX_STEP_NANOSECONDS // 10**9:
            raise UsageError(f"--step-seconds must be above 0 and at most 60, not {seconds}")
        nanoseconds = exact * 10**9
        if nanoseconds != int(nanoseconds):
            raise UsageError(f"--step-seconds {seconds} is finer than a nanosecond")
        return cls(step_nanoseconds=int(nanoseconds))

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "Grid | None":
        """The grid that a command's options ask for, if any."""
        steps_per_beat, step_seconds = options.get("steps_per_beat"), options.get("step_seconds")
        if steps_per_beat is not None and step_seconds is not None:
            raise UsageError("--steps-per-beat and --step-seconds exclude each other")
        if step_seconds is not None:
            return cls.of_seconds(step_seconds)
        return None if steps_per_beat is None else cls.of_beats(steps_per_beat)

    @classmethod
    def from_json(cls, values: Any) -> "Grid":
        """The inverse of `to_json`; SourceError if invalid, as in a manifest edited by hand."""
        known = {"steps_per_beat", "step_nanoseconds"}
        whole = isinstance(values, dict) and all(type(value) is int for value in values.values())
        if not whole or not set(values) <= known:
            raise SourceError(f"holds an invalid grid: {values!r}")
        try:
            return cls(**values)
        except UsageError as error:
            raise SourceError(f"holds an impossible grid: {error}") from error

    def to_json(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value}

    def seconds_per_frame(self, tempo_bpm: float) -> float:
        """The length of a frame in seconds at a tempo in beats per minute."""
        if self.steps_per_beat is not None:
            return 60 / (tempo_bpm * self.steps_per_beat)
        return self.step_nanoseconds / 1e9

    @property
    def option(self) -> str:
        beats = self.steps_per_beat
        return f"--steps-per-beat {beats}" if beats else f"--step-seconds {self._seconds}"

    @property
    def _seconds(self) -> str:
        """The length of a frame, exactly."""
        return f"{Decimal(self.step_nanoseconds).scaleb(-9).normalize():f}"

    def __str__(self) -> str:
        if self.steps_per_beat is not None:
            return f"{self.steps_per_beat} step{'s' * (self.steps_per_beat > 1)} per beat"
        return f"{self._seconds} s per step"


# ---- names of pitches ----------------------------------------------------------------------------

NOTE_NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")


def note_name(pitch: int) -> str:
    """The name of a MIDI pitch: C4 for 60."""
    return f"{NOTE_NAMES[pitch % 12]}{pitch // 12 - 1}"


def pitch_of(name: str) -> int:
    """The MIDI pitch: 60 for C4, c4, B#3 or 60; ValueError for what is not a note."""
    if name.strip().isdecimal():
        return int(name)
    found = re.fullmatch(r"\s*(\D+?)(-?\d)\s*", name)
    if found is None:
        raise ValueError(f"{name!r} is not a note")
    return 12 * (int(found[2]) + 1) + semitones_above_c(found[1])


def semitones_above_c(name: str) -> int:
    """3 for Eb, eb or D#, from -1 for Cb to 12 for B#; ValueError for what is not a note."""
    found = re.fullmatch(r"([A-Ga-g])([#b]?)", name)
    if found is None:
        raise ValueError(f"{name!r} is not a note")
    return NOTE_NAMES.index(found[1].upper()) + {"#": 1, "b": -1, "": 0}[found[2]]
