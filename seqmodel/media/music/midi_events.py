"""The events of MIDI tracks: found one after the other, then decoded all at once.

Where an event begins depends on the one before. Runs of channel messages, nearly all of a file, are
cut into events by a regular expression, everything else by hand; arithmetic is left to NumPy.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.formats import END_OF_PIECE, LARGEST_QUANTITY

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

TRACK_NAME, MARKER, SET_TEMPO, TIME_SIGNATURE = 0x03, 0x06, 0x51, 0x58
END_OF_TRACK = 0x2F

FORMER_END = b"\x90\x15\x01\0\x80\x15\x01\0\xff\x2f\0"
"""How a track of ours ended in silence before there was a marker: with a soft A0 of length 0."""

# A delta of at most four bytes; a tempo, or a status or none and one or two data bytes.
DELTA, TEMPO = rb"[\x80-\xff]{0,3}+[\x00-\x7f]", rb"\xff\x51\x03..."
MESSAGES = {0: b"", 1: rb"|[\xc0-\xdf].|[\x00-\x7f]", 2: rb"|[\x80-\xbf\xe0-\xef]..|[\x00-\x7f]."}
MESSAGE = {
    width: re.compile(b"%b(?:%b%b)" % (DELTA, TEMPO, some), re.DOTALL)
    for width, some in MESSAGES.items()
}
"""The common events, by the number of data bytes under the running status."""
# Each event is an atomic group only for Python 3.11.0 to 3.11.4, where a possessive repetition of
# what can backtrack matches wrongly.
RUN = {width: re.compile(b"(?>%b)++" % one.pattern, re.DOTALL) for width, one in MESSAGE.items()}


class Track(NamedTuple):
    """The events of a track, one directly after the other."""

    outcome: int
    position: int
    """The position reached."""
    start: int
    lengths: Sequence[int]
    """(E,), the bytes of each event, complete ones only."""
    rest: int
    """Ticks from the last of them to one that is incomplete."""


def find_events(data: bytes, position: int, stop: int) -> Track:
    """Find the events in data[position:stop]."""
    start, lengths, width, rest = position, list[int](), 0, 0
    outcome = NO_END
    while position < stop and outcome == NO_END:
        if run := RUN[width].match(data, position, stop):
            lengths += map(len, MESSAGE[width].findall(data, position, run.end()))
            position = run.end()
            continue
        before = position
        outcome, position, width, rest = _read_event(data, position, stop, width)
        if outcome in (NO_END, ENDED):
            lengths.append(position - before)
            rest = 0
    return Track(outcome, position, start, lengths, rest)


def _read_event(  # noqa: PLR0911
    data: bytes, position: int, stop: int, width: int
) -> tuple[int, int, int, int]:
    """Step over an event of any kind.

    `width` is the number of data bytes under the running status, 0 without one. Returns (outcome,
    or NO_END to go on; position reached; width after it; delta).
    """
    delta, position, whole = _quantity(data, position, stop)
    if delta > LARGEST_QUANTITY:
        return TOO_LATE, position, width, 0
    if not whole or position >= stop:
        return CUT_SHORT, position, width, 0
    event = data[position]
    if event < 128 and not width:
        return LOST, position, width, delta
    position += event > 127
    if event < 0xF0:
        # Only channel messages set the running status, and no other event clears it.
        if event > 127:
            width = 1 if event >> 4 in (0xC, 0xD) else 2
        if position + width > stop:
            return CUT_SHORT, position, width, delta
        return NO_END, position + width, width, delta
    if event in (0xF0, 0xF7, 0xFF):
        meta = data[position] if event == 0xFF and position < stop else -1
        size, position, whole = _quantity(data, position + (meta >= 0), stop)
        if meta == END_OF_TRACK:
            return ENDED, position, width, delta
        if not whole or size > stop - position:
            return CUT_SHORT, position, width, delta
        return NO_END, position + size, width, delta
    # Messages that belong on a wire and not in a file: step over them and their data.
    return NO_END, position + {0xF1: 1, 0xF2: 2, 0xF3: 1}.get(event, 0), width, delta


def _quantity(data: bytes, position: int, stop: int) -> tuple[int, int, bool]:
    """(Value, position after it, whether it is whole) of 7 bits a byte, the last below 128."""
    value = 0
    while position < stop and value <= LARGEST_QUANTITY:
        byte = data[position]
        position += 1
        value = value << 7 | byte & 127
        if byte < 128:
            return value, position, True
    return value, position, False


class Events(NamedTuple):
    """The events of all tracks, E in all, decoded."""

    ticks: NDArray[np.int64]
    """(E,), the time of each event from the beginning of its track."""
    notes: NDArray[np.int64]
    """(N, 3), rows of (number of the event that begins it, of the one that ends it,
    track << 11 | channel << 7 | pitch)."""
    tempos: NDArray[np.int64]
    """(M, 2), rows of (number of the event, microseconds per beat)."""
    meters: NDArray[np.int64]
    """(K, 3), rows of (number of the event, beats in a bar, n for a beat of 2**-n notes)."""
    names: dict[int, bytes]
    """By track, the first one it states."""
    ends: NDArray[np.int64]
    """(K,), the numbers of the events that say where the piece ends."""


def read_events(
    data: NDArray[np.uint8], tracks: Sequence[Track], close: bool, pause: int
) -> Events:
    """Decode the events of all tracks.

    Args:
        data: the file's bytes.
        tracks: with E events in all.
        close: whether a restruck note ends there; otherwise the earlier one is discarded.
        pause: ticks after which a key that is struck again is no longer owed an off.
    """
    counts = [len(track.lengths) for track in tracks]
    track = np.repeat(np.arange(len(tracks)), counts)
    length = np.array([n for one in tracks for n in one.lengths], np.int64)
    # Where each event ends, and then where it is read: events of a track follow each other.
    first = np.cumsum([0, *counts[:-1]])
    end = np.cumsum(length)
    total = np.append(0, end)
    end += np.repeat([one.start for one in tracks] - total[first], counts)
    at, delta = _quantities(data, end - length)
    elapsed = np.append(0, np.cumsum(delta))
    ticks = elapsed[1:] - np.repeat(elapsed[first], counts)

    event = data[at]
    explicit = event > 127
    meta = np.flatnonzero(event == 0xFF)
    set_tempo, value = _metas(data, at, end, meta, SET_TEMPO, 3)
    tempos = np.stack([set_tempo, _bytes(data, value, 3) @ (1 << 16, 1 << 8, 1)], axis=1)
    signature, value = _metas(data, at, end, meta, TIME_SIGNATURE, 2)
    meters = np.column_stack([signature, _bytes(data, value, 2)])
    named, value = _metas(data, at, end, meta, TRACK_NAME, 0)
    of_track, first_name = np.unique(track[named], return_index=True)
    names = {
        int(number): data[value[k] : end[named[k]]].tobytes()
        for number, k in zip(of_track, first_name, strict=True)
    }
    marker, value = _metas(data, at, end, meta, MARKER, len(END_OF_PIECE))
    marked = _bytes(data, value, len(END_OF_PIECE)) == np.frombuffer(END_OF_PIECE, np.uint8)
    piece_ends = marker[marked.all(axis=1) & (value + len(END_OF_PIECE) == end[marker])]

    channel = explicit & (event < 0xF0)
    status = event[np.maximum.accumulate(np.where(channel, np.arange(len(event)), 0))]
    # What begins or ends a note; running status first occurs after a status of the same track.
    number = np.flatnonzero((event < 0xF0) & (status >= 0x80) & (status < 0xA0))
    at = at[number] + explicit[number]
    status = status[number]
    begins = (status >= 0x90) & (data[at + 1] > 0)
    # Above 127 is out of range, but it is where the pitch belongs: clamp it.
    key = track[number] << 11 | (status & 15).astype(np.int64) << 7 | np.minimum(data[at], 127)
    # By key, then in order: sorting numbers is faster than sorting their places.
    bits = len(key).bit_length()
    order = np.sort(key << bits | np.arange(len(key))) & ((1 << bits) - 1)
    key, begins, number = key[order], begins[order], number[order]
    if close and (begins[1:] & begins[:-1] & (key[1:] == key[:-1])).any():
        ending = begins | ~_sounds_on(key, begins, ticks[number], pause)
        key, begins, number = key[ending], begins[ending], number[ending]
    ends = np.flatnonzero((key[1:] == key[:-1]) & begins[:-1] & (close | ~begins[1:]))
    notes = np.stack([number[ends], number[ends + 1], key[ends]], axis=1)
    size = len(FORMER_END)
    former = [
        last - 2
        for one, last in zip(tracks, np.cumsum(counts).tolist(), strict=True)
        if data[one.position - size : one.position].tobytes() == FORMER_END
    ]
    if former:
        piece_ends = np.append(piece_ends, former)
        notes = notes[~np.isin(notes[:, 1], former)]
    return Events(ticks, notes, tempos, meters, names, piece_ends)


def _sounds_on(
    key: NDArray[np.int64], begins: NDArray[np.bool_], tick: NDArray[np.int64], pause: int
) -> NDArray[np.bool_]:
    """Whether a key goes on sounding after each of its events (E,), sorted by key, then in order.

    It does so until there were as many offs as strikes: an off that comes after the next strike, or
    at its tick, is not that one's. A strike that is never matched by an off hangs and does not
    count, nor does one that still waits when the key is struck after a pause.
    """
    fresh = np.ones(len(key), np.bool_)
    fresh[1:] = (key[1:] != key[:-1]) | (begins[1:] & (np.diff(tick) > pause))
    # Stretches lie further apart than they reach, so that a running minimum begins anew in each.
    apart = 2 * len(key) * np.cumsum(fresh)
    level = np.cumsum(np.where(begins, 1, -1)) - apart
    owed = level - np.minimum.accumulate(level - begins)
    hanging = np.minimum.accumulate((owed + apart)[::-1])[::-1] - apart
    sounds: NDArray[np.bool_] = owed > hanging
    return sounds


def _metas(
    data: NDArray[np.uint8], at: NDArray[np.int64], end: NDArray[np.int64],
    meta: NDArray[np.int64], kind: int, size: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """Those of the events `meta` (M,) of this kind and at least this size; where their data are."""
    found = meta[data[at[meta] + 1] == kind]
    value, _ = _quantities(data, at[found] + 2)
    long_enough = value + size <= end[found]
    return found[long_enough], value[long_enough]


def _bytes(data: NDArray[np.uint8], starts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The bytes (M, size) from each of the positions (M,)."""
    read: NDArray[np.int64] = data[starts[:, None] + np.arange(size)].astype(np.int64)
    return read


def _quantities(
    data: NDArray[np.uint8], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(Position after, value) of the quantities at `starts`, as `_quantity` reads one."""
    at = starts.copy()
    byte = data[at]
    values = (byte & 127).astype(np.int64)
    longer = np.flatnonzero(byte > 127)
    while len(longer):
        at[longer] += 1
        byte = data[at[longer]]
        values[longer] = values[longer] << 7 | byte & 127
        longer = longer[byte > 127]
    return at + 1, values
