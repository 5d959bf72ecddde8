"""Piano-rolls to standard MIDI files that read back as the same frames, bit for bit."""

import io

import mido
import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.music.dynamics import velocities
from seqmodel.media.music.formats import (
    DRAWN,
    END_OF_PIECE,
    GIVEN,
    LARGEST_DIVISION,
    LARGEST_QUANTITY,
    MAX_TICK,
)
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.notes import given_notes, notes_of

FINE_DIVISION = 480
"""Ticks per beat by default, as in most sequencers."""

SMOOTH_TICKS = 16
"""Ticks in a step of real time above which rounding to ticks is inaudible."""

PIANO = 0


def midi_bytes(
    frames: NDArray[np.uint8],
    grid: Grid,
    *,
    tempo_bpm: float = 120.0,
    meter: tuple[int, int] | None = None,
    flat: bool = False,
    given: NDArray[np.bool_] | None = None,
) -> bytes:
    """Return a MIDI file of frames (T, 88), 1 where a pitch from 21 to 108 sounds.

    Consecutive frames of a pitch are one piano note; with onsets, (T, 176), each onset begins a new
    one. They are as loud as `dynamics` says. Reading the bytes on the same
    grid restores the frames exactly: frame t begins at the tick nearest to its exact time, always
    less than half a step away, and a marker says where a piece ends that ends in silence. The same
    frames give the same bytes.

    Where something was `given`, the notes that begin in it have a track and a channel of their own.

    Args:
        frames: zeros and ones, at least one frame; see `onsets` for those that are possible.
        grid: the length of a frame.
        tempo_bpm: beats per minute, at least 3.6, the format's slowest. Frames of a grid in
            seconds keep their length in seconds.
        meter: the time signature; without, none is written, and accents are those of 4 over 4.
        flat: whether all notes are equally loud.
        given: (T, 88), what was not drawn by a model.

    Raises:
        UsageError: if a step is shorter than the shortest tick at this tempo, or the piece is too
            long.
    """
    tempo = round(60e6 / tempo_bpm)
    division, numerator, denominator = _ticks_per_step(grid, tempo)
    if len(frames) * numerator // denominator > MAX_TICK:
        raise UsageError("the piece is too long for a MIDI file at this tempo; lower --tempo")

    head = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=tempo)])
    if meter is not None:
        beats, of = meter
        head.append(mido.MetaMessage("time_signature", numerator=beats, denominator=of))
    tracks, events = [head], _events(frames, grid, meter, given, flat=flat)
    if given is not None:
        names = (GIVEN, DRAWN)
        tracks += [mido.MidiTrack([mido.MetaMessage("track_name", name=name)]) for name in names]
    for channel, track in enumerate(tracks[-2:]):
        track.append(mido.Message("program_change", channel=channel, program=PIANO))
        now = 0
        for frame, kind, note, velocity, of_channel in events:
            if of_channel != channel:
                continue
            # Nearest tick, in integers: no drift however long the piece.
            tick = (2 * frame * numerator + denominator) // (2 * denominator)
            while tick - now > LARGEST_QUANTITY:
                track.append(mido.MetaMessage("text", time=LARGEST_QUANTITY))
                now += LARGEST_QUANTITY
            if kind == "marker":
                text = END_OF_PIECE.decode()
                track.append(mido.MetaMessage(kind, text=text, time=tick - now))
            else:
                struck = {"note": note, "velocity": velocity, "time": tick - now}
                track.append(mido.Message(kind, channel=channel, **struck))
            now = tick
    file = mido.MidiFile(type=int(len(tracks) > 1), ticks_per_beat=division, tracks=tracks)
    stream = io.BytesIO()
    file.save(file=stream)
    return stream.getvalue()


def _ticks_per_step(grid: Grid, tempo: int) -> tuple[int, int, int]:
    """(Ticks per beat, numerator and denominator of the ticks per step)."""
    if grid.steps_per_beat is not None:
        ticks = max(1, FINE_DIVISION // grid.steps_per_beat)
        return ticks * grid.steps_per_beat, ticks, 1
    assert grid.step_nanoseconds is not None
    beat = 1000 * tempo
    division = FINE_DIVISION
    while division * grid.step_nanoseconds < SMOOTH_TICKS * beat and division < LARGEST_DIVISION:
        division = min(2 * division, LARGEST_DIVISION)
    numerator = division * grid.step_nanoseconds
    # A step of at least one tick is rounded by less than half a step.
    if numerator < beat:
        raise UsageError(f"{grid} is finer than a MIDI tick at this tempo; raise --tempo")
    return division, numerator, beat


def _events(
    frames: NDArray[np.uint8], grid: Grid, meter: tuple[int, int] | None,
    given: NDArray[np.bool_] | None, *, flat: bool,
) -> list[tuple[int, str, int, int, int]]:  # fmt: skip
    """(Frame, "note_off", "note_on" or "marker", pitch, velocity, channel), in this order.

    The channel is 0, or 1 for what is drawn where something is given.
    """
    events, notes = [], notes_of(frames)
    loudness = velocities(notes, frames, grid, meter=meter, flat=flat)
    channels = np.zeros(len(notes), int) if given is None else ~given_notes(notes, given)
    for (begin, end, pitch), velocity, channel in zip(
        notes.tolist(), loudness.tolist(), channels.astype(int).tolist(), strict=True
    ):
        events.append((begin, "note_on", pitch, velocity, channel))
        events.append((end, "note_off", pitch, velocity, channel))
    events.sort()
    if not frames[-1].any():
        events.append((len(frames), "marker", 0, 0, 0))
    return events
