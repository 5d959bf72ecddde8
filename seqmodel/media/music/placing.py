"""The notes of a score on a grid of frames, and what became of them there."""

import cmath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.marks import MARKS
from seqmodel.media.music.frames import PianoRollFrames, fold, hold, marks_in, struck
from seqmodel.media.music.grid import (
    DRAWN,
    KIT,
    KIT_KEYS,
    LOWEST_PITCH,
    MAX_FRAMES,
    NOTES,
    Grid,
)
from seqmodel.media.music.midi import Score
from seqmodel.media.words import plural

ON_GRID = 1 / 12
"""An onset this far from a step, in steps, lies on the grid: one of six does by chance."""
STEADY = 0.8
"""Music keeps to the beat if the mean direction of its onsets within a sixteenth, on a circle that
each sixteenth goes round, is as far from 0; on coarser grids, within a step as well."""
FEW = 16
"""If onsets are fewer, the missing ones count as having no direction."""


class Tally(NamedTuple):
    """What became of notes in frames; those of one pitch and tick, in unison, count as one."""

    read: int = 0
    dropped: int = 0
    """Those that fill no frame."""
    merged: int = 0
    """Those that no frame shows the beginning of: another note of their pitch begins in the same
    one or, without onsets, sounds in the one before."""
    related: int = 0
    """Hits on keys beyond those of General MIDI level 1, which get a related sound; see `kit`."""
    unknown: int = 0
    """Hits left out, on keys for which a kit has no sound; not among those read."""
    lengthened: int = 0
    """Those that the sustain pedal lengthens, each of notes in unison."""
    shared: int = 0
    """Those that begin on a key which another part strikes or holds there."""

    def to_json(self) -> dict[str, int]:
        always = ("read", "dropped", "merged")
        return {name: n for name, n in self._asdict().items() if n or name in always}

    def lines(self, *, onsets: bool, kit: bool = False) -> list[str]:
        """What happened to notes that do not show, and what to do about it, if there are any."""
        of = f"of {plural(self.read, 'hit' if kit else 'note')}"
        how = "follow one of their pitch without a gap; prepare --onsets"
        if onsets or kit:
            same = "sound" if kit else "pitch"
            how = f"begin in the same frame as another of their {same}; a finer grid"
        lines = {
            "related": f"{plural(self.related, 'hit')} on keys outside {KIT_KEYS}, those of "
            "General MIDI, got a related sound",
            "unknown": f"left out {plural(self.unknown, 'hit')} on keys for which a kit has no "
            "sound",
            "dropped": f"dropped {self.dropped:,} {of} that fill no frame; prepare --short-notes "
            "keep, or a finer grid, keeps them",
            "shared": f"another part already sounds on the key of {self.shared:,} {of}: the key "
            "belongs to the part that struck it last, or to the first in the same frame",
            "merged": f"merged {self.merged:,} {of} that {how} keeps them apart",
        }
        return [line for name, line in lines.items() if getattr(self, name)]


