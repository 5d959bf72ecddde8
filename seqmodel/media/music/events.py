"""The events of a MIDI file's tracks: messages with their times, the notes that they make, pedals.

The events of a track are found one after the other, then those of all decoded at once: where an
event begins depends on the one before. The sizes of nearly all are looked up, where they would
begin at any byte; everything else is read by hand. Arithmetic is left to NumPy.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.music.grid import DRUM_CHANNEL, MAX_TICK

MAX_QUANTITY = 2**28 - 1
"""The largest variable-length quantity, in deltas and in lengths."""
TIME_TOO_LATE = "has a time too late to be music (a damaged delta)"

ENDED, NO_END, BROKEN = range(3)
"""How the events of a track end: by an event that says so, between two or within one, or before a
data byte without a running status."""

TRACK_NAME, MARKER, SET_TEMPO, TIME_SIGNATURE, KEY_SIGNATURE = 0x03, 0x06, 0x51, 0x58, 0x59
END_OF_TRACK = 0x2F
TEXT = 0x01
NOTE_OFF, NOTE_ON, AFTERTOUCH, CONTROL, PROGRAM = 0x80, 0x90, 0xA0, 0xB0, 0xC0
"""Of channel messages, the first four bits; AFTERTOUCH is a single key's."""
BANK, VOLUME, PAN = (0, 32), 7, 10
"""Controllers of a channel's sound; the bank's two say which bank the next program is from."""
SUSTAIN, DOWN = 64, 64
"""The controller of the sustain pedal, and the least value that holds it down."""

LEGACY_END = b"\x90\x15\x01\0\x80\x15\x01\0\xff\x2f\0"
"""How a track of ours ended in silence before there was a marker: with a soft A0 of length 0."""

COMMON_SIZES = (
    bytes(256), b"\2" * 128 + bytes(64) + b"\3" * 32 + bytes(32),
    b"\3" * 128 + b"\4" * 64 + bytes(32) + b"\4" * 16 + bytes(16),
)  # fmt: skip
"""By the number of data bytes under the running status, then by its first byte, the size of a
message that keeps this number, with a delta of one byte; 0 of others."""


class Track(NamedTuple):
    """The events of a track, one directly after the other from `start` to the `position` reached.

    `ends` (E,) are where those that are complete end; `rest` ticks later is one that is not.
    """

    outcome: int
    position: int
    start: int
    ends: Sequence[int]
    rest: int


def common_sizes(data: bytes) -> list[bytes]:
    """As in `COMMON_SIZES`, the sizes of the events that would begin at each byte, also of metas.

    0 also for what ends a track, has more than 127 bytes, or a delta of more than two.
    """
    padded, common = data + bytes(4), list[bytes]()
    found = np.frombuffer(padded, np.uint8)
    event, kind, body = found[:-2], found[1:-1], found[2:]
    metas = np.where((event == 0xFF) & (kind != END_OF_TRACK) & (body < 128), 4 + body, 0)
    longer = -(event >> 7)  # all bits of bytes above 127
    for table in COMMON_SIZES:
        sizes = np.frombuffer(padded.translate(table), np.uint8)[1:-2] | metas[1:]
        sizes &= ~longer[:-1]
        sizes[:-1] |= (sizes[1:] + np.minimum(sizes[1:], 1)) & longer[:-2]
        common.append(sizes.tobytes())
    return common


def find_events(data: bytes, sizes: list[bytes], position: int, stop: int) -> Track:
    """Find the events in data[position:stop]; `sizes` are the `common_sizes` of `data`."""
    start, outcome, ends, width, rest = position, NO_END, list[int](), 0, 0
    while position < stop and outcome == NO_END:
        common = sizes[width]
        while (size := common[position]) and (end := position + size) <= stop:
            ends.append(end)
            position = end
        if position < stop:
            outcome, position, width, rest = _read_event(data, position, stop, width)
            if outcome in (NO_END, ENDED):
                ends.append(position)
    return Track(outcome, position, start, ends, rest)


