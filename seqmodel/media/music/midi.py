"""Standard MIDI files to notes: a small reader of our own.

It checks every length before use and tolerates what other programs write: unknown chunks, odd
system messages, meta events with impossible contents, running status carried over a meta event,
data bytes above 127, wrong track lengths, truncated files. `Score.remarks` lists each repair.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import add
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.files import open_input
from seqmodel.media.music.formats import DEFAULT_TEMPO, MAX_TICK, SMPTE_TEMPO
from seqmodel.media.music.midi_events import (
    CUT_SHORT,
    ENDED,
    LOST,
    NO_END,
    TOO_LATE,
    Track,
    find_events,
    read_events,
)

Restrike = Literal["close", "discard"]

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


@dataclass(frozen=True)
class Score:
    """The notes of a MIDI file and what is needed to place them in time.

    The six arrays of notes have one entry per note (N,), in no particular order.

    Attributes:
        on_tick: int64 (N,), where each note begins, in ticks from the start.
        off_tick: int64 (N,), where it ends; at or after `on_tick`.
        pitch: uint8 (N,), 0 to 127.
        channel: uint8 (N,), 0 to 15; 9 is the drums.
        track: int64 (N,), the track's position in the file, from 0.
        velocity: uint8 (N,), how hard it is struck, 1 to 127.
        ticks_per_unit: ticks in the unit of a tempo: a beat, or three frames of SMPTE time.
        smpte: whether ticks are real time, so that the file has no beats.
        tempo_tick: int64 (M,), increasing from 0: where each tempo begins.
        tempo: int64 (M,), microseconds per `ticks_per_unit`.
        meters: the time signatures, if any; each differs from the one before.
        keys: the key signatures in the same way, such as "Eb" and "C#m".
        programs: (track, channel, program) of each program change, in order within a track.
        pedal: how often the sustain pedal is pressed.
        format: 0, 1 or 2, or an unknown one read as 1, as stated in the file.
        tracks: number of tracks found.
        track_names: their names, "" for one that has none.
        last_tick: where the longest track ends.
        remarks: what was repaired, each a short phrase.
    """

    on_tick: NDArray[np.int64]
    off_tick: NDArray[np.int64]
    pitch: NDArray[np.uint8]
    channel: NDArray[np.uint8]
    track: NDArray[np.int64]
    velocity: NDArray[np.uint8]
    ticks_per_unit: int
    smpte: bool
    tempo_tick: NDArray[np.int64]
    tempo: NDArray[np.int64]
    meters: tuple[tuple[int, int], ...]
    keys: tuple[str, ...]
    programs: tuple[tuple[int, int, int], ...]
    pedal: int
    format: int
    tracks: int
    track_names: tuple[str, ...]
    last_tick: int
    remarks: tuple[str, ...]

    def seconds_at(self, ticks: NDArray[np.number]) -> NDArray[np.float64]:
        """When each of the ticks (N,), which may be fractional, occurs at the score's tempos.

        Subject to floating-point rounding, unlike the placing of frames by `pianoroll`.
        """
        lengths = self.tempo / (1e6 * self.ticks_per_unit)
        begins = np.append(0.0, np.cumsum(np.diff(self.tempo_tick) * lengths[:-1]))
        at = np.searchsorted(self.tempo_tick, ticks, side="right") - 1
        seconds: NDArray[np.float64] = begins[at] + (ticks - self.tempo_tick[at]) * lengths[at]
        return seconds


def read_score(data: bytes, *, restrike: Restrike = "close") -> Score:
    """Read the notes of a standard MIDI file, or of one wrapped in RIFF.

    Within a track a note is identified by channel and pitch. One struck again while it sounds ends
    there (`restrike="close"`) or is discarded in favour of the new one ("discard", the published
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
            beginning = file.read(12)
    except OSError:
        return False
    return beginning[:4] == b"MThd" or (beginning[:4], beginning[8:]) == (b"RIFF", b"RMID")


def _find_header(data: bytes) -> int:
    """The position of the file's header: 0, or inside a RIFF wrapper."""
    if not data:
        raise SourceError("is empty")
    start = 0
    if data[:4] == b"RIFF" and data[8:12] == b"RMID":
        start = data.find(b"MThd")
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
                self.record_repair("unknown chunk skipped")
                after = position + 8 + size
                # The length is wrong if it points beyond the file: search for the next track.
                position = after if after <= len(data) else data.find(b"MTrk", position + 1)
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
            track = find_events(data, start, len(data))
            stop = track.position
        elif (
            track.outcome == ENDED
            and track.position < stop
            and data.startswith(b"MTrk", track.position)
        ):
            self.record_repair("track shorter than it says")
            stop = track.position
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
        events = read_events(np.frombuffer(self.data, np.uint8), self.tracks, self.close)
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
