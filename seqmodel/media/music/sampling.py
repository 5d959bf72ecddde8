"""Sampled music: how long a piece is, what it continues, how it is written."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.definitions import Filling, FrameDefinition, SampleRequest, Sampling, Written
from seqmodel.media.input import named
from seqmodel.media.music import defaults
from seqmodel.media.music.corpus import load_midi, load_roll
from seqmodel.media.music.filling import filled_piece
from seqmodel.media.music.formats import SOUND_FORMATS
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import LOWEST_PITCH, MAX_FRAMES, NOTES
from seqmodel.media.music.listening import check_sound, frame_times, write_music
from seqmodel.media.music.midi_writer import midi_bytes
from seqmodel.media.music.notes import semitones_above_c
from seqmodel.media.music.onsets import after_silence, has_onsets, sounding, states, with_onsets
from seqmodel.media.music.pianoroll import transposed
from seqmodel.media.music.plots import piano_roll_picture, piano_roll_png
from seqmodel.media.music.tonic import semitones_to_key
from seqmodel.media.npy import with_comment
from seqmodel.media.pictures import Picture
from seqmodel.media.words import plural


class MusicSampling(Sampling):
    """`Sampling` of piano-rolls, each written once it is complete."""

    def __init__(self, frame: FrameDefinition, request: SampleRequest) -> None:
        assert isinstance(frame, PianoRollFrames)
        self._frame, self._request = frame, request
        options = request.options
        self._tonic, self._flat = _tonic(options), bool(options.get("flat"))
        self._around = around = filled_piece(frame, options)
        self._meter = around.meter if around else None
        self._tempo = options.get("tempo") or (around.tempo if around else defaults.TEMPO)
        self.manner = {"tempo": self._tempo}
        seconds_per_frame = frame.grid.seconds_per_frame(self._tempo)
        per_second = 1 / seconds_per_frame
        default = request.longest_piece or defaults.LENGTH
        what = f"the {MAX_FRAMES:,} frames a piece may have"
        self.length = request.frames_to_draw(default, MAX_FRAMES, per_second, what)
        self.remarks: list[str] = []
        self.primer = self._read_primer()[: request.frames_of_prime(MAX_FRAMES, per_second)]
        self._heard = len(self.primer) if request.include_prime else 0
        if around is not None:
            self.remarks += around.remarks
            particles = options.get("particles") or defaults.PARTICLES
            sweeps = _sweeps(options, around.free)
            self.filling = Filling(around.frames, around.free, particles, sweeps)
            self.length = len(around.frames)
        if request.kind in SOUND_FORMATS:
            check_sound(request.kind, (self._heard + self.length) * seconds_per_frame)

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable[NDArray[np.uint8]],
        progress: Callable[[int, int], None],
    ) -> Written:
        """`Sampling.write`."""
        heard = end = self._heard
        # Allocated once, and backed by memory only as it is filled: never twice the music.
        frames = np.empty((heard + self.length, self._frame.frame_size), np.uint8)
        frames[:heard] = self.primer[:heard]
        for chunk in chunks:
            frames[end : end + len(chunk)] = chunk
            end += len(chunk)
            progress(end - heard, self.length)
        if self._frame.onsets and not heard:
            frames[:1] = after_silence(frames[:1])
        frames, given = self._written(frames[:end])
        size = plural(len(frames), "frame")
        if self._request.kind in SOUND_FORMATS:
            times = frame_times(len(frames), self._frame.grid, self._tempo)
            seconds = write_music(
                self._request.kind, file, frames, times, self._frame.grid,
                meter=self._meter, flat=self._flat, given=given,
            )  # fmt: skip
            size += f", {seconds:,.1f} s"
        else:
            file.write(self._encode(frames, given))
        return Written(size, "" if frames.any() else "silent: try a higher --temperature")

    def picture(self, frames: NDArray[np.uint8]) -> Picture:
        """`Sampling.picture`."""
        frames, given = self._written(frames)
        return piano_roll_picture(frames, self._frame, tempo=self._tempo, given=given)

    def _written(
        self, frames: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
        """The frames in their key, and (T, 88) what of them was given, if anything."""
        if self._around is not None:
            frames = self._around.played(frames)
        semitones = self._semitones(frames)
        if semitones:
            frames = transposed(frames, semitones)
        return frames, self._given(len(frames), semitones)

    def _read_primer(self) -> NDArray[np.uint8]:
        path = self._request.prime
        if path is None:
            return np.empty((0, self._frame.frame_size), np.uint8)
        with named(f"--prime {path}", for_run=True):
            if path.suffix.lower() == ".npy":
                return self._fitting(load_roll(path)[0])
            piece = load_midi(path, self._frame)
        if piece.transposed:
            self.remarks.append(
                f"{path} was transposed by {piece.transposed:+d} semitones, its tonic to C as in "
                "training"
            )
        return piece.frames

    def _fitting(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Convert frames of a .npy file to the run's kind, with or without onsets."""
        if not self._frame.onsets:
            return sounding(frames)
        if has_onsets(frames):
            return frames
        self.remarks.append(
            f"{self._request.prime} does not say which notes are struck again: repeated notes are "
            "taken as held"
        )
        return with_onsets(frames)

    def _semitones(self, frames: NDArray[np.uint8]) -> int:
        """By which what was drawn is moved."""
        if self._tonic is not None:
            return semitones_to_key(sounding(frames), self._tonic)
        asked: int = self._request.options.get("transpose") or 0
        return asked if self._around is None else asked - self._around.transposed

    def _given(self, frames: int, semitones: int) -> NDArray[np.bool_] | None:
        """(T, 88), what of the music to be written was not drawn; None: all of it was."""
        if self._around is not None:
            return transposed(~self._around.free, semitones)
        if not self._heard:
            return None
        return np.broadcast_to((np.arange(frames) < self._heard)[:, None], (frames, NOTES))

    def _encode(self, frames: NDArray[np.uint8], given: NDArray[np.bool_] | None) -> bytes:
        grid, onsets = self._frame.grid, has_onsets(frames)
        if self._request.kind == "mid":
            return midi_bytes(
                frames, grid, tempo_bpm=self._tempo, meter=self._meter, flat=self._flat,
                given=given,
            )  # fmt: skip
        if self._request.kind == "png":
            return piano_roll_png(
                sounding(frames),
                LOWEST_PITCH,
                title=self._request.title,
                unit=f"frame ({grid})",
                given=given,
                struck=frames[:, NOTES:] if onsets else None,
            )
        onsets = self._frame.onsets
        frames = frames if onsets else sounding(frames)
        buffer = io.BytesIO()
        np.save(buffer, states(frames) if onsets else frames, allow_pickle=False)
        return with_comment(buffer.getvalue(), json.dumps(grid.to_json()))


def _sweeps(options: Mapping[str, Any], free: NDArray[np.bool_]) -> int:
    """Drafts are good without where something is given in every frame, the last one included."""
    given: int | None = options.get("sweeps")
    needed = free.all(axis=1).any() or not free[-1].any()
    return (defaults.SWEEPS if needed else 0) if given is None else given


def _tonic(options: Mapping[str, Any]) -> int | None:
    """The pitch class of --key, 0 for C, if it is given."""
    key = options.get("key")
    if key is None:
        return None
    if options.get("transpose"):
        raise UsageError("--key and --transpose exclude each other")
    try:
        return semitones_above_c(key) % 12
    except ValueError:
        raise UsageError(f"--key must be a note such as C, F# or Eb, not {key!r}") from None