def _read_event(  # noqa: PLR0911
    data: bytes, position: int, stop: int, width: int
) -> tuple[int, int, int, int]:
    """Step over an event: (outcome, or NO_END to go on; position; width after it; rest).

    `width` is the number of data bytes under the running status, 0 without one.
    """
    delta, position, whole = quantity(data, position, stop)
    if delta > MAX_QUANTITY:
        raise SourceError(TIME_TOO_LATE)
    if not whole or position >= stop:
        return BROKEN, position, width, 0
    event = data[position]
    if event < 128 and not width:
        return BROKEN, position, width, delta
    position += event > 127
    if event < 0xF0:
        # Only channel messages set the running status, and no other event clears it.
        if event > 127:
            width = 1 if event >> 4 in (0xC, 0xD) else 2
        if position + width > stop:
            return BROKEN, position, width, delta
        return NO_END, position + width, width, 0
    if event in (0xF0, 0xF7, 0xFF):
        meta = data[position] if event == 0xFF and position < stop else -1
        size, position, whole = quantity(data, position + (meta >= 0), stop)
        if meta == END_OF_TRACK:
            return ENDED, position, width, 0
        if not whole or size > stop - position:
            return BROKEN, position, width, delta
        return NO_END, position + size, width, 0
    # Messages that belong on a wire and not in a file: step over them and their data.
    return NO_END, position + {0xF1: 1, 0xF2: 2, 0xF3: 1}.get(event, 0), width, 0


def quantity(data: bytes, position: int, stop: int) -> tuple[int, int, bool]:
    """(Value, position after it, whether it is whole) of 7 bits a byte, the last below 128."""
    value = 0
    while position < stop and value <= MAX_QUANTITY:
        byte = data[position]
        position += 1
        value = value << 7 | byte & 127
        if byte < 128:
            return value, position, True
    return value, position, False


class Pedals(NamedTuple):
    """The moves of sustain pedals (M,), those of a player in order of time.

    `moves` numbers the events; a pedal is `down` from there on, and `pressed` if it was not before.
    """

    moves: NDArray[np.int64]
    player: NDArray[np.int64]
    down: NDArray[np.bool_]
    pressed: NDArray[np.bool_]


