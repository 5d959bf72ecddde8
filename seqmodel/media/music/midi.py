"""Standard MIDI files to notes: a small reader of our own.

It checks every length before use and tolerates what other programs write: unknown chunks, odd
system messages, meta events with impossible contents, running status carried over a meta event,
data bytes above 127, wrong track lengths, truncated files. `Score.remarks` lists each repair.
"""

import struct
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.files import open_input
from seqmodel.media.music import events as smf
from seqmodel.media.music.grid import (
    DRUM_CHANNEL,
    END_OF_PIECE,
    MAX_TICK,
    Grid,
    Restrike,
)
from seqmodel.media.music.metre import Metre, is_possible

DEFAULT_TEMPO = 500_000
"""Microseconds per beat before the first tempo event: 120 beats per minute."""

SMPTE_TEMPO = {24: 125_000, 25: 120_000, 29: 100_100, 30: 100_000}
"""Microseconds in three film frames, an integer for all four of the format's frame rates; 29 means
30000/1001 frames per second."""

PAUSE_BEATS = 16
"""Beats of silence, or at 120 beats per minute their 8 s, after which a key owes no more offs.

In 2,000 real files notes of one key overlap for at most 9 beats; where a hanging note was followed
by one off too many, there were pauses of 60.
"""

MAX_PEDAL_BEATS = 40
"""Beats, at 120 beats per minute their 20 s, for which a pedal is held down in earnest.

Of 29,000 times in 163 real files, four are of 26 to 36 beats. The next are of 45 to 350, whole
verses, and half of them never end.
"""

MAX_SHARPS = 7
FIFTHS = [note + sign for sign in ("b", "", "#") for note in "FCGDAEB"][1:19]
"""The tonics of major keys from seven flats to seven sharps; three further are the minor ones."""


