"""The compiled loop over the events of one MIDI track."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.compiled import compiled
from seqmodel.media.music.midi_format import LARGEST_QUANTITY

ENDED = 0
"""An end-of-track event was read."""
NO_END = 1
"""The bytes ran out between two events."""
CUT_SHORT = 2
"""The bytes ran out within an event."""
LOST = 3
"""A data byte came where an event should begin, without a running status."""
TOO_LATE = 4
"""A delta exceeds what the format allows."""

SET_TEMPO = 0x51
END_OF_TRACK = 0x2F


# One function, since numba compiles and checks every call separately.
@compiled
def read_events(  # noqa: PLR0911, PLR0912, PLR0915
    data: NDArray[np.uint8],
    position: int,
    stop: int,
    tick: int,
    track: int,
    close: bool,
    sounding: NDArray[np.int64],
    notes: NDArray[np.int64],
    note_count: int,
    tempos: NDArray[np.int64],
    tempo_count: int,
) -> tuple[int, int, int, int, int]:
    """Read the events in data[position:stop] and append what they hold.

    Args:
        data: the file's bytes.
        position: where the first event begins.
        stop: the end of the track's bytes.
        tick: the time at which the track begins.
        track: the track's number, for its notes.
        close: whether a restruck note ends there; otherwise the earlier one is discarded.
        sounding: (16 * 128,), at channel * 128 + pitch the tick of the onset, -1 if silent.
        notes: (_, 3), rows of (on tick, off tick, track << 11 | channel << 7 | pitch).
        note_count: rows of `notes` in use.
        tempos: (_, 2), rows of (tick, microseconds per beat).
        tempo_count: rows of `tempos` in use.

    Returns:
        (outcome, position reached, last tick, note_count, tempo_count).
    """
    status = 0
    while position < stop:
        # The time since the previous event: 7 bits per byte, the high bit says that more follow.
        delta = 0
        more = True
        while more and position < stop:
            byte = int(data[position])
            position += 1
            delta = delta << 7 | byte & 127
            more = byte > 127
            if delta > LARGEST_QUANTITY:
                return TOO_LATE, position, tick, note_count, tempo_count
        if more or position >= stop:
            return CUT_SHORT, position, tick, note_count, tempo_count
        tick += delta

        event = status
        byte = int(data[position])
        if byte > 127:
            event = byte
            position += 1
        if event < 128:
            return LOST, position, tick, note_count, tempo_count

        if event < 0xF0:
            # Only channel messages set the running status, and no other event clears it.
            status = event
            kind = event >> 4
            width = 1 if kind in (0xC, 0xD) else 2
            if position + width > stop:
                return CUT_SHORT, position, tick, note_count, tempo_count
            if kind in (8, 9):
                # Above 127 is out of range, but it is where the pitch belongs: clamp it.
                pitch = min(int(data[position]), 127)
                key = (event & 15) << 7 | pitch
                struck = sounding[key]
                begins = kind == 9 and data[position + 1] > 0
                if struck >= 0 and (close or not begins):
                    notes[note_count, 0] = struck
                    notes[note_count, 1] = tick
                    notes[note_count, 2] = track << 11 | key
                    note_count += 1
                sounding[key] = tick if begins else -1
            position += width
        elif event in (0xF0, 0xF7, 0xFF):
            meta = -1
            if event == 0xFF and position < stop:
                meta = int(data[position])
                position += 1
            size = 0
            more = True
            while more and position < stop and size <= LARGEST_QUANTITY:
                byte = int(data[position])
                position += 1
                size = size << 7 | byte & 127
                more = byte > 127
            if meta == END_OF_TRACK:
                return ENDED, position, tick, note_count, tempo_count
            if more or size > stop - position:
                return CUT_SHORT, position, tick, note_count, tempo_count
            if meta == SET_TEMPO and size >= 3:
                tempo = 0
                for at in range(position, position + 3):
                    tempo = tempo << 8 | int(data[at])
                tempos[tempo_count, 0] = tick
                tempos[tempo_count, 1] = tempo
                tempo_count += 1
            position += size
        elif event == 0xF2:
            # Messages that belong on a wire and not in a file: step over them and their data.
            position += 2
        elif event in (0xF1, 0xF3):
            position += 1
    return NO_END, position, tick, note_count, tempo_count
