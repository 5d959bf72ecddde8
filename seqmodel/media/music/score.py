"""The notes of a MIDI file and what is needed to place them in time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Score:
    """The notes of a MIDI file and what is needed to place them in time.

    The nine arrays of notes have one entry per note (N,), in no particular order.

    Attributes:
        on_tick, off_tick: int64 (N,), where each note begins, and where its key is let go.
        silent_tick: int64 (N,), where it ends: there or, by the sustain pedal, later.
        pitch, channel: uint8 (N,), 0 to 127, and 0 to 15, of which 9 is the drums.
        track: int64 (N,), the track's position in the file, from 0.
        velocity: uint8 (N,), how hard it is struck, 1 to 127.
        on_event, off_event: int64 (N,), the numbers in `events.Events` of what begins and ends it.
        ticks_per_unit: ticks in the unit of a tempo: a beat, or three frames of SMPTE time.
        smpte: whether ticks are real time, so that the file has no beats.
        tempo_tick, tempo: int64 (M,), where each tempo begins, increasing from 0, and its
            microseconds per `ticks_per_unit`.
        meters: the time signatures, if any, each (tick, beats, of) and unlike the one before.
        keys: the key signatures in the same way, such as "Eb" and "C#m".
        programs: (track, channel, tick, program) of each program change, in order within a track.
        pedal: how often the sustain pedal is pressed.
        format: as stated in the file.
        tracks, track_names: how many tracks were found, and their names, "" for none.
        last_tick, end_tick: where the longest track ends, and where a marker says that the piece
            does, as in one that was sampled and ends in silence; 0 without.
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
    ticks_per_unit: int
    smpte: bool
    tempo_tick: NDArray[np.int64]
    tempo: NDArray[np.int64]
    meters: tuple[tuple[int, int, int], ...]
    keys: tuple[str, ...]
    programs: tuple[tuple[int, int, int, int], ...]
    pedal: int
    format: int
    tracks: int
    track_names: tuple[str, ...]
    last_tick: int
    end_tick: int
    remarks: tuple[str, ...]

    def ends(self, *, pedal: bool) -> NDArray[np.int64]:
        """The ticks (N,) where notes end, by the sustain pedal or by their keys alone."""
        return self.silent_tick if pedal else self.off_tick

    def seconds_at(self, ticks: NDArray[np.number]) -> NDArray[np.float64]:
        """When each of the ticks (N,), which may be fractional, occurs at the score's tempos.

        Subject to floating-point rounding, unlike the placing of frames by `place`.
        """
        lengths, begins = self._tempos()
        at = np.searchsorted(self.tempo_tick, ticks, side="right") - 1
        return begins[at] + (ticks - self.tempo_tick[at]) * lengths[at]

    def ticks_at(self, seconds: NDArray[np.floating]) -> NDArray[np.float64]:
        """The inverse of `seconds_at`: fractional ticks (N,)."""
        lengths, begins = self._tempos()
        at = np.searchsorted(begins, seconds, side="right") - 1
        return self.tempo_tick[at] + (seconds - begins[at]) / lengths[at]

    def _tempos(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Of each tempo (M,) the seconds in a tick, and when it begins."""
        lengths: NDArray[Any] = self.tempo / (1e6 * self.ticks_per_unit)
        return lengths, np.append(0.0, np.cumsum(np.diff(self.tempo_tick) * lengths[:-1]))

    @property
    def median_tempo(self) -> float:
        """Beats per minute, half of its time faster, half slower."""
        ends = np.append(self.tempo_tick[1:], max(self.last_tick, 1))
        ticks = np.maximum(np.minimum(ends, ends[-1]) - self.tempo_tick, 0)
        order = np.argsort(-self.tempo)
        elapsed = np.cumsum((ticks * self.tempo.astype(np.float64))[order])
        middle = np.searchsorted(elapsed, elapsed[-1] / 2)
        return 60e6 / int(self.tempo[order][middle])