@dataclass(frozen=True)
class Score:
    """The notes of a MIDI file and what is needed to place them in time.

    The nine arrays of notes have one entry per note (N,): track after track, channel after channel,
    pitch after pitch, then in time; behind them drums that nothing ends.

    Attributes:
        on_tick, off_tick: int64 (N,), where each note begins, and where its key is let go.
        silent_tick: int64 (N,), where it ends: there or, by the sustain pedal, later.
        pitch, channel: uint8 (N,), 0 to 127, and 0 to 15, of which 9 is the drums.
        track: int64 (N,), the track's position in the file, from 0.
        velocity: uint8 (N,), how hard it is struck, 1 to 127.
        on_event, off_event: int64 (N,), the numbers in `events` of what begins and ends it.
        events: all that the tracks hold.
        more: the chunks after the tracks, such as lyrics in a form of their own.
        format, division: as stated in the file.
        ticks_per_unit: ticks in the unit of a tempo: a beat, or three frames of SMPTE time.
        smpte: whether ticks are real time, so that the file has no beats.
        tempo_tick, tempo: int64 (M,), where each tempo begins, increasing from 0, and its
            microseconds per `ticks_per_unit`.
        meters: the time signatures that count, if any, each (tick, beats, of), in order.
        keys: the key signatures, each unlike the one before, such as "Eb" and "C#m".
        pedal: how often the sustain pedal is pressed.
        track_names: those of all tracks that were found, "" for none.
        end_tick: where a marker says that the piece ends, as in one that was sampled and ends in
            silence; 0 without.
        remarks: what was repaired, each a short phrase.
    """

    on_tick: NDArray[np.int64]
    off_tick: NDArray[np.int64]
    silent_tick: NDArray[np.int64]
    pitch: NDArray[np.uint8]
    channel: NDArray[np.uint8]
    track: NDArray[np.int64]
    velocity: NDArray[np.uint8]
    on_event: NDArray[np.int64]
    off_event: NDArray[np.int64]
    events: smf.Events
    more: bytes
    format: int
    division: int
    ticks_per_unit: int
    smpte: bool
    tempo_tick: NDArray[np.int64]
    tempo: NDArray[np.int64]
    meters: tuple[tuple[int, int, int], ...]
    keys: tuple[str, ...]
    pedal: int
    track_names: tuple[str, ...]
    end_tick: int
    remarks: tuple[str, ...]

    @cached_property
    def of_drums(self) -> NDArray[np.bool_]:
        """Which of the notes (N,) are drums."""
        return self.channel == DRUM_CHANNEL

    def ends(self, *, pedal: bool) -> NDArray[np.int64]:
        """The ticks (N,) where notes end, by the sustain pedal or by their keys alone."""
        return self.silent_tick if pedal else self.off_tick

    def seconds_at(self, ticks: NDArray[np.number]) -> NDArray[np.float64]:
        """When each of the ticks (N,), which may be fractional, occurs at the score's tempos.

        Subject to floating-point rounding, unlike the placing of frames by `place`.
        """
        lengths, begins = self._tempos
        if len(lengths) == 1:
            return ticks * lengths[0]
        at = np.searchsorted(self.tempo_tick, ticks, side="right") - 1
        return begins[at] + (ticks - self.tempo_tick[at]) * lengths[at]

    def frame_positions(self, ticks: NDArray[np.int64], grid: Grid) -> NDArray[np.float64]:
        """Where ticks (N,) lie on a grid, in frames."""
        if grid.steps_per_beat:
            return ticks * grid.steps_per_beat / self.ticks_per_unit
        return self.seconds_at(ticks) / grid.seconds_per_frame(1.0)

    def ticks_at(self, seconds: NDArray[np.floating]) -> NDArray[np.float64]:
        """The inverse of `seconds_at`: fractional ticks (N,)."""
        lengths, begins = self._tempos
        at = np.searchsorted(begins, seconds, side="right") - 1
        return self.tempo_tick[at] + (seconds - begins[at]) / lengths[at]

    def tempo_before(self, seconds: float) -> float:
        """Beats per minute in the tick that ends at this time."""
        tick = self.ticks_at(np.array([seconds]))[0] - 0.5
        return 60e6 / int(self.tempo[self.tempo_tick <= max(0, tick)][-1])

    @cached_property
    def _tempos(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Of each tempo (M,) the seconds in a tick, and when it begins."""
        lengths: NDArray[Any] = self.tempo / (1e6 * self.ticks_per_unit)
        return lengths, np.append(0.0, np.cumsum(np.diff(self.tempo_tick) * lengths[:-1]))

    @property
    def median_tempo(self) -> float:
        """Beats per minute, half of its time faster, half slower."""
        ends = np.append(self.tempo_tick[1:], max(self.events.last_tick, 1))
        ticks = np.maximum(np.minimum(ends, ends[-1]) - self.tempo_tick, 0)
        order = np.argsort(-self.tempo)
        elapsed = np.cumsum((ticks * self.tempo.astype(np.float64))[order])
        middle = np.searchsorted(elapsed, elapsed[-1] / 2)
        return 60e6 / int(self.tempo[order][middle])


def read_score(data: bytes, *, restrike: Restrike = "close", hits: bool = False) -> Score:
    """Read the notes of a standard MIDI file, or of one wrapped in RIFF.

    Within a track a note is identified by channel and pitch. One struck again while it sounds ends
    there (`restrike="close"`), and the new one when both have had their note-offs; or it is
    discarded in favour of the new one, which ends at the next note-off ("discard", the published
    rolls' rule). Notes without an end are ignored; with `hits` drums need none, and have no length
    without. The patterns of a format 2 file are read one after the other.

    Memory is bounded by a multiple of the file's size, whatever lengths it claims. SourceError if
    nothing can be read.
    """
    start = _find_header(data)
    size = int.from_bytes(data[start + 4 : start + 8])
    if len(data) < start + 14 or size < 6:
        raise SourceError("is cut short within its header")
    file_format, declared, division = struct.unpack_from(">HHH", data, start + 8)
    ticks_per_unit, smpte_tempo = _parse_division(division)
    repairs = Counter[str]()
    tracks, tracks_end = _find_tracks(data, start + 8 + size, declared, repairs)
    if file_format == 2:
        repairs["format 2, its patterns read one after the other"] += 1
    elif file_format > 2:
        repairs[f"unknown format {file_format} read as format 1"] += 1
    events = smf.Events(data, tracks, in_turn=ticks_per_unit * (file_format == 2))
    meters, keys, names, ends = _read_metas(events, repairs)
    tempo_tick, tempo = np.array([0]), np.array([smpte_tempo])
    if smpte_tempo is None:
        tempo_tick, tempo = _tempos(events, repairs)
    pause, max_pedal = (
        beats * ticks_per_unit * DEFAULT_TEMPO // (smpte_tempo or DEFAULT_TEMPO)
        for beats in (PAUSE_BEATS, MAX_PEDAL_BEATS)
    )
    notes = events.notes(restrike == "close", pause, hits=hits)
    if legacy := events.legacy_ends():
        notes = notes[:, ~np.isin(notes[1], legacy)]
    (begin, end, key), pedals = notes, events.pedals()
    silent_tick, stuck = events.silent_ticks(notes, pedals, max_pedal)
    if stuck:
        repairs[f"sustain pedal down for over {MAX_PEDAL_BEATS} beats ignored"] += stuck
    ends += events.ticks[legacy].tolist()
    return Score(
        on_tick=events.ticks[begin],
        off_tick=events.ticks[end],
        silent_tick=silent_tick,
        pitch=(key & 127).astype(np.uint8),
        channel=(key >> 7 & 15).astype(np.uint8),
        track=key >> 11,
        velocity=np.minimum(events.data[events.at[begin] + 1], 127),
        on_event=begin,
        off_event=end,
        events=events,
        more=_chunks(data, tracks_end),
        format=file_format,
        division=division,
        ticks_per_unit=ticks_per_unit,
        smpte=smpte_tempo is not None,
        tempo_tick=tempo_tick,
        tempo=tempo,
        meters=_metres(meters, ticks_per_unit),
        keys=tuple(key for _, key in _in_order(keys)),
        pedal=int(np.count_nonzero(pedals.pressed)),
        track_names=tuple(names.get(track, "") for track in range(len(events.tracks))),
        end_tick=max(ends, default=0),
        remarks=tuple(
            what if times == 1 else f"{what} ({times} times)" for what, times in repairs.items()
        ),
    )


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


def _parse_division(division: int) -> tuple[int, int | None]:
    """(Ticks per unit of tempo, the fixed tempo of SMPTE time or None), from the header."""
    if division < 0x8000:
        if division == 0:
            raise SourceError("has a division of 0 ticks per beat, so its notes have no time")
        return division, None
    rate, ticks = 256 - (division >> 8), division & 0xFF
    if rate not in SMPTE_TEMPO or ticks == 0:
        raise SourceError(f"has an unknown time code ({rate} frames a second, {ticks} ticks each)")
    return 3 * ticks, SMPTE_TEMPO[rate]


def _find_tracks(
    data: bytes, position: int, declared: int, repairs: Counter[str]
) -> tuple[list[smf.Track], int]:
    """The tracks from `position` on, and where they end.

    No more than announced: the rest may be an earlier file's.
    """
    tracks, end, sizes = list[smf.Track](), position, smf.common_sizes(data)
    expected = declared or len(data)  # 0: its writer never updated the header
    while len(tracks) < expected and 0 <= position <= len(data) - 8:
        size = int.from_bytes(data[position + 4 : position + 8])
        if data[position : position + 4] == b"MTrk":
            track, position = _find_track(data, sizes, position + 8, size, repairs)
            tracks.append(track)
            end = position
        else:
            # Not by its length: what lies between two tracks may be no chunk at all.
            repairs["unknown chunk skipped"] += 1
            position = data.find(b"MTrk", position + 1)
    if not tracks:
        raise SourceError("has no track (it is cut short, or was never finished)")
    if len(tracks) < declared:
        repairs[f"{len(tracks)} of {declared} tracks found"] += 1
    return tracks, end


def _chunks(data: bytes, start: int) -> bytes:
    """The whole chunks from `start` on, up to a track or the header of another file."""
    end = start
    while (name := data[end : end + 4]).isalpha() and name not in (b"MThd", b"MTrk"):
        after = end + 8 + int.from_bytes(data[end + 4 : end + 8])
        if after > len(data):
            break
        end = after
    return data[start:end]


def _find_track(
    data: bytes, sizes: list[bytes], start: int, size: int, repairs: Counter[str]
) -> tuple[smf.Track, int]:
    """The track whose events begin at `start`, and the position of the next chunk."""
    stop = min(start + size, len(data))
    track = smf.find_events(data, sizes, start, stop)
    if track.outcome != smf.ENDED and stop < len(data) and not data[stop : stop + 4].isalpha():
        # No end of track, and no chunk where the length points: the length is wrong.
        repairs["track longer than it says"] += 1
        following = data.find(b"MTrk", stop)
        track = smf.find_events(data, sizes, start, following if following > 0 else len(data))
        stop = track.position
    elif track.outcome == smf.ENDED:
        following = data.find(b"MTrk", track.position, stop + 3)
        if following > 0:
            repairs["track shorter than it says"] += 1
            stop = following
    if track.outcome == smf.BROKEN:
        repairs["track damaged or truncated, its complete notes kept"] += 1
    elif track.outcome == smf.NO_END:
        repairs["track without an end"] += 1
    return track, stop


def _tempos(
    events: smf.Events, repairs: Counter[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each tempo begins, and its microseconds per beat: of several at one tick the last."""
    number, kind, body = events.metas
    chosen = (kind == smf.SET_TEMPO) & (events.end[number] - body >= 3)
    value = events.data[body[chosen, None] + np.arange(3)] @ np.array([1 << 16, 1 << 8, 1])
    if zeros := int((value == 0).sum()):
        repairs["tempo of 0 ignored"] += zeros
    tick = np.append(events.starts, events.ticks[number[chosen][value > 0]])
    tempo = np.append([DEFAULT_TEMPO] * len(events.starts), value[value > 0])
    order = np.argsort(tick, kind="stable")
    tick, tempo = tick[order], tempo[order]
    last = np.append(tick[1:] > tick[:-1], True)
    return tick[last], tempo[last]


def _text(data: bytes) -> str:
    """UTF-8 or, as the format names no encoding, what most older sequencers write."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _read_metas(
    events: smf.Events, repairs: Counter[str]
) -> tuple[list[tuple[int, Metre]], list[tuple[int, str]], dict[int, str], list[int]]:
    """Time and key signatures, by track the first name it states, and where the piece ends."""
    meters, keys, names, ends = list[tuple[int, Metre]](), [], dict[int, str](), list[int]()
    decoded = smf.TIME_SIGNATURE, smf.KEY_SIGNATURE, smf.TRACK_NAME, smf.MARKER
    chosen, kinds, body_at = events.metas[:, (events.metas[1, :, None] == decoded).any(axis=1)]
    found = events.track[chosen], events.ticks[chosen], kinds, body_at, events.end[chosen]
    for track, tick, kind, at, end in zip(*(each.tolist() for each in found), strict=True):
        body = events.data[at:end].tobytes()
        if kind == smf.TIME_SIGNATURE and len(body) >= 2:
            metre = body[0], 1 << body[1]
            if is_possible(metre):
                meters.append((tick, metre))
            else:
                repairs["impossible time signature ignored"] += 1
        elif kind == smf.KEY_SIGNATURE and len(body) >= 2:
            sharps, minor = struct.unpack_from("bB", body)
            if abs(sharps) <= MAX_SHARPS and minor in (0, 1):
                keys.append((tick, FIFTHS[sharps + MAX_SHARPS + 3 * minor] + "m" * minor))
        elif kind == smf.TRACK_NAME:
            names.setdefault(track, _text(body))
        elif kind == smf.MARKER and body == END_OF_PIECE:
            ends.append(tick)
    return meters, keys, names, ends


def _metres(stated: list[tuple[int, Metre]], beat: int) -> tuple[tuple[int, int, int], ...]:
    """`Score.meters`.

    One of a single beat that lasts for longer than it, as some programs write, states no bars; of
    several at one tick, as in other tracks, the last counts.
    """
    changes = pairwise([*_in_order(stated), (MAX_TICK, None)])
    bars = {
        tick: (tick, beats, of)
        for (tick, (beats, of)), (end, _) in changes
        if beats > 1 or (end - tick) * of <= 4 * beat
    }
    return tuple(bars.values())


def _in_order(signatures: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The signatures in order of time, each once while it lasts."""
    in_order = sorted(signatures, key=itemgetter(0))
    return [next(same) for _, same in groupby(in_order, itemgetter(1))]
