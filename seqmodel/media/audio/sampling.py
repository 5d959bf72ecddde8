"""Sampled audio: the length of a piece, its primer, how it is written."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.audio.evaluation import check_finite
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.inspection import recording_png, spectrogram_picture
from seqmodel.media.audio.medium import HIGH_RATE, SAMPLE_SECONDS, USUAL_RATE
from seqmodel.media.audio.reader import Recording
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.input import naming, open_media, read_header
from seqmodel.media.samples import Picture, Progress, SampleRequest, Sampling, Written, no_progress
from seqmodel.media.sound import FULL_SCALE, MAX_SAMPLES, check_encoder, write_sound
from seqmodel.media.words import hms, plural

MAX_PRIMER_SAMPLES = 2**24
"""35 minutes at 8 kHz; a primer is held in memory."""

SILENT_SHARE = 0.01
"""A piece whose deviation is at most this share of that of train, 40 dB down, is silent."""

DISTORTED_SHARE = 0.02
"""A piece with a larger share of its samples at full scale is distorted."""

LOUD_POWER = 10.0
"""A piece of a second or more with over this many times train's power, 10 dB, is too loud; a single
drum stroke may be."""


class AudioSampling(Sampling):
    """`Sampling` of recordings, each written while it is being sampled."""

    def __init__(self, frame: FrameDefinition, request: SampleRequest) -> None:
        assert isinstance(frame, AudioFrames)
        self._frame, self._request = frame, request
        check_encoder(request.kind, frame.rate)
        most = MAX_SAMPLES // frame.frame_size
        per_second = frame.rate / frame.frame_size
        default = max(1, round(SAMPLE_SECONDS * per_second))
        self.length = request.frames_to_draw(default, most, per_second, self._limit_text)
        self._prime_limit = request.frames_of_prime(most, per_second)
        self.remarks: list[str] = []
        self.primer = np.empty((0, frame.frame_size), np.float32)
        if (path := request.prime) is not None:
            npy = path.suffix.lower() == ".npy"
            with naming(f"--prime {path}"):
                self.primer = self._load_frames(path) if npy else self._load_recording(path)
        self._prime_frames = len(self.primer) if request.include_prime else 0
        if (self._prime_frames + self.length) * frame.frame_size > MAX_SAMPLES:
            raise UsageError(f"--include-prime asks for more than {self._limit_text}")

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable[NDArray[np.float32]],
        progress: Progress = no_progress,
    ) -> Written:
        frame, request, prime_frames = self._frame, self._request, self._prime_frames
        length, size = prime_frames + self.length, frame.frame_size
        drawn = np.zeros(4)  # samples: count, count at full scale, their sum, sum of squares

        def checked_blocks() -> Iterator[NDArray[np.float32]]:
            yield self.primer[:prime_frames].reshape(-1)
            for chunk in chunks:
                block = chunk.reshape(-1)
                check_finite(block)
                floats = block.astype(np.float64)
                clipped = (np.abs(floats) > frame.full_scale - 0.5 / FULL_SCALE).sum()
                drawn[:] += len(floats), clipped, floats.sum(), (floats**2).sum()
                yield block
                progress(int(drawn[0]), self.length * size)

        blocks: Iterable[NDArray[np.float32]] = checked_blocks()
        if request.longest_piece is not None and request.kind != "raw":
            # The model may end sooner, and headers come first.
            blocks = [*blocks]
            length = sum(map(len, blocks)) // size
        if request.kind == "png":
            samples, primer, title = length * size, prime_frames * size, request.title
            png = recording_png(blocks, samples, frame.rate, title=title, primer=primer)
            file.write(png)
        else:
            write_audio(request.kind, file, blocks, frame, length)
        samples = prime_frames * size + int(drawn[0])  # fewer if the chunks end before
        what = f"{plural(samples, 'sample')} at {frame.rate:,} Hz"
        if prime_frames:
            what += f", {int(drawn[0]):,} drawn"
        return Written(f"{samples / frame.rate:,.1f} s ({what})", self._hint(*drawn.tolist()))

    def picture(self, frames: NDArray[np.float32]) -> Picture:
        return spectrogram_picture(frames, self._frame)

    def _hint(self, count: float, clipped: float, total: float, squares: float) -> str:
        lower = f", prepare with --rate {USUAL_RATE}" * (self._frame.rate > HIGH_RATE)
        louder = squares / count / (self._frame.mean**2 + self._frame.deviation**2)
        if clipped / count > DISTORTED_SHARE:
            return (
                f"{clipped / count:.0%} of the samples at full scale: train longer{lower} or, if "
                "the recordings clip too, make them quieter and prepare them again"
            )
        if louder > LOUD_POWER and count >= self._frame.rate:
            return f"{10 * math.log10(louder):.0f} dB louder than train: train longer{lower}"
        deviation = math.sqrt(max(0.0, squares / count - (total / count) ** 2))
        audible = deviation > SILENT_SHARE * self._frame.deviation
        return "" if audible else "silent: try a higher --temperature"

    @property
    def _limit_text(self) -> str:
        return (
            f"the {MAX_SAMPLES:,} samples of the longest WAV "
            f"({hms(MAX_SAMPLES / self._frame.rate)} at {self._frame.rate:,} Hz)"
        )

    def _load_recording(self, path: Path) -> NDArray[np.float32]:
        frame, blocks, samples = self._frame, [], 0
        limit = MAX_SAMPLES if self._prime_limit is None else self._prime_limit * frame.frame_size
        with Recording(path) as recording:
            for block in recording.mono(frame.rate):
                blocks.append(block[: limit - samples])
                samples += len(blocks[-1])
                self._check_length(samples)
                if samples == limit:
                    break
        frames = samples // frame.frame_size
        if not frames:
            raise SourceError(f"is shorter than a frame of {plural(frame.frame_size, 'sample')}")
        remarks = list(recording.remarks)
        if recording.rate != frame.rate:
            remarks.append(f"resampled from {recording.rate:,} to {frame.rate:,} Hz")
        line = np.concatenate(blocks)[samples - frames * frame.frame_size :]
        if clipped := int((np.abs(line) > 1).sum()):
            remarks.append(f"clipped {plural(clipped, 'sample')} beyond full scale")
        self.remarks += [f"{path}: {remark}" for remark in remarks]
        return frame.decode(frame.encode(line))

    def _load_frames(self, path: Path) -> NDArray[np.float32]:
        """The frames of a .npy that `write_audio` wrote, assumed to be at the run's rate."""
        size = self._frame.frame_size
        with open_media(path) as file:
            try:
                shape, by_column, dtype, *_ = read_header(file)
                if dtype.hasobject:
                    raise ValueError("Python objects")
                if dtype.kind != "f" or len(shape) != 2 or shape[0] < 1 or shape[1] != size:
                    roll = " such as a piano-roll," * (dtype.kind in "biu")
                    raise SourceError(
                        f"holds {dtype} of shape {shape},{roll} not samples of shape (T, {size}), "
                        "the frames of the run"
                    )
                if not by_column and self._prime_limit is not None:
                    shape = min(shape[0], self._prime_limit), size
                count = math.prod(shape)
                self._check_length(count)
                samples = np.frombuffer(file.read(count * dtype.itemsize), dtype)
                samples = samples.reshape(shape, order="F" if by_column else "C")
            except ValueError as error:
                raise SourceError("is damaged or not a .npy file of numbers") from error
        if not (np.abs(samples) <= 1).all():  # also false for nan
            raise SourceError("holds values that are not samples in [-1, 1]")
        used = samples[: self._prime_limit].astype(np.float32)
        return self._frame.decode(self._frame.encode(used.ravel()))

    def _check_length(self, samples: int) -> None:
        if samples > MAX_PRIMER_SAMPLES:
            longest = hms(MAX_PRIMER_SAMPLES / self._frame.rate)
            raise SourceError(f"is longer than {longest}; add --prime-seconds")


def write_audio(
    kind: str,
    file: BinaryIO,
    blocks: Iterable[NDArray[np.float32]],
    frame: AudioFrames,
    length: int,
) -> None:
    """Write `length` frames, at most `MAX_SAMPLES` samples, given in blocks (n,) of raw samples.

    `kind` is npy, which holds the frames (length, F) as float32, or what `write_sound` takes. The
    target may be a pipe.
    """
    if kind != "npy":
        write_sound(kind, file, blocks, frame.rate, length * frame.frame_size)
        return
    shape = (length, frame.frame_size)
    header = {"shape": shape, "fortran_order": False, "descr": "<f4"}
    np.lib.format.write_array_header_1_0(file, header)
    file.flush()
    for block in blocks:
        file.write(block.astype("<f4").tobytes())
        file.flush()
