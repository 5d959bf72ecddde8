"""Which part of a piece is to be drawn anew: a stretch of time, some notes, or beside a line."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.input import named
from seqmodel.media.music.corpus import load_midi, load_roll
from seqmodel.media.music.frames import (
    PianoRollFrames,
    Score,
    has_onsets,
    note_name,
    outer_notes,
    pitch_of,
    sounding,
    struck,
    with_onsets,
)
from seqmodel.media.music.grid import (
    BEATS_PER_MINUTE,
    DRUM_CHANNEL,
    HIGHEST_PITCH,
    LOWEST_PITCH,
    NOTES,
)
from seqmodel.media.music.writing import COMMON_TIME, frame_times

STRETCHES = ("bars", "frames", "time")
PARTS = (*STRETCHES, "notes", "below", "above")
"""The options that say which part; what is drawn is in all of those given."""


def filled_piece(frame: PianoRollFrames, options: Mapping[str, Any]) -> "FilledPiece | None":
    """What `sample --fill` is to draw anew, if it is given; see `FilledPiece` for errors."""
    if options.get("fill"):
        return FilledPiece(options["fill"], frame, options)
    for name in (*PARTS, "particles", "sweeps"):
        if options.get(name) is not None and options[name] is not False:
            raise UsageError(f"--{name} needs --fill FILE")
    return None


class FilledPiece:
    """A file, as the run reads it, and the part of it that is to be drawn anew.

    Attributes:
        frames: (T, 88), or (T, 176) with onsets.
        free: (T, 88), the notes to be drawn.
        transposed: semitones by which it was moved, its tonic to C.
        tempo: beats per minute.
        meter: its first time signature, if it states one.
        remarks: what is not kept of the file, one line each.
    """

    def __init__(self, path: Path, frame: PianoRollFrames, options: Mapping[str, Any]) -> None:
        """`options` are those of `sample`; UsageError if they leave nothing to draw.

        SeqmodelError, naming the file, if it cannot be read.
        """
        if not any(options.get(part) for part in PARTS):
            flags = ", ".join(f"--{part}" for part in PARTS)
            raise UsageError(f"--fill {path}: say which part to draw, by {flags}")
        self._path, self._frame = path, frame
        self.transposed, self.remarks = 0, list[str]()
        self.tempo = BEATS_PER_MINUTE
        self.meter: tuple[int, int] | None = None
        self._score: Score | None = None
        with named(f"--fill {path}", for_run=True):
            if path.suffix.lower() == ".npy":
                played, _ = load_roll(path)
                self._played = played if has_onsets(played) else with_onsets(played)
            else:
                self._read(path)
        self.frames = self._played if frame.onsets else sounding(self._played)
        self.free = self._part(options)
        if not self.free.any():
            raise UsageError(f"--fill {path}: there is nothing to draw in that part of it")

    def played(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Drawn frames as (T, 176), where the file's own notes begin and end as they do there.

        One that is drawn on where the file's ends is struck anew.
        """
        roll, given = sounding(frames) > 0, ~self.free
        begun = struck(frames) | (struck(self._played) & given & roll)
        goes_on = (sounding(self._played) > 0) & ~struck(self._played)
        ends = np.pad((roll & given)[:-1], ((1, 0), (0, 0))) & ~goes_on
        return np.concatenate([roll, begun | (roll & ends)], axis=1).astype(np.uint8)

    def _read(self, path: Path) -> None:
        frame = self._frame
        piece = load_midi(path, frame, onsets=True)
        self._played, self.transposed = piece.frames, piece.transposed
        self._score = score = piece.score
        assert score is not None
        if not score.smpte:
            self.tempo = 60e6 / int(score.tempo[0])
        self.meter = next(iter(score.meters), None)
        moved = score.pitch.astype(int) + self.transposed
        for odd, what in (
            (piece.repairs, f"was repaired: {', '.join(piece.repairs)}"),
            (
                self.transposed,
                f"was transposed by {self.transposed:+d} semitones, its tonic to C as in training, "
                "and is written in its own key",
            ),
            (
                (moved < LOWEST_PITCH).any() or (moved > HIGHEST_PITCH).any(),
                "has notes off the keyboard, moved there by octaves",
            ),
            (
                frame.grid.steps_per_beat and (score.tempo != score.tempo[0]).any(),
                "changes its tempo, which the new file does not",
            ),
            (
                _off_grid(score, frame),
                f"has notes off the run's grid ({frame.grid}), moved onto it",
            ),
            (
                not frame.drums and (score.channel == DRUM_CHANNEL).any(),
                "has drums, which are dropped",
            ),
        ):
            if odd:
                self.remarks.append(f"{path} {what}")

    def _part(self, options: Mapping[str, Any]) -> NDArray[np.bool_]:
        T = len(self.frames)
        free = np.ones((T, NOTES), bool)
        borders = {"bars": self._bars, "frames": self._frames, "time": self._seconds}
        for stretch in STRETCHES:
            if options.get(stretch):
                begin, end = borders[stretch](options[stretch])
                free[:begin] = free[end:] = False
        if options.get("notes"):
            pitches = np.arange(LOWEST_PITCH, HIGHEST_PITCH + 1) - self.transposed
            low, high = _span("notes", options["notes"], pitch_of, (pitches[0], pitches[-1]))
            within = (low <= pitches) & (pitches <= high)
            if not within.any():
                keys = f"{note_name(LOWEST_PITCH)} to {note_name(HIGHEST_PITCH)}"
                raise UsageError(f"--notes {options['notes']} holds none of the keys, {keys}")
            free &= within
        if options.get("below") or options.get("above"):
            bottom, top = _lines(sounding(self.frames))
            if options.get("below"):
                free &= np.arange(NOTES) < top[:, None]
            if options.get("above"):
                free &= np.arange(NOTES) > bottom[:, None]
        return free

    def _bars(self, text: str) -> tuple[int, int]:
        steps = self._frame.grid.steps_per_beat
        if steps is None:
            raise UsageError(
                f"--bars needs a run on a grid of beats, not {self._frame.grid}: use --time"
            )
        beats, of = self.meter or COMMON_TIME
        bar, T = 4 * beats / of * steps, len(self.frames)
        bars = max(1, -int(-T // bar))
        begin, end = _span("bars", text, _whole, (1, bars))
        if begin < 1:
            raise UsageError(f"--bars {text}: bars count from 1")
        if begin > min(end, bars):
            raise UsageError(f"--bars {text} holds none of {self._path}'s bars, 1 to {bars:,}")
        if self._score is not None and len(self._score.meters) > 1:
            self.remarks.append(
                f"{self._path} changes its metre: bars are counted in its first one, {beats}/{of}"
            )
        return round((begin - 1) * bar), round(end * bar)

    def _frames(self, text: str) -> tuple[int, int]:
        T = len(self.frames)
        begin, end = _span("frames", text, _whole, (0, T))
        if not begin < min(end, T):
            raise UsageError(f"--frames {text} holds none of {self._path}'s frames, 0 to {T - 1:,}")
        return begin, end

    def _seconds(self, text: str) -> tuple[int, int]:
        times = frame_times(len(self.frames), self._frame.grid, self.tempo, self._score)
        last = float(times[-1])
        span = _span("time", text, _seconds, (0.0, last))
        first, after = np.searchsorted(times[:-1], span).tolist()
        if not first < after:
            raise UsageError(
                f"--time {text} holds no frame of {self._path}, which lasts {last:.1f} s"
            )
        return first, after


def _lines(roll: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lowest and the highest note of each frame of a roll (T, 88): (T,) twice.

    Where it rests, those of the last frame before that does not, or at first of the first.
    """
    sounds = roll.any(axis=1)
    if not sounds.any():
        raise UsageError("--below and --above need a file with notes")
    last = np.maximum.accumulate(np.where(sounds, np.arange(len(roll)), -1))
    last[last < 0] = np.flatnonzero(sounds)[0]
    return outer_notes(roll[last])


def _off_grid(score: Score, frame: PianoRollFrames) -> bool:
    """Whether notes of the score begin between the steps of a grid of beats."""
    steps = frame.grid.steps_per_beat
    if steps is None:
        return False
    chosen = (score.channel != DRUM_CHANNEL) | frame.drums
    return bool((score.on_tick[chosen] * steps % score.ticks_per_unit).any())


def _span(
    option: str, text: str, read: Callable[[str], Any], whole: tuple[Any, Any]
) -> tuple[Any, Any]:
    """FROM:TO, of which one may be missing: then it is that of the `whole`."""
    begin, colon, end = text.partition(":")
    try:
        if not colon or not (begin or end):
            raise ValueError
        first, last = read(begin) if begin else whole[0], read(end) if end else whole[1]
    except ValueError:
        form = "LOW:HIGH, such as C2:B3" if option == "notes" else "FROM:TO"
        raise UsageError(f"--{option} must be {form}, not {text!r}") from None
    if begin and end and last < first:
        raise UsageError(f"--{option} {text} is the wrong way round")
    return first, last


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError
    return seconds


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise ValueError
    return int(text)
