"""The events of MIDI tracks: found one after the other, then decoded all at once.

Where an event begins depends on the one before. Runs of channel messages, nearly all of a file, are
cut into events by a regular expression, everything else by hand; arithmetic is left to NumPy.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.formats import LARGEST_QUANTITY

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

TRACK_NAME, SET_TEMPO, TIME_SIGNATURE, KEY_SIGNATURE = 0x03, 0x51, 0x58, 0x59
READ = np.isin(np.arange(256), (TRACK_NAME, SET_TEMPO, TIME_SIGNATURE, KEY_SIGNATURE))
"""Which kinds of meta events are decoded."""
END_OF_TRACK = 0x2F
SUSTAIN, DOWN = 64, 64
"""The controller of the sustain pedal, and the least value that holds it down."""

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
    velocities: NDArray[np.uint8]
    """(N,), of the notes."""
    programs: NDArray[np.int64]
    """(P,), track << 11 | channel << 7 | program of each change, a track's in order."""
    pedal: int
    """How often the sustain pedal is pressed."""
    tempos: NDArray[np.int64]
    """(M, 2), rows of (number of the event, microseconds per beat)."""
    meters: NDArray[np.int64]
    """(K, 3), rows of (number of the event, beats in a bar, n for a beat of 2**-n notes)."""
    keys: NDArray[np.int64]
    """(J, 3), rows of (number of the event, sharps, or 256 less the flats, 1 for minor)."""
    names: dict[int, bytes]
    """By track, the first one it states."""


def read_events(data: NDArray[np.uint8], tracks: Sequence[Track], close: bool) -> Events:
    """Decode the events of all tracks.

    Args:
        data: the file's bytes.
        tracks: with E events in all.
        close: whether a restruck note ends there; otherwise the earlier one is discarded.
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
    metas = _Metas.of(data, at, end, np.flatnonzero(event == 0xFF))
    set_tempo, value = metas.of_kind(SET_TEMPO, 3)
    tempos = np.stack([set_tempo, _bytes(data, value, 3) @ (1 << 16, 1 << 8, 1)], axis=1)
    signature, value = metas.of_kind(TIME_SIGNATURE, 2)
    meters = np.column_stack([signature, _bytes(data, value, 2)])
    signature, value = metas.of_kind(KEY_SIGNATURE, 2)
    keys = np.column_stack([signature, _bytes(data, value, 2)])
    named, value = metas.of_kind(TRACK_NAME, 0)
    names: dict[int, bytes] = {}
    for number, begin, stop in zip(
        track[named].tolist(), value.tolist(), end[named].tolist(), strict=True
    ):
        names.setdefault(number, data[begin:stop].tobytes())

    channel = explicit & (event < 0xF0)
    status = event[np.maximum.accumulate(np.where(channel, np.arange(len(event)), 0))]
    # Running status first occurs after a status of the same track.
    status = np.where(event < 0xF0, status, 0)
    at += explicit
    velocity_at = at + 1
    kind, of_channel = status >> 4, track << 4 | status & 15
    changes = np.flatnonzero(kind == 0xC)
    programs = of_channel[changes] << 7 | data[at[changes]] & 127
    controls = np.flatnonzero(kind == 0xB)
    controls = controls[data[at[controls]] == SUSTAIN]
    pedal = _presses(of_channel[controls], data[at[controls] + 1] >= DOWN)
    # What begins or ends a note.
    number = np.flatnonzero((status >= 0x80) & (status < 0xA0))
    at = at[number]
    status = status[number]
    begins = (status >= 0x90) & (data[at + 1] > 0)
    # Above 127 is out of range, but it is where the pitch belongs: clamp it.
    key = of_channel[number] << 7 | np.minimum(data[at], 127)
    # By key, then in order: sorting numbers is faster than sorting their places.
    bits = len(key).bit_length()
    order = np.sort(key << bits | np.arange(len(key))) & ((1 << bits) - 1)
    key, begins, number = key[order], begins[order], number[order]
    ends = np.flatnonzero((key[1:] == key[:-1]) & begins[:-1] & (close | ~begins[1:]))
    notes = np.stack([number[ends], number[ends + 1], key[ends]], axis=1)
    velocities = np.minimum(data[velocity_at[notes[:, 0]]], 127)
    return Events(ticks, notes, velocities, programs, pedal, tempos, meters, keys, names)


def _presses(pedal: NDArray[np.int64], down: NDArray[np.bool_]) -> int:
    """How often pedals go down, from which pedal each event moves and whether it then is down."""
    if not len(pedal):
        return 0
    order = np.argsort(pedal, kind="stable")
    pedal, down = pedal[order], down[order]
    already = down[:-1] & (pedal[1:] == pedal[:-1])
    return int(down.sum() - (already & down[1:]).sum())


class _Metas(NamedTuple):
    """The meta events that are read, M in all."""

    number: NDArray[np.int64]
    kind: NDArray[np.uint8]
    value: NDArray[np.int64]
    """Where their data are."""
    size: NDArray[np.int64]

    @classmethod
    def of(
        cls, data: NDArray[np.uint8], at: NDArray[np.int64], end: NDArray[np.int64],
        meta: NDArray[np.int64],
    ) -> "_Metas":  # fmt: skip
        """Those of the events `meta` that are of a kind that is read."""
        kind = data[at[meta] + 1]
        read = READ[kind]
        meta, kind = meta[read], kind[read]
        value, _ = _quantities(data, at[meta] + 2)
        return cls(meta, kind, value, end[meta] - value)

    def of_kind(self, kind: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(Number of the event, where its data are) of those of a kind and at least this size."""
        found = np.flatnonzero((self.kind == kind) & (self.size >= size))
        return self.number[found], self.value[found]


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
