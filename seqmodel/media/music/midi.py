"""Standard MIDI files to notes: a small reader of our own.

It checks every length before use and tolerates what other programs write: unknown chunks, odd
system messages, meta events with impossible contents, running status carried over a meta event,
data bytes above 127, wrong track lengths, truncated files. `Score.remarks` lists each repair.

The events of tracks are found one after the other, then decoded all at once: where an event begins
depends on the one before. Runs of channel messages, nearly all of a file, are cut into events by a
regular expression, everything else by hand; arithmetic is left to NumPy.
"""

import re
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.files import open_input
from seqmodel.media.music.frames import Restrike, Score
from seqmodel.media.music.grid import (
    DEFAULT_TEMPO,
    END_OF_PIECE,
    LARGEST_QUANTITY,
    MAX_TICK,
    SMPTE_TEMPO,
)

PAUSE = 16
"""Beats of silence, or at 120 beats per minute their 8 s, after which a key owes no more offs.

In 2,000 real files notes of one key overlap for at most 9 beats; where a hanging note was followed
by one off too many, there were pauses of 60.
"""

SHORTEST_BEAT = 6
"""A time signature may count notes of one over two to this power, or longer ones."""

MOST_SHARPS = 7
FIFTHS = (
    "Cb", "Gb", "Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B", "F#", "C#", "G#", "D#",
    "A#",
)  # fmt: skip
"""The tonics of the major keys from seven flats to seven sharps; three further are the minor ones.
"""

TIME_TOO_LATE = "has a time too late to be music (a damaged delta)"


def read_score(data: bytes, *, restrike: Restrike = "close") -> Score:
    """Read the notes of a standard MIDI file, or of one wrapped in RIFF.

    Within a track a note is identified by channel and pitch. One struck again while it sounds ends
    there (`restrike="close"`), and the new one when both have had their note-offs; or it is
    discarded in favour of the new one, which ends at the next note-off ("discard", the published
    rolls' rule). A note-off without a note and a note without an end are ignored. A note-on of
    velocity 0 is a note-off. The complete notes of a truncated track are kept. The independent
    patterns of a format 2 file are read one after the other.

    Memory is bounded by a multiple of the file's size, whatever lengths it claims.

    Raises:
        SourceError: if nothing can be read; its message is one line without the file's name.
    """
    start = _find_header(data)
    size = int.from_bytes(data[start + 4 : start + 8])
    if len(data) < start + 14 or size < 6:
        raise SourceError("is cut short within its header")
    file_format, tracks, division = struct.unpack_from(">HHH", data, start + 8)
    ticks_per_unit, smpte_tempo = _clock(division)
    reader = _Reader(data, file_format, restrike)
    reader.read_chunks(start + 8 + size, tracks)
    return reader.score(ticks_per_unit, smpte_tempo)


def is_midi(path: Path) -> bool:
    """Whether a file begins like MIDI, whatever its name."""
    try:
        with open_input(path) as file:
            return begins_like_midi(file.read(12))
    except OSError:
        return False


def begins_like_midi(data: bytes) -> bool:
    """Whether the first twelve bytes, or more, are those of MIDI, by itself or wrapped in RIFF."""
    return data[:4] == b"MThd" or (data[:4], data[8:12]) == (b"RIFF", b"RMID")


def _find_header(data: bytes) -> int:
    """The position of the file's header: 0, or inside a RIFF wrapper."""
    if not data:
        raise SourceError("is empty")
    start = 0
    if begins_like_midi(data) and data[:4] == b"RIFF":
        # A title may hold "MThd" as well, so go by the chunks, as long as they lead there.
        start = 12
        while data[start : start + 4] not in (b"data", b""):
            size = int.from_bytes(data[start + 4 : start + 8], "little")
            start += 8 + size + size % 2
        start = start + 8 if data.startswith(b"MThd", start + 8) else data.find(b"MThd")
    if start < 0 or data[start : start + 4] != b"MThd":
        raise SourceError("is not a MIDI file (it does not begin with MThd)")
    return start


def _clock(division: int) -> tuple[int, int | None]:
    """(Ticks per unit of tempo, the fixed tempo of SMPTE time or None), from the header."""
    if division < 0x8000:
        if division == 0:
            raise SourceError("has a division of 0 ticks per beat, so its notes have no time")
        return division, None
    rate, ticks = 256 - (division >> 8), division & 0xFF
    if rate not in SMPTE_TEMPO or ticks == 0:
        raise SourceError(f"has an unknown time code ({rate} frames a second, {ticks} ticks each)")
    return 3 * ticks, SMPTE_TEMPO[rate]


