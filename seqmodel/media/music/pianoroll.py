"""Notes to piano-rolls, in exact integer arithmetic, and rolls to bytes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.music.formats import DRAWN, DRUM_CHANNEL, GIVEN
from seqmodel.media.music.grid import HIGHEST_PITCH, LOWEST_PITCH, MAX_FRAMES, NOTES, Grid

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Score


def piano_roll(
    score: "Score", grid: Grid, *, drums: bool, transpose: int = 0, onsets: bool = False
) -> NDArray[np.uint8]:
    """The score as a piano-roll: uint8 (T, 88), 1 where a pitch from 21 to 108 sounds.

    The frame of a tick is floor(tick / step + 1/2). A note fills the frames from its onset's up to
    but excluding its end's, possibly none. T is the frame of the last end. A grid in seconds
    follows the tempo.

    With `onsets`, 88 more columns follow, 1 in the first frame that a note fills: (T, 176). Notes
    of equal pitch that begin in the same frame share one onset; notes that fill no frame have none.

    Args:
        score: the notes.
        grid: the length of a frame.
        drums: whether to keep the notes of channel 10.
        transpose: semitones added to every pitch, before pitches outside the piano's range are
            moved into it by octaves.
        onsets: whether to mark where notes begin.

    Raises:
        SourceError: if there are no notes, or the piece ends within half a step; if it has more
            than `MAX_FRAMES` frames; if the grid is in beats and the file has none.
    """
    if grid.steps_per_beat is not None and score.smpte:
        raise SourceError("is in SMPTE time, which has no beats", "--step-seconds")
    on_tick, off_tick, pitch = score.on_tick, score.off_tick, score.pitch
    if not drums:
        melodic = score.channel != DRUM_CHANNEL
        on_tick, off_tick, pitch = on_tick[melodic], off_tick[melodic], pitch[melodic]
    if not len(pitch):
        damage = f" ({'; '.join(score.remarks)})" * bool(score.remarks)
        if len(score.pitch):
            raise SourceError(f"has no notes but drums{damage}", "--drums keep")
        raise SourceError(f"has no notes{damage}")

    frames_of = _frames_in_beats if grid.steps_per_beat else _frames_in_seconds
    # As a Python integer: no file can make it overflow.
    length = int(frames_of(score, grid, np.array([int(off_tick.max())], object))[0])
    if length > MAX_FRAMES:
        coarser = "fewer --steps-per-beat" if grid.steps_per_beat else "a longer --step-seconds"
        raise SourceError(
            f"has {length} frames at {grid}, more than the {MAX_FRAMES} a piece may have", coarser
        )
    if length == 0:
        raise SourceError(f"ends within half a step ({grid})")

    begin, end = frames_of(score, grid, on_tick), frames_of(score, grid, off_tick)
    row = _fold(pitch.astype(np.int64) + transpose) - LOWEST_PITCH
    # How many more notes of a key sound than in the frame before, key after key.
    change = np.zeros(NOTES * (length + 1), np.int32)
    np.add.at(change, row * (length + 1) + begin, 1)
    np.add.at(change, row * (length + 1) + end, -1)
    sounding = np.cumsum(change, out=change).reshape(NOTES, length + 1)[:, :-1].T > 0
    if not onsets:
        return np.ascontiguousarray(sounding).view(np.uint8)
    filling = begin < end
    roll = np.concatenate([sounding, np.zeros_like(sounding)], axis=1).view(np.uint8)
    roll[begin[filling], NOTES + row[filling]] = 1
    return roll


def given_part(score: "Score", grid: Grid) -> NDArray[np.bool_] | None:
    """Where in its roll (T, 88) a file has notes of its track "given", if it also has one "drawn".

    Otherwise None; for errors see `piano_roll`.
    """
    names = np.array(score.track_names)
    if not {GIVEN, DRAWN} <= set(score.track_names):
        return None
    given = (names == GIVEN)[score.track]
    # A note of length 0 fills no frame, and counts towards the length.
    score = replace(score, on_tick=np.where(given, score.on_tick, score.off_tick))
    return piano_roll(score, grid, drums=False) > 0


def transpose_roll(roll: NDArray[Any], semitones: int) -> NDArray[Any]:
    """The roll (T, 88) transposed up by `semitones`, or down if negative.

    Notes that leave the piano's range are moved back into it by octaves, so none is lost.
    """
    moved = np.zeros_like(roll)
    first = max(0, -semitones)
    end = max(first, NOTES - max(0, semitones))  # notes from `first` to here stay in the range
    moved[:, first + semitones : end + semitones] = roll[:, first:end]
    target = _fold(np.arange(LOWEST_PITCH, HIGHEST_PITCH + 1) + semitones) - LOWEST_PITCH
    for note in (*range(min(first, NOTES)), *range(end, NOTES)):
        moved[:, target[note]] |= roll[:, note]
    return moved


def transposed(frames: NDArray[Any], semitones: int) -> NDArray[Any]:
    """Frames (T, 88), or (T, 176) with onsets, transposed as a roll is."""
    halves = np.split(frames, frames.shape[1] // NOTES, axis=1)
    return np.concatenate([transpose_roll(half, semitones) for half in halves], axis=1)


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
