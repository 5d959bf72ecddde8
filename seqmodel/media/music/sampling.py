"""Sampled music: how long a piece is, what it goes on from, how it is written."""

import io
from collections.abc import Callable, Iterable
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.definitions import FrameDefinition, SampleRequest, Sampling, Written
from seqmodel.media.music.corpus import load_midi, load_roll
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import LOWEST_PITCH, MAX_FRAMES
from seqmodel.media.music.listening import check_sound, steady_times, write_music
from seqmodel.media.music.medium import DEFAULT_LENGTH, DEFAULT_TEMPO, SOUND_FORMATS
from seqmodel.media.music.midi_writer import midi_bytes
from seqmodel.media.music.plots import piano_roll_png
from seqmodel.media.words import plural


class MusicSampling(Sampling):
    """`Sampling` of piano-rolls, each written once it is complete."""

    def __init__(self, frame: FrameDefinition, request: SampleRequest) -> None:
        assert isinstance(frame, PianoRollFrames)
        self._frame, self._request = frame, request
        self._tempo = request.options.get("tempo") or DEFAULT_TEMPO
        self.length = self._length()
        self.remarks: list[str] = []
        self.primer = self._read_primer()
        self._heard = len(self.primer) if request.include_prime else 0
        if request.kind in SOUND_FORMATS:
            check_sound(request.kind, (self._heard + self.length) * self._seconds_per_frame)

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable[NDArray[np.uint8]],
        progress: Callable[[int, int], None],
    ) -> Written:
        """`Sampling.write`."""
        parts, drawn = [self.primer[: self._heard]], 0
        for chunk in chunks:
            parts.append(chunk)
            drawn += len(chunk)
            progress(drawn, self.length)
        roll = np.concatenate(parts)
        size = plural(len(roll), "frame")
        if self._request.kind in SOUND_FORMATS:
            times = steady_times(len(roll), self._seconds_per_frame)
            size += f", {write_music(self._request.kind, file, roll, times):,.1f} s"
        else:
            file.write(self._encode(roll))
        return Written(size, "" if roll.any() else "silent: try a higher --temperature")

    @property
    def _seconds_per_frame(self) -> float:
        return self._frame.grid.seconds_per_frame(self._tempo)

    def _length(self) -> int:
        request = self._request
        if request.seconds is not None:
            frames = request.seconds / self._seconds_per_frame
            length = max(1, round(min(frames, MAX_FRAMES + 1)))
        else:
            length = request.length or request.longest_piece or DEFAULT_LENGTH
        if length > MAX_FRAMES:
            option = "--length" if request.seconds is None else "--seconds"
            raise UsageError(
                f"{option} asks for more than the {MAX_FRAMES:,} frames a piece may have"
            )
        return length

    def _read_primer(self) -> NDArray[np.uint8]:
        path = self._request.prime
        if path is None:
            return np.empty((0, self._frame.frame_size), np.uint8)
        try:
            if path.suffix.lower() == ".npy":
                return load_roll(path)
            piece = load_midi(path, self._frame)
        except SourceError as error:
            raise SeqmodelError(f"--prime {path}: {error}") from error
        if piece.transposed:
            self.remarks.append(
                f"{path} was transposed by {piece.transposed:+d} semitones, its tonic to C as in "
                "training"
            )
        return piece.roll

    def _encode(self, roll: NDArray[np.uint8]) -> bytes:
        grid = self._frame.grid
        if self._request.kind == "mid":
            return midi_bytes(roll, grid, tempo_bpm=self._tempo)
        if self._request.kind == "png":
            title, unit = self._request.title, f"frame ({grid})"
            return piano_roll_png(roll, LOWEST_PITCH, title=title, unit=unit, primer=self._heard)
        buffer = io.BytesIO()
        np.save(buffer, roll, allow_pickle=False)
        return buffer.getvalue()