class _Reader:
    """One pass over one file: walks the chunks and collects what its tracks hold."""

    def __init__(self, data: bytes, file_format: int, restrike: Restrike) -> None:
        self.data = data
        self.format = file_format
        self.close = restrike == "close"
        self.tracks: list[Track] = []
        self.repairs: dict[str, int] = {}

    def record_repair(self, what: str, times: int = 1) -> None:
        if times:
            self.repairs[what] = self.repairs.get(what, 0) + times

    def read_chunks(self, position: int, tracks: int) -> None:
        """Read up to `tracks` tracks from `position`, the end of the header.

        No more than the header announces: the rest may be left over from an earlier file.
        """
        data = self.data
        expected = tracks or len(data)  # 0: its writer never updated the header
        while len(self.tracks) < expected and 0 <= position <= len(data) - 8:
            size = int.from_bytes(data[position + 4 : position + 8])
            if data[position : position + 4] == b"MTrk":
                position = self.read_track(position + 8, size)
            else:
                # Not by its length: what lies between two tracks may be no chunk at all.
                self.record_repair("unknown chunk skipped")
                position = data.find(b"MTrk", position + 1)
        if not self.tracks:
            raise SourceError("has no track (it is cut short, or was never finished)")
        if len(self.tracks) < tracks:
            self.record_repair(f"{len(self.tracks)} of {tracks} tracks found")

    def read_track(self, start: int, size: int) -> int:
        """Read the track whose events begin at `start`; returns the position of the next chunk."""
        data = self.data
        stop = min(start + size, len(data))
        track = find_events(data, start, stop)
        if track.outcome != ENDED and stop < len(data) and not data[stop : stop + 4].isalpha():
            # No end of track, and no chunk where the length points: the length is wrong.
            self.record_repair("track longer than it says")
            following = data.find(b"MTrk", stop)
            track = find_events(data, start, following if following > 0 else len(data))
            stop = track.position
        elif track.outcome == ENDED:
            following = data.find(b"MTrk", track.position, stop + 3)
            if following > 0:
                self.record_repair("track shorter than it says")
                stop = following
        if track.outcome == TOO_LATE:
            raise SourceError(TIME_TOO_LATE)
        if track.outcome in (CUT_SHORT, LOST):
            self.record_repair("track damaged or truncated, its complete notes kept")
        elif track.outcome == NO_END:
            self.record_repair("track without an end")
        self.tracks.append(track)
        return stop

    def score(self, ticks_per_unit: int, smpte_tempo: int | None) -> Score:
        """Everything read so far."""
        if self.format == 2:
            self.record_repair("format 2, its patterns read one after the other")
        elif self.format > 2:
            self.record_repair(f"unknown format {self.format} read as format 1")
        pause = PAUSE * ticks_per_unit * DEFAULT_TEMPO // (smpte_tempo or DEFAULT_TEMPO)
        events = read_events(np.frombuffer(self.data, np.uint8), self.tracks, self.close, pause)
        ticks, notes, tempos, names = events.ticks, events.notes, events.tempos, events.names
        counts = [len(track.lengths) for track in self.tracks]
        lasts = [
            track.rest + (int(ticks[end - 1]) if track.lengths else 0)
            for track, end in zip(self.tracks, accumulate(counts), strict=True)
        ]
        # Patterns of format 2 are independent; here they follow each other.
        starts = [0, *accumulate(lasts)][:-1] if self.format == 2 else [0] * len(lasts)
        last_tick = max(map(add, starts, lasts))
        if last_tick > MAX_TICK:
            raise SourceError(TIME_TOO_LATE)
        ticks += np.repeat(starts, counts)
        tempos[:, 0] = ticks[tempos[:, 0]]
        tempo_tick, tempo = self.tempo_map(tempos, starts, smpte_tempo)
        return Score(
            on_tick=ticks[notes[:, 0]],
            off_tick=ticks[notes[:, 1]],
            pitch=(notes[:, 2] & 127).astype(np.uint8),
            channel=(notes[:, 2] >> 7 & 15).astype(np.uint8),
            track=notes[:, 2] >> 11,
            velocity=events.velocities,
            ticks_per_unit=ticks_per_unit,
            smpte=smpte_tempo is not None,
            tempo_tick=tempo_tick,
            tempo=tempo,
            meters=_in_time(events.meters, ticks, _meter),
            keys=_in_time(events.keys, ticks, _key),
            programs=tuple((n >> 11, n >> 7 & 15, n & 127) for n in events.programs.tolist()),
            pedal=events.pedal,
            format=self.format,
            tracks=len(self.tracks),
            track_names=tuple(
                names.get(track, b"").decode(errors="replace") for track in range(len(self.tracks))
            ),
            last_tick=last_tick,
            end_tick=int(ticks[events.ends].max(initial=0)),
            remarks=tuple(
                what if times == 1 else f"{what} ({times} times)"
                for what, times in self.repairs.items()
            ),
        )

    def tempo_map(
        self, tempos: NDArray[np.int64], starts: list[int], smpte_tempo: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tempos of all tracks by tick; of several at one tick, the last wins."""
        if smpte_tempo is not None:
            return np.zeros(1, dtype=np.int64), np.full(1, smpte_tempo)
        stopped = tempos[:, 1] == 0
        self.record_repair("tempo of 0 ignored", int(stopped.sum()))
        tempos = tempos[~stopped]
        defaults = starts if self.format == 2 else [0]
        tick = np.concatenate([defaults, tempos[:, 0]])
        tempo = np.concatenate([np.full(len(defaults), DEFAULT_TEMPO), tempos[:, 1]])
        order = np.argsort(tick, kind="stable")
        tick, tempo = tick[order], tempo[order]
        last = np.append(tick[1:] > tick[:-1], True)
        return tick[last], tempo[last]


def _in_time(
    signatures: NDArray[np.int64], ticks: NDArray[np.int64], read: Callable[[int, int], Any | None]
) -> tuple[Any, ...]:
    """The possible signatures (K, 3), as `read`, in order of time, each once while it lasts."""
    order = np.argsort(ticks[signatures[:, 0]], kind="stable")
    found = [read(*values) for values in signatures[order, 1:].tolist()]
    return tuple(signature for signature, _ in groupby(one for one in found if one is not None))


def _meter(beats: int, power: int) -> tuple[int, int] | None:
    return (beats, 2**power) if beats and power <= SHORTEST_BEAT else None


def _key(sharps: int, minor: int) -> str | None:
    sharps -= 256 * (sharps > 127)
    possible = abs(sharps) <= MOST_SHARPS and minor in (0, 1)
    return FIFTHS[sharps + MOST_SHARPS + 3 * minor] + "m" * minor if possible else None


# ---- events -------------------------------------------------------------------------------------

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

TRACK_NAME, MARKER, SET_TEMPO, TIME_SIGNATURE, KEY_SIGNATURE = 0x03, 0x06, 0x51, 0x58, 0x59
READ = np.isin(np.arange(256), (TRACK_NAME, MARKER, SET_TEMPO, TIME_SIGNATURE, KEY_SIGNATURE))
"""Which kinds of meta events are decoded."""
END_OF_TRACK = 0x2F
SUSTAIN, DOWN = 64, 64
"""The controller of the sustain pedal, and the least value that holds it down."""

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
    marker, value = metas.of_kind(MARKER, len(END_OF_PIECE))
    marked = _bytes(data, value, len(END_OF_PIECE)) == np.frombuffer(END_OF_PIECE, np.uint8)
    piece_ends = marker[marked.all(axis=1) & (value + len(END_OF_PIECE) == end[marker])]

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
    notes = _paired(key, begins, number, ticks, close, pause)
    size = len(FORMER_END)
    former = [
        last - 2
        for one, last in zip(tracks, np.cumsum(counts).tolist(), strict=True)
        if data[one.position - size : one.position].tobytes() == FORMER_END
    ]
    if former:
        piece_ends = np.append(piece_ends, former)
        notes = notes[~np.isin(notes[:, 1], former)]
    velocities = np.minimum(data[velocity_at[notes[:, 0]]], 127)
    return Events(
        ticks, notes, velocities, programs, pedal, tempos, meters, keys, names, piece_ends
    )


def _paired(
    key: NDArray[np.int64], begins: NDArray[np.bool_], number: NDArray[np.int64],
    ticks: NDArray[np.int64], close: bool, pause: int,
) -> NDArray[np.int64]:  # fmt: skip
    """The notes (N, 3), as in `Events`, of what begins or ends one, in order of the file."""
    # By key, then in order: sorting numbers is faster than sorting their places.
    bits = len(key).bit_length()
    order = np.sort(key << bits | np.arange(len(key))) & ((1 << bits) - 1)
    key, begins, number = key[order], begins[order], number[order]
    if close and (begins[1:] & begins[:-1] & (key[1:] == key[:-1])).any():
        ending = begins | ~_sounds_on(key, begins, ticks[number], pause)
        key, begins, number = key[ending], begins[ending], number[ending]
    ends = np.flatnonzero((key[1:] == key[:-1]) & begins[:-1] & (close | ~begins[1:]))
    return np.stack([number[ends], number[ends + 1], key[ends]], axis=1)


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
