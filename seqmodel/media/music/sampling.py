"""Sampled music: how long a piece is, what it continues, how it is written."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.definitions import (
    Filling,
    FrameDefinition,
    Picture,
    SampleRequest,
    Sampling,
    Written,
)
from seqmodel.media.input import named
from seqmodel.media.music.contents import semitones_to_key
from seqmodel.media.music.corpus import load_midi, load_roll
from seqmodel.media.music.filling import filled_piece
from seqmodel.media.music.frames import (
    PianoRollFrames,
    after_silence,
    has_onsets,
    semitones_above_c,
    sounding,
    states,
    transposed,
    with_onsets,
)
from seqmodel.media.music.grid import (
    BEATS_PER_MINUTE,
    LOWEST_PITCH,
    MAX_FRAMES,
    NOTES,
    PARTICLES,
    SAMPLE_LENGTH,
    SOUND_FORMATS,
    SWEEPS,
)
from seqmodel.media.music.inspection import piano_roll_picture, piano_roll_png
from seqmodel.media.music.writing import check_sound, frame_times, midi_bytes, write_music
from seqmodel.media.npy import with_comment
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
        self._tempo = options.get("tempo") or (around.tempo if around else BEATS_PER_MINUTE)
        self.manner = {"tempo": self._tempo}
        seconds_per_frame = frame.grid.seconds_per_frame(self._tempo)
        per_second = 1 / seconds_per_frame
        default = request.longest_piece or SAMPLE_LENGTH
        what = f"the {MAX_FRAMES:,} frames a piece may have"
        self.length = request.frames_to_draw(default, MAX_FRAMES, per_second, what)
        self.remarks: list[str] = []
        self.primer = self._read_primer()[: request.frames_of_prime(MAX_FRAMES, per_second)]
        self._included = len(self.primer) if request.include_prime else 0
        if around is not None:
            self.remarks += around.remarks
            particles, sweeps = options.get("particles") or PARTICLES, options.get("sweeps")
            if sweeps is None:
                # Drafts are good without where something is given in every frame, also the last.
                needed = around.free.all(axis=1).any() or not around.free[-1].any()
                sweeps = SWEEPS if needed else 0
            self.filling = Filling(around.frames, around.free, particles, sweeps)
            self.length = len(around.frames)
        if request.kind in SOUND_FORMATS:
            check_sound(request.kind, (self._included + self.length) * seconds_per_frame)

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable[NDArray[np.uint8]],
        progress: Callable[[int, int], None],
    ) -> Written:
        """`Sampling.write`."""
        included = end = self._included
        # Allocated once, and backed by memory only as it is filled: never twice the music.
        frames = np.empty((included + self.length, self._frame.frame_size), np.uint8)
        frames[:included] = self.primer[:included]
        for chunk in chunks:
            frames[end : end + len(chunk)] = chunk
            end += len(chunk)
            progress(end - included, self.length)
        if self._frame.onsets and not included:
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
        semitones: int = self._request.options.get("transpose") or 0
        if self._tonic is not None:
            semitones = semitones_to_key(sounding(frames), self._tonic)
        elif self._around is not None:
            semitones -= self._around.transposed
        if semitones:
            frames = transposed(frames, semitones)
        if self._around is not None:
            return frames, transposed(~self._around.free, semitones)
        if not self._included:
            return frames, None
        given = np.arange(len(frames)) < self._included
        return frames, np.broadcast_to(given[:, None], (len(frames), NOTES))

    def _read_primer(self) -> NDArray[np.uint8]:
        path = self._request.prime
        if path is None:
            return np.empty((0, self._frame.frame_size), np.uint8)
        with named(f"--prime {path}", for_run=True):
            if path.suffix.lower() == ".npy":
                frames, _ = load_roll(path)
                if not self._frame.onsets:
                    return sounding(frames)
                if not has_onsets(frames):
                    self.remarks.append(
                        f"{path} does not say which notes are struck again: repeated notes are "
                        "taken as held"
                    )
                    frames = with_onsets(frames)
                return frames
            piece = load_midi(path, self._frame)
        if piece.transposed:
            self.remarks.append(
                f"{path} was transposed by {piece.transposed:+d} semitones, its tonic to C as in "
                "training"
            )
        return piece.frames

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
