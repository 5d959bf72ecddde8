"""The notes of a score on a grid of frames."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.music.frames import folded, held_on, struck
from seqmodel.media.music.grid import (
    DRAWN,
    DRUM_CHANNEL,
    KIT,
    LOWEST_PITCH,
    MAX_FRAMES,
    NOTES,
    PIANO,
    Grid,
    Rows,
)
from seqmodel.media.music.kit import ROWS
from seqmodel.media.music.score import Score
from seqmodel.media.music.tally import Tally


@dataclass(frozen=True)
class PlacedNotes:
    """The notes of a score on a grid.

    Attributes:
        tick: int64 (N,), where each note begins.
        begin: int64 (N,), the first frame that it fills.
        end: int64 (N,), the frame after the last; `begin` for one that fills none.
        row: int64 (N,), its key, 0 to 87, or the sound of a kit, 0 to 46.
        track: int64 (N,), the track that it is from.
        velocity: uint8 (N,), how hard it is struck.
        length: T, the frames of the piece.
        rows: what rows there are.
        related, unknown, lengthened: see `Tally`.
    """

    tick: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    row: NDArray[np.int64]
    track: NDArray[np.int64]
    velocity: NDArray[np.uint8]
    length: int
    rows: Rows = PIANO
    related: int = 0
    unknown: int = 0
    lengthened: int = 0

    def frames(self, *, onsets: bool) -> NDArray[np.uint8]:
        """The piano-roll (T, 88), 1 where a pitch from 21 to 108 sounds; or a kit's hits (T, 47).

        With `onsets`, which a kit has not, 88 more columns follow, 1 in the first frame that a note
        fills. Notes of equal pitch that begin in the same frame share one onset.
        """
        D = self.rows.size
        begin, end, row, T = self.begin, self.end, self.row, self.length
        # How many more notes of a key sound than in the frame before, key after key.
        change = np.zeros(D * (T + 1), np.int32)
        np.add.at(change, row * (T + 1) + begin, 1)
        np.add.at(change, row * (T + 1) + end, -1)
        sounding = np.cumsum(change, out=change).reshape(D, T + 1)[:, :-1].T > 0
        if not onsets or self.rows == KIT:
            return np.ascontiguousarray(sounding).view(np.uint8)
        filling = begin < end
        roll = np.concatenate([sounding, np.zeros_like(sounding)], axis=1).view(np.uint8)
        roll[begin[filling], D + row[filling]] = 1
        return roll

    def velocities(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Of each note that sounds in `frames` with onsets, how hard it was struck: (T, 88).

        Of notes that share an onset the loudest counts.
        """
        filling = self.begin < self.end
        loudest = np.zeros((self.length, self.rows.size), np.uint8)
        at = self.begin[filling], self.row[filling]
        np.maximum.at(loudest, at, self.velocity[filling])
        return held_on(loudest, frames)

    def tally(self, frames: NDArray[np.uint8]) -> Tally:
        """What became of the notes in `frames`, those with onsets or those without."""
        # Sorting is several times as fast as np.unique. The lowest bit: whether it fills no frame.
        notes = np.sort(2 * (NOTES * self.tick + self.row) + (self.begin == self.end))
        distinct = notes[np.diff(notes >> 1, prepend=-1) > 0]
        dropped = int((distinct & 1).sum())
        merged = len(distinct) - dropped - int(struck(frames).sum())
        more = self.related, self.unknown, self.lengthened
        return Tally(len(distinct), dropped, merged, *more)

    def given(self, score: Score) -> NDArray[np.bool_] | None:
        """Where in the roll (T, 88) are notes of tracks but "drawn"; None if no track is that."""
        if DRAWN not in score.track_names:
            return None
        given = (np.array(score.track_names) != DRAWN)[self.track]
        return replace(self, end=np.where(given, self.end, self.begin)).frames(onsets=False) > 0


def in_frames(score: Score, *, drums: bool, kit: bool = False) -> NDArray[np.bool_]:
    """Which of the score's notes (N,) are placed in frames, with drums or without.

    With `kit` they are those of channel 10 for whose keys a kit has a sound.
    """
    of_drums: NDArray[np.bool_] = score.channel == DRUM_CHANNEL
    if kit:
        of_drums &= ROWS[score.pitch] >= 0
        return of_drums
    return np.full_like(of_drums, True) if drums else ~of_drums