@dataclass(frozen=True)
class PlacedNotes:
    """The notes of a score on the grid of a `frame`.

    Attributes:
        chosen: (N,), which of the score's notes they are.
        begin, end: (N,), the first frame that each fills, and the one after the last: the same for
            a note that fills none.
        row: (N,), its key, 0 to 87, or the sound of a kit, 0 to 46.
        length: T, the frames of the piece.
        lag: the ticks by which all notes lag behind the beat, see `lag_of`.
    """

    score: Score
    frame: PianoRollFrames
    chosen: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    row: NDArray[np.int64]
    length: int
    lag: int = 0

    def frames(self, *, onsets: bool) -> NDArray[np.uint8]:
        """The piano-roll (T, 88), 1 where a pitch from 21 to 108 sounds; or a kit's hits (T, 47).

        With `onsets`, which a kit has not, 88 more columns follow, 1 in the first frame that a note
        fills. Notes of equal pitch that begin in the same frame share one onset.
        """
        D, T, strikes = len(self.frame.rows), self.length, onsets and not self.frame.kit
        roll = np.zeros((T, width := D * (1 + strikes)), np.uint8)
        # Key after key in order of time, how many frames each note adds to those before.
        key = self.row * T
        order = (key + self.begin).argsort()
        first, last = (key + self.begin)[order], np.maximum.accumulate((key + self.end)[order])
        count = last - first
        count[1:] = np.minimum(count[1:], last[1:] - last[:-1])
        behind = width * (last - key[order] - count.cumsum()) + self.row[order]
        roll.reshape(-1)[np.repeat(behind, count) + np.arange(0, width * count.sum(), width)] = 1
        if strikes:
            filling = self.begin < self.end
            roll[self.begin[filling], D + self.row[filling]] = 1
        return roll

    def with_marks(
        self, frames: NDArray[np.uint8], marks: Mapping[str, NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        """`frames` (T, 176) with these `marks` (N,) of each note that sounds, others being 0.

        Of notes that share an onset one of the first part counts, and of those the loudest.
        """
        with_marks = np.zeros((self.length, (2 + len(MARKS)) * NOTES), np.uint8)
        with_marks[:, : 2 * NOTES] = frames
        loud = self.score.velocity[self.chosen]
        order = np.lexsort((loud, -marks.get("part", np.zeros_like(loud))))  # modulo 256: 0 first
        order = order[(self.begin < self.end)[order]]
        at = self.begin[order], self.row[order]
        for name, numbers in marks.items():
            at_onset = np.zeros((self.length, NOTES), np.uint8)
            at_onset[at] = numbers[order]  # of several at one place the last
            marks_in(with_marks)[name][:] = hold(at_onset, frames)
        return with_marks

    def tally(self, frames: NDArray[np.uint8], parts: NDArray[np.uint8] | None = None) -> Tally:
        """What became of them; `parts` are those of the score's notes, if known."""
        score, chosen = self.score, self.chosen
        # Sorting is several times as fast as np.unique. The lowest bit: whether it fills no frame.
        notes = np.sort(2 * (NOTES * score.on_tick[chosen] + self.row) + (self.begin == self.end))
        cells = notes >> 1
        distinct = notes[np.append(True, cells[1:] > cells[:-1])[: len(notes)]]
        dropped = int((distinct & 1).sum())
        merged = len(distinct) - dropped - int(np.count_nonzero(struck(frames)))
        unknown = int(score.of_drums.sum() - score.of_drums[chosen].sum())
        if self.frame.kit:
            related = int((self.row + KIT[0] != score.pitch[chosen]).sum())
            return Tally(len(distinct), dropped, merged, related, unknown)
        longer = (score.ends(pedal=self.frame.pedal) > score.off_tick)[chosen]
        shared = 0
        if parts is not None and parts.any():
            sounding = np.zeros((self.length, NOTES), np.uint8)
            for part in np.unique(parts[chosen]).tolist():
                sounding += self.where(parts == part)
            shared = int(((sounding > 1) & struck(frames)).sum())
        unknown *= self.frame.drums  # else all are dropped
        return Tally(len(distinct), dropped, merged, 0, unknown, int(longer.sum()), shared)

    def given_mask(self) -> NDArray[np.bool_] | None:
        """Where in the roll (T, 88) are notes of tracks that were not drawn; None if none was."""
        drawn = np.array([f"{name} ".startswith(f"{DRAWN} ") for name in self.score.track_names])
        if not drawn.any():
            return None
        return self.where(~drawn[self.score.track])

    def where(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Where in the roll (T, 88) some of the score's notes sound."""
        end = np.where(kept[self.chosen], self.end, self.begin)
        return replace(self, end=end).frames(onsets=False) > 0


def lag_of(on_tick: NDArray[np.int64], beat: int, steps: int = 4) -> int:
    """By how many ticks music that keeps to the beat lags behind it, below 0 leads it; else 0.

    Songs that were recorded and then matched to beats do so throughout. It is about half a step at
    most, of `steps` in a beat, and early if near half; `on_tick` (N,) are the onsets.
    """
    if not (after := steps * on_tick % beat).any():  # most scores, quickly
        return 0
    angle = 2 * np.pi / beat * after
    mean = complex(np.cos(angle).sum(), np.sin(angle).sum()) / max(len(angle), FEW)
    lag = cmath.phase(mean) / (2 * np.pi)
    lag -= lag > 0.5 - ON_GRID / 2  # else a drawn note could move the bars of a song
    return round(lag * beat / steps) if abs(mean) > STEADY and abs(lag) > ON_GRID else 0


def in_frames(score: Score, frame: PianoRollFrames) -> NDArray[np.bool_]:
    """Which of the score's notes (N,) such frames have: of drums, hits on keys with a row."""
    rows = frame.drum_rows
    hits = frame.drums if rows is None else rows[score.pitch] >= 0
    return np.where(score.of_drums, hits, not frame.kit)


def missing_kinds(score: Score, frame: PianoRollFrames) -> list[str]:
    """The kinds of notes, in words, of which such frames do not have all of the score's."""
    missing = score.of_drums[~in_frames(score, frame)]
    drums = "drums on keys without a sound" if frame.kit or frame.drums else "drums"
    kinds = {drums: missing.any(), "notes besides drums": not missing.all()}
    return [kind for kind, found in kinds.items() if found]


def place(score: Score, frame: PianoRollFrames, *, transpose: int = 0) -> PlacedNotes:
    """The score's notes on the grid of such frames, which follows the tempo if it is in seconds.

    The frame of a tick is floor(tick / step + 1/2); on a grid of beats, of notes that are not all
    exactly on it, the lag of all is taken off before, if there is one. A note fills the frames from
    its onset's up to but excluding its end's; if that is none, its onset's with `short_notes`, else
    none; a hit of a kit its onset's. Pitches are moved by `transpose` semitones, except drums of
    frames with parts, then into the piano's range by octaves. T is the frame of the last end, or of
    the marker that says where the piece ends.

    SourceError if there are no notes or too many frames, the piece ends within half a step, or the
    grid is in beats and the file has none.
    """
    grid, kit = frame.grid, frame.kit
    if grid.steps_per_beat is not None and score.smpte:
        raise SourceError("is in SMPTE time, which has no beats", "--step-seconds")
    chosen = np.flatnonzero(in_frames(score, frame))
    if not len(chosen) and (len(score.pitch) or not score.end_tick):
        damage = f" ({'; '.join(score.remarks)})" * bool(score.remarks)
        if kit and score.of_drums.any():
            raise SourceError(f"has no drums on keys for which a kit has a sound{damage}")
        if kit:
            raise SourceError(f"has no drums{damage}")
        if len(score.pitch):
            raise SourceError(f"has no notes but drums{damage}", "--drums only")
        raise SourceError(f"has no notes{damage}")
    on_tick = score.on_tick[chosen]
    off_tick = on_tick if kit else score.ends(pedal=frame.pedal)[chosen]
    short_notes = frame.short_notes or kit
    lag = 0
    if (steps := grid.steps_per_beat) and (on_tick * steps % score.ticks_per_unit).any():
        beat = score.ticks_per_unit
        lag = lag_of(on_tick, beat) and lag_of(on_tick, beat, min(steps, 4))
        on_tick, off_tick = (np.maximum(tick - lag, 0) for tick in (on_tick, off_tick))

    frames_of = frames_in_beats if grid.steps_per_beat else _frames_in_seconds
    # As Python integers: no file can make them overflow.
    lasts = [score.end_tick, int(off_tick.max(initial=0)), int(on_tick.max(initial=0))]
    ends, off, on = frames_of(score, grid, np.array(lasts, object))
    length = max(ends, off, on + short_notes)
    if length > MAX_FRAMES:
        coarser = "fewer --steps-per-beat" if grid.steps_per_beat else "a longer --step-seconds"
        raise SourceError(
            f"has {length:,} frames at {grid}, above the {MAX_FRAMES:,} a piece may have", coarser
        )
    if length == 0:
        raise SourceError(f"ends within half a step ({grid})")

    begin, end = frames_of(score, grid, on_tick), frames_of(score, grid, off_tick)
    if short_notes:
        end = np.maximum(end, begin + 1)
    of_drums, pitch = score.of_drums[chosen], score.pitch[chosen]
    row = fold(pitch + transpose * ~(of_drums & ("part" in frame.marks))) - LOWEST_PITCH
    if (rows := frame.drum_rows) is not None:
        row = np.where(of_drums, rows[pitch], row)
    return PlacedNotes(score, frame, chosen, begin, end, row, length, lag)


def frames_in_beats(score: Score, grid: Grid, tick: Any) -> Any:
    """The frames of a tick or of ticks (N,), integers of Python or of NumPy, or as objects."""
    assert grid.steps_per_beat is not None
    beat = score.ticks_per_unit
    return (2 * grid.steps_per_beat * tick + beat) // (2 * beat)


def _frames_in_seconds(score: Score, grid: Grid, tick: NDArray[Any]) -> NDArray[Any]:
    """The same at the score's tempos, without intermediate rounding.

    Elapsed time is in microseconds / ticks_per_unit, below 2^38 ticks * 2^24. Twice its nanoseconds
    could overflow, so whole microseconds are split off first: flooring twice equals flooring once.
    """
    elapsed = np.zeros_like(score.tempo)
    np.cumsum(np.diff(score.tempo_tick) * score.tempo[:-1], out=elapsed[1:])
    at = np.searchsorted(score.tempo_tick, tick, side="right") - 1
    time = elapsed[at] + (tick - score.tempo_tick[at]) * score.tempo[at]
    micro, rest = time // score.ticks_per_unit, time % score.ticks_per_unit
    half_nanoseconds: NDArray[Any] = 2000 * micro + 2000 * rest // score.ticks_per_unit
    return (half_nanoseconds + grid.step_nanoseconds) // (2 * grid.step_nanoseconds)
