"""Notes to piano-rolls, in exact integer arithmetic, and rolls to bytes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.music.formats import DRAWN, DRUM_CHANNEL, GIVEN
from seqmodel.media.music.grid import HIGHEST_PITCH, LOWEST_PITCH, MAX_FRAMES, NOTES, Grid
from seqmodel.media.music.onsets import struck
from seqmodel.media.words import plural

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Score


class Tally(NamedTuple):
    """What became of notes in frames; those of one pitch and tick, in unison, count as one."""

    read: int = 0
    dropped: int = 0
    """Those that fill no frame."""
    merged: int = 0
    """Those that no frame shows the beginning of: another note of their pitch begins in the same
    one or, without onsets, sounds in the one before."""

    def lines(self, *, onsets: bool) -> list[str]:
        """What happened to notes that do not show, and what to do about it, if there are any."""
        lines, of = list[str](), f"of {plural(self.read, 'note')}"
        if self.dropped:
            lines.append(
                f"dropped {self.dropped:,} {of} that fill no frame; prepare --short-notes keep, or "
                "a finer grid, keeps them"
            )
        if self.merged:
            how = "begin in the same frame as another of their pitch; a finer grid"
            if not onsets:
                how = "follow one of their pitch without a gap and join it; prepare --onsets"
            lines.append(f"{self.merged:,} {of} {how} keeps them apart")
        return lines


@dataclass(frozen=True)
class PlacedNotes:
    """The notes of a score on a grid.

    Attributes:
        tick: int64 (N,), where each note begins.
        begin: int64 (N,), the first frame that it fills.
        end: int64 (N,), the frame after the last; `begin` for one that fills none.
        row: int64 (N,), its key, 0 to 87.
        track: int64 (N,), the track that it is from.
        length: T, the frames of the piece.
    """

    tick: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    row: NDArray[np.int64]
    track: NDArray[np.int64]
    length: int

    def frames(self, *, onsets: bool) -> NDArray[np.uint8]:
        """The piano-roll (T, 88), 1 where a pitch from 21 to 108 sounds.

        With `onsets`, 88 more columns follow, 1 in the first frame that a note fills: (T, 176).
        Notes of equal pitch that begin in the same frame share one onset.
        """
        begin, end, row, T = self.begin, self.end, self.row, self.length
        # How many more notes of a key sound than in the frame before, key after key.
        change = np.zeros(NOTES * (T + 1), np.int32)
        np.add.at(change, row * (T + 1) + begin, 1)
        np.add.at(change, row * (T + 1) + end, -1)
        sounding = np.cumsum(change, out=change).reshape(NOTES, T + 1)[:, :-1].T > 0
        if not onsets:
            return np.ascontiguousarray(sounding).view(np.uint8)
        filling = begin < end
        roll = np.concatenate([sounding, np.zeros_like(sounding)], axis=1).view(np.uint8)
        roll[begin[filling], NOTES + row[filling]] = 1
        return roll

    def tally(self, frames: NDArray[np.uint8]) -> Tally:
        """What became of the notes in `frames`, those with onsets or those without."""
        # Sorting is several times as fast as np.unique. The lowest bit: whether it fills no frame.
        notes = np.sort(2 * (NOTES * self.tick + self.row) + (self.begin == self.end))
        distinct = notes[np.diff(notes >> 1, prepend=-1) > 0]
        dropped = int((distinct & 1).sum())
        return Tally(len(distinct), dropped, len(distinct) - dropped - int(struck(frames).sum()))


def place(
    score: "Score", grid: Grid, *, drums: bool, transpose: int = 0, short_notes: bool = True
) -> PlacedNotes:
    """The score's notes on a grid.

    The frame of a tick is floor(tick / step + 1/2). A note fills the frames from its onset's up to
    but excluding its end's; if that is none, its onset's with `short_notes`, else none. T is the
    frame of the last end, or of the marker that says where the piece ends. A grid in seconds
    follows the tempo.

    Args:
        score: the notes.
        grid: the length of a frame.
        drums: whether to keep the notes of channel 10.
        transpose: semitones added to every pitch, before pitches outside the piano's range are
            moved into it by octaves.
        short_notes: whether every note fills a frame at least.

    Raises:
        SourceError: if there are no notes, or the piece ends within half a step; if it has more
            than `MAX_FRAMES` frames; if the grid is in beats and the file has none.
    """
    if grid.steps_per_beat is not None and score.smpte:
        raise SourceError("is in SMPTE time, which has no beats", "--step-seconds")
    heard = np.flatnonzero((score.channel != DRUM_CHANNEL) | drums)
    if not len(heard) and not score.end_tick:
        damage = f" ({'; '.join(score.remarks)})" * bool(score.remarks)
        if len(score.pitch):
            raise SourceError(f"has no notes but drums{damage}", "--drums keep")
        raise SourceError(f"has no notes{damage}")
    on_tick, off_tick = score.on_tick[heard], score.off_tick[heard]

    frames_of = _frames_in_beats if grid.steps_per_beat else _frames_in_seconds
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
    row = _fold(score.pitch[heard].astype(np.int64) + transpose) - LOWEST_PITCH
    return PlacedNotes(on_tick, begin, end, row, score.track[heard], length)


def piano_roll(
    score: "Score", grid: Grid, *, drums: bool, transpose: int = 0, onsets: bool = False,
    short_notes: bool = True,
) -> NDArray[np.uint8]:  # fmt: skip
    """The frames (T, 88), or (T, 176) with onsets, of the notes that `place` puts on the grid."""
    placed = place(score, grid, drums=drums, transpose=transpose, short_notes=short_notes)
    return placed.frames(onsets=onsets)


def given_part(score: "Score", grid: Grid) -> NDArray[np.bool_] | None:
    """Where in its roll (T, 88) a file has notes of its track "given", if it also has one "drawn".

    Otherwise None; for errors see `place`.
    """
    names = np.array(score.track_names)
    if not {GIVEN, DRAWN} <= set(score.track_names):
        return None
    placed = place(score, grid, drums=False)
    given = (names == GIVEN)[placed.track]
    return replace(placed, end=np.where(given, placed.end, placed.begin)).frames(onsets=False) > 0


def transposed(frames: NDArray[Any], semitones: int) -> NDArray[Any]:
    """Frames (T, 88), or (T, 176) with onsets, transposed up by `semitones`, or down if negative.

    Notes that leave the piano's range are moved back into it by octaves, so none is lost.
    """
    halves = frames.reshape(len(frames), -1, NOTES)
    moved = np.zeros_like(halves)
    first = max(0, -semitones)
    end = max(first, NOTES - max(0, semitones))  # notes from `first` to here stay in the range
    moved[..., first + semitones : end + semitones] = halves[..., first:end]
    target = _fold(np.arange(LOWEST_PITCH, HIGHEST_PITCH + 1) + semitones) - LOWEST_PITCH
    for note in (*range(min(first, NOTES)), *range(end, NOTES)):
        moved[..., target[note]] |= halves[..., note]
    return moved.reshape(frames.shape)


def pack(roll: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (T, 88) as (T, 11) bytes, the lowest note in the highest bit, or (T, 176) as (T, 22).

    88 bits fill 11 bytes.
    """
    return np.packbits(roll, axis=1)