class Events:
    """The events of all tracks, E in all.

    Attributes:
        data: uint8, the file's bytes.
        tracks: where they are.
        track: int64 (E,), the number of each event's track.
        ticks: int64 (E,), when each occurs, from the beginning of the piece.
        starts: when the tracks begin: at 0, or `in_turn` at the first beat after the one before.
        last_tick: when the last of them ends.
        event: uint8 (E,), the first byte after the delta; below 128 if the status is running.
        at: int64 (E,), where the byte after the status is; after a running one, the first.
        end: int64 (E,), where the event ends.
        status: uint8 (E,), of a channel message, running or not; 0 for anything else.
        channel_key: int64 (E,), track << 4 | channel, of a channel message.
        player: int64 (E,), whose it is: the channel's or, `in_turn`, the track's and channel's.
    """

    def __init__(self, data: bytes, tracks: Sequence[Track], *, in_turn: int) -> None:
        """`in_turn` is the ticks of a beat if the tracks follow each other, else 0."""
        self.data, self.tracks = np.frombuffer(data, np.uint8), tracks
        counts = [len(track.ends) for track in tracks]
        self.track = np.repeat(np.arange(len(tracks)), counts)
        ends = chain.from_iterable(track.ends for track in tracks)
        self.end = np.fromiter(ends, np.int64, sum(counts))
        begin, first = np.append(0, self.end), np.cumsum([0, *counts[:-1]])
        begin[first] = [track.start for track in tracks]
        at, delta = quantities(self.data, begin[:-1])
        elapsed = np.append(0, np.cumsum(delta))
        lasts = np.diff(elapsed[[*first, -1]]) + [one.rest for one in tracks]
        whole_beats = -(-lasts // max(in_turn, 1)) * in_turn
        self.starts = [0, *accumulate(whole_beats.tolist())][:-1]
        self.last_tick = max(map(add, self.starts, lasts.tolist()))
        if self.last_tick > MAX_TICK:
            raise SourceError(TIME_TOO_LATE)
        self.ticks = elapsed[1:] + np.repeat(self.starts - elapsed[first], counts)
        self.event = self.data[at]
        explicit = self.event > 127
        self.at = at + explicit
        channel = np.where(explicit & (self.event < 0xF0), np.arange(len(at)), 0)
        status = self.event[np.maximum.accumulate(channel)]
        # Running status first occurs after a status of the same track.
        self.status = np.where(self.event < 0xF0, status, 0)
        self.channel_key = self.track << 4 | self.status & 15
        self.player = self.channel_key if in_turn else self.channel_key & 15

    @cached_property
    def metas(self) -> NDArray[np.int64]:
        """Of meta events but ends of tracks, (3, M): their numbers, kinds, where a body begins."""
        numbers = np.flatnonzero(self.event == 0xFF)
        kinds = self.data[self.at[numbers]]
        numbers, kinds = numbers[kinds != END_OF_TRACK], kinds[kinds != END_OF_TRACK]
        return np.array([numbers, kinds, quantities(self.data, self.at[numbers] + 1)[0]])

    @cached_property
    def note_events(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """What begins or ends notes, (M,): their numbers, keys as in `notes`, which strike."""
        number = np.flatnonzero((self.status >= NOTE_OFF) & (self.status < AFTERTOUCH))
        at = self.at[number]
        # Above 127 is out of range, but it is where the pitch belongs: clamp it.
        key = self.channel_key[number] << 7 | np.minimum(self.data[at], 127)
        return number, key, (self.status[number] >= NOTE_ON) & (self.data[at + 1] > 0)

    @cached_property
    def programs(self) -> tuple[tuple[int, int, int, int], ...]:
        """(Track, channel, tick, program) of each change, a track's in order."""
        changes = np.flatnonzero(self.status >> 4 == 0xC)
        channel, program = self.status[changes] & 15, self.data[self.at[changes]] & 127
        columns = self.track[changes], channel, self.ticks[changes], program
        return tuple(zip(*(column.tolist() for column in columns), strict=True))

    def pedals(self) -> Pedals:
        """What moves sustain pedals; the drums have none."""
        moves = np.flatnonzero((self.status >> 4 == 0xB) & (self.status & 15 != DRUM_CHANNEL))
        moves = moves[self.data[self.at[moves]] == SUSTAIN]
        moves = moves[np.lexsort((self.ticks[moves], self.player[moves]))]
        player, down = self.player[moves], self.data[self.at[moves] + 1] >= DOWN
        pressed = down.copy()
        pressed[1:] &= ~down[:-1] | (player[1:] != player[:-1])
        return Pedals(moves, player, down, pressed)

    def silent_ticks(
        self, notes: NDArray[np.int64], pedals: Pedals, most: int
    ) -> tuple[NDArray[np.int64], int]:
        """The ticks (N,) where `notes`, (3, N) as below, fall silent; the pedals left down.

        A note that ends while its player's pedal is down lasts until that is raised or its pitch is
        struck again. A pedal that is never raised is so with the last key of the note's track; one
        that is down for more than `most` ticks was left so, and holds nothing.
        """
        (_, ending, key), (moves, player, down, pressed) = notes, pedals
        ends, E = self.ticks[ending], len(self.ticks)
        if not len(moves):
            return ends, 0
        in_time, place = np.argsort(self.ticks, kind="stable"), np.empty(E, np.int64)
        place[in_time] = np.arange(E)
        ticks = np.append(self.ticks[in_time], MAX_TICK)
        owner, end = self.player[ending], place[ending]
        moves_at = player * E + place[moves]
        latest = np.searchsorted(moves_at, owner * E + end) - 1
        held = (latest >= 0) & down[latest] & (player[latest] == owner)

        track = key >> 11
        last = np.zeros(len(self.tracks), np.int64)
        np.maximum.at(last, track, ends)
        raised = ticks[_first_from(moves_at[~down], owner * E + end, E)]
        raised = np.where(raised < MAX_TICK, raised, last[track])
        pressed_at = np.maximum.accumulate(np.where(pressed, np.arange(len(moves)), 0))[latest]
        stuck = held & (raised - self.ticks[moves[pressed_at]] > most)

        number, struck_key, begins = self.note_events
        strikes, pitch = number[begins], struck_key[begins] & 127
        struck = np.sort((self.player[strikes] << 7 | pitch) * E + place[strikes])
        again = ticks[_first_from(struck, (owner << 7 | key & 127) * E + end, E)]
        silent = np.where(held & ~stuck, np.minimum(raised, again), ends)
        return silent, len(np.unique(pressed_at[stuck]))

    def notes(self, close: bool, pause: int, *, hits: bool) -> NDArray[np.int64]:
        """Of notes, (3, N): the numbers of the events that begin and end each, and its key.

        The key is track << 11 | channel << 7 | pitch. If `close`, a restruck note ends there, else
        the earlier one is discarded. After `pause` ticks a key that is struck again is no longer
        owed an off. With `hits` drums that nothing ends do so themselves.
        """
        number, key, begins = self.note_events
        drums = begins & (key >> 7 & 15 == DRUM_CHANNEL) & hits
        strikes = np.array([number[drums], number[drums], key[drums]])
        # By key, then in order: sorting numbers is faster than sorting their places.
        bits = len(key).bit_length()
        order = np.sort(key << bits | np.arange(len(key))) & ((1 << bits) - 1)
        key, begins, number = key[order], begins[order], number[order]
        if close and (begins[1:] & begins[:-1] & (key[1:] == key[:-1])).any():
            ending = begins | ~_still_sounds(key, begins, self.ticks[number], pause)
            key, begins, number = key[ending], begins[ending], number[ending]
        ends = np.flatnonzero((key[1:] == key[:-1]) & begins[:-1] & (close | ~begins[1:]))
        found = np.array([number[ends], number[ends + 1], key[ends]])
        left = ~np.isin(strikes[0], found[0]) if hits else slice(0)  # `isin` sorts all the same
        return np.append(found, strikes[:, left], axis=1)

    def legacy_ends(self) -> list[int]:
        ends = np.cumsum([len(track.ends) for track in self.tracks]).tolist()
        size = len(LEGACY_END)
        return [
            end - 2
            for track, end in zip(self.tracks, ends, strict=True)
            if self.data[track.position - size : track.position].tobytes() == LEGACY_END
        ]


def _still_sounds(
    key: NDArray[np.int64], begins: NDArray[np.bool_], tick: NDArray[np.int64], pause: int
) -> NDArray[np.bool_]:
    """Whether a key goes on sounding after each of its events (E,), sorted by key, then in order.

    It does until there were as many offs as strikes: an off at or after the next strike is not that
    one's. A strike that no off ever matches hangs and does not count, nor does one that still waits
    when the key is struck after a pause.
    """
    fresh = np.ones(len(key), np.bool_)
    fresh[1:] = (key[1:] != key[:-1]) | (begins[1:] & (np.diff(tick) > pause))
    # Stretches lie further apart than they reach, so that a running minimum begins anew in each.
    apart = 2 * len(key) * np.cumsum(fresh)
    level = np.cumsum(np.where(begins, 1, -1)) - apart
    owed = level - np.minimum.accumulate(level - begins)
    hanging = np.minimum.accumulate((owed + apart)[::-1])[::-1] - apart
    return owed > hanging


def _first_from(
    numbers: NDArray[np.int64], wanted: NDArray[np.int64], E: int
) -> NDArray[np.int64]:  # fmt: skip
    """The first of sorted `numbers` from each `wanted` on, modulo E; E if none has its quotient."""
    found = np.append(numbers, -1)[np.searchsorted(numbers, wanted)]
    return np.where(found // E == wanted // E, found % E, E)


def quantities(
    data: NDArray[np.uint8], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(Position after, value) of the quantities at `starts`, as `quantity` reads one."""
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


# ---- writing -------------------------------------------------------------------------------------

FIRST, OFFS, ORIGINAL, STRIKES = range(4)
"""The order of the events of a tick: what is about all, offs, those of a file, strikes."""
TimedEvent = tuple[int, int, bytes]
"""An event: its tick, its place in the order of that tick, and its bytes without a delta."""


def meta(kind: int, body: bytes) -> bytes:
    """A meta event."""
    return bytes([0xFF, kind]) + _quantity_bytes(len(body)) + body


def _quantity_bytes(quantity: int) -> bytes:
    digits = [quantity & 127]
    while quantity := quantity >> 7:
        digits.append(quantity & 127 | 128)
    return bytes(reversed(digits))


def track_chunk(events: Iterable[TimedEvent], last: int = 0) -> bytes:
    """A track of these events, of which those of a place keep their order; it ends at `last`."""
    timed = sorted(events, key=lambda event: event[:2])
    last = max(last, timed[-1][0] if timed else 0)
    now, running, body = 0, 0, bytearray()
    for tick, _, message in [*timed, (last, STRIKES, meta(END_OF_TRACK, b""))]:
        while tick - now > MAX_QUANTITY:
            body += _quantity_bytes(MAX_QUANTITY) + meta(TEXT, b"")
            now, running = now + MAX_QUANTITY, 0
        body += _quantity_bytes(tick - now) + message[message[0] == running :]
        now, running = tick, message[0] if message[0] < 0xF0 else 0
    return b"MTrk" + len(body).to_bytes(4) + body


def midi_file(kind: int, division: int, chunks: Sequence[bytes]) -> bytes:
    """A file of format `kind` of the chunks of its tracks."""
    return b"".join([b"MThd", struct.pack(">IHHH", 6, kind, len(chunks), division), *chunks])