def place(
    score: Score, grid: Grid, *, drums: bool, transpose: int = 0, short_notes: bool = True,
    kit: bool = False, pedal: bool = False,
) -> PlacedNotes:  # fmt: skip
    """The score's notes on a grid, which follows the tempo if it is in seconds.

    The frame of a tick is floor(tick / step + 1/2). A note fills the frames from its onset's up to
    but excluding its end's; if that is none, its onset's with `short_notes`, else none. T is the
    frame of the last end, or of the marker that says where the piece ends.

    Args:
        drums: whether to keep the notes of channel 10.
        transpose: semitones added to every pitch, before pitches outside the piano's range are
            moved into it by octaves.
        kit: whether the notes of channel 10 alone are placed, each in the frame that it begins in.
        pedal: whether notes last as long as the sustain pedal holds them.

    SourceError if there are no notes or too many frames, the piece ends within half a step, or the
    grid is in beats and the file has none.
    """
    if grid.steps_per_beat is not None and score.smpte:
        raise SourceError("is in SMPTE time, which has no beats", "--step-seconds")
    chosen = np.flatnonzero(in_frames(score, drums=drums, kit=kit))
    unknown = int((score.channel == DRUM_CHANNEL).sum()) - len(chosen) if kit else 0
    pitch, rows = score.pitch[chosen].astype(np.int64), KIT if kit else PIANO
    if not len(chosen) and (len(score.pitch) or not score.end_tick):
        damage = f" ({'; '.join(score.remarks)})" * bool(score.remarks)
        if unknown:
            raise SourceError(f"has no drums on keys for which a kit has a sound{damage}")
        if kit:
            raise SourceError(f"has no drums{damage}")
        if len(score.pitch):
            raise SourceError(f"has no notes but drums{damage}", "--drums only")
        raise SourceError(f"has no notes{damage}")
    on_tick = score.on_tick[chosen]
    off_tick = on_tick if kit else score.ends(pedal=pedal)[chosen]
    short_notes |= kit

    frames_of = frames_in_beats if grid.steps_per_beat else _frames_in_seconds
    # As Python integers: no file can make them overflow.
    lasts = [score.end_tick, int(off_tick.max(initial=0)), int(on_tick.max(initial=0))]
    ends, off, on = frames_of(score, grid, np.array(lasts, object))
    length = max(ends, off, on + short_notes)
    if length > MAX_FRAMES:
        coarser = "fewer --steps-per-beat" if grid.steps_per_beat else "a longer --step-seconds"
        raise SourceError(
            f"has {length} frames at {grid}, more than the {MAX_FRAMES} a piece may have", coarser
        )
    if length == 0:
        raise SourceError(f"ends within half a step ({grid})")

    begin, end = frames_of(score, grid, on_tick), frames_of(score, grid, off_tick)
    if short_notes:
        end = np.maximum(end, begin + 1)
    row = ROWS[pitch] if kit else folded(pitch + transpose) - LOWEST_PITCH
    moved = int((row + rows.lowest != pitch).sum()) if kit else 0
    longer = 0 if kit else int((off_tick > score.off_tick[chosen]).sum())
    of, velocity = score.track[chosen], score.velocity[chosen]
    return PlacedNotes(on_tick, begin, end, row, of, velocity, length, rows, moved, unknown, longer)


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
    assert grid.step_nanoseconds is not None
    elapsed = np.zeros_like(score.tempo)
    np.cumsum(np.diff(score.tempo_tick) * score.tempo[:-1], out=elapsed[1:])
    at = np.searchsorted(score.tempo_tick, tick, side="right") - 1
    time = elapsed[at] + (tick - score.tempo_tick[at]) * score.tempo[at]
    micro, rest = time // score.ticks_per_unit, time % score.ticks_per_unit
    half_nanoseconds: NDArray[Any] = 2000 * micro + 2000 * rest // score.ticks_per_unit
    return (half_nanoseconds + grid.step_nanoseconds) // (2 * grid.step_nanoseconds)