def unpack(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `pack`."""
    return np.unpackbits(packed).reshape(len(packed), 8 * packed.shape[1])


def _fold(pitch: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pitches moved into the piano's range by as few octaves as possible."""
    pitch = np.where(pitch < LOWEST_PITCH, LOWEST_PITCH + (pitch - LOWEST_PITCH) % 12, pitch)
    return np.where(pitch > HIGHEST_PITCH, HIGHEST_PITCH - (HIGHEST_PITCH - pitch) % 12, pitch)


def _frames_in_beats(score: "Score", grid: Grid, tick: NDArray[Any]) -> NDArray[Any]:
    """The frames of ticks (N,), integers of NumPy or, as objects, of Python."""
    assert grid.steps_per_beat is not None
    beat = score.ticks_per_unit
    return (2 * grid.steps_per_beat * tick + beat) // (2 * beat)


def _frames_in_seconds(score: "Score", grid: Grid, tick: NDArray[Any]) -> NDArray[Any]:
    """The same at the score's tempos, without intermediate rounding.

    Elapsed time is in units of microseconds / ticks_per_unit, below 2^38 ticks * 2^24. Twice its
    nanoseconds could overflow, so whole microseconds are split off first; flooring in two stages
    equals flooring once.
    """
    assert grid.step_nanoseconds is not None
    elapsed = np.zeros_like(score.tempo)
    np.cumsum(np.diff(score.tempo_tick) * score.tempo[:-1], out=elapsed[1:])
    at = np.searchsorted(score.tempo_tick, tick, side="right") - 1
    time = elapsed[at] + (tick - score.tempo_tick[at]) * score.tempo[at]
    micro, rest = time // score.ticks_per_unit, time % score.ticks_per_unit
    half_nanoseconds: NDArray[Any] = 2000 * micro + 2000 * rest // score.ticks_per_unit
    return (half_nanoseconds + grid.step_nanoseconds) // (2 * grid.step_nanoseconds)
