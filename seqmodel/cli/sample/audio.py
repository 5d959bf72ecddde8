"""`seqmodel sample` from a run of audio."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqmodel.cli.common import clock, counter, message, plural
from seqmodel.cli.sample.request import DEFAULT_SECONDS, Request
from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.audio.reader import Recording
from seqmodel.media.audio.writer import MAX_FLAC_RATE, MAX_SAMPLES, write_audio
from seqmodel.media.definitions import AudioFrames
from seqmodel.plots.sound import recording_png
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Sampler

MAX_PRIMER_SAMPLES = 2**24
"""35 minutes at 8 kHz: a longer primer is a mistake, and all of it is held in memory."""

INAUDIBLE = 0.01
"""Sound of so much of the training samples' deviation, 40 dB below them, is silence."""


def sample_audio(request: Request, run: Run, frame: AudioFrames) -> None:
    """Draw the pieces, each written as it is drawn."""
    if request.kind == "flac" and frame.rate > MAX_FLAC_RATE:
        raise UsageError(
            f"a FLAC has at most {MAX_FLAC_RATE:,} samples a second, the run {frame.rate:,}: "
            "name a .wav"
        )
    length = _length(request, frame)
    primer = _read_primer(request, frame)
    heard = len(primer) if request.include_prime else 0
    total = heard + length
    samples = total * frame.frame_size
    if samples > MAX_SAMPLES:
        raise UsageError(_too_long("--include-prime", frame))
    sampler = Sampler(run.model, temperature=request.temperature)
    for k, target in enumerate(request.targets):
        chunks = sampler.piece(length, seed=request.seed, number=k, prime=primer)
        with counter("sampling", quiet=request.quiet) as tell, request.opened(target) as file:
            piece = _Piece(chunks, lambda done: tell(done, length * frame.frame_size))
            blocks = chain([primer[:heard].reshape(-1)], piece)
            if request.kind == "png":
                title = f"sampled from {run.folder} ({run.config.unit})"
                of_primer = heard * frame.frame_size
                file.write(
                    recording_png(blocks, samples, frame.rate, title=title, primer=of_primer)
                )
            else:
                write_audio(request.kind, file, blocks, frame, total)
        audible = piece.deviation > INAUDIBLE * frame.deviation
        silent = "" if audible else ", silent: try a higher --temperature"
        request.say(
            f"{target}: {samples / frame.rate:,.1f} s ({plural(samples, 'sample')} at "
            f"{frame.rate:,} Hz) from {run.folder}{silent}"
        )


class _Piece:
    """The samples of a piece in blocks (n,), and the deviation of those that have been drawn."""

    def __init__(self, chunks: Iterable[NDArray[np.float32]], tell: Callable[[int], None]) -> None:
        self._chunks, self._tell = chunks, tell
        self._count, self._sum, self._squares = 0, 0.0, 0.0

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for chunk in self._chunks:
            block = chunk.reshape(-1)
            self._count += len(block)
            self._sum += float(block.sum(dtype=np.float64))
            self._squares += float(np.square(block, dtype=np.float64).sum())
            yield block
            self._tell(self._count)

    @property
    def deviation(self) -> float:
        mean = self._sum / self._count
        return math.sqrt(max(0.0, self._squares / self._count - mean**2))


def _length(request: Request, frame: AudioFrames) -> int:
    """The frames of a piece, the primer left out."""
    most = MAX_SAMPLES // frame.frame_size
    if request.length is not None:
        length = request.length
    else:
        seconds = DEFAULT_SECONDS if request.seconds is None else request.seconds
        length = max(1, round(min(seconds * frame.rate / frame.frame_size, most + 1)))
    if length > most:
        option = "--seconds" if request.length is None else "--length"
        raise UsageError(_too_long(option, frame))
    return length


def _too_long(option: str, frame: AudioFrames) -> str:
    return (
        f"{option} asks for more than the {MAX_SAMPLES:,} samples of the longest WAV "
        f"({clock(MAX_SAMPLES / frame.rate)} at {frame.rate:,} Hz)"
    )


def _read_primer(request: Request, frame: AudioFrames) -> NDArray[np.float32]:
    """The frames (P, F) to go on from, none without --prime."""
    path = request.prime
    if path is None:
        return np.empty((0, frame.frame_size), np.float32)
    try:
        if path.suffix.lower() == ".npy":
            return _load_frames(path, frame)
        return _load_recording(path, frame, quiet=request.quiet)
    except SourceError as error:
        raise SeqmodelError(f"--prime {path}: {error}") from error


def _load_recording(path: Path, frame: AudioFrames, *, quiet: bool) -> NDArray[np.float32]:
    """The last whole frames of an audio file, so that what is drawn follows its very end."""
    blocks, samples = [], 0
    with Recording(path) as recording:
        for block in recording.mono(frame.rate):
            blocks.append(block)
            samples += len(block)
            _check_length(samples, frame)
    frames = samples // frame.frame_size
    if not frames:
        raise SourceError(f"is shorter than a frame of {plural(frame.frame_size, 'sample')}")
    if recording.rate != frame.rate:
        recording.remarks.append(f"resampled from {recording.rate:,} to {frame.rate:,} Hz")
    for remark in recording.remarks:
        message(f"{path}: {remark}", quiet=quiet)
    return np.concatenate(blocks)[samples - frames * frame.frame_size :].reshape(frames, -1)


def _load_frames(path: Path, frame: AudioFrames) -> NDArray[np.float32]:
    """The frames of a .npy as `write_audio` leaves it, which is taken to have the run's rate."""
    if path.exists() and not path.is_file():  # a pipe's opening would wait for a writer
        raise SourceError("is no file")
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
        shape, kind = stored.shape, stored.dtype.kind
    except OSError as error:
        raise SourceError((error.strerror or str(error)).lower()) from error
    except Exception as error:  # a damaged header makes NumPy raise nearly anything
        raise SourceError("is damaged or no .npy file of numbers") from error
    if kind != "f" or len(shape) != 2 or shape[0] < 1 or shape[1] != frame.frame_size:
        raise SourceError(
            f"holds {stored.dtype} of shape {shape}, not samples of shape (T, {frame.frame_size}), "
            "the frames of the run"
        )
    _check_length(stored.size, frame)
    if not (np.abs(stored) <= 1).all():  # nor is what is no number
        raise SourceError("holds values that are no samples, which lie from -1 to 1")
    return np.array(stored, np.float32)


def _check_length(samples: int, frame: AudioFrames) -> None:
    if samples > MAX_PRIMER_SAMPLES:
        raise SourceError(
            f"is longer than {clock(MAX_PRIMER_SAMPLES / frame.rate)}; its end alone will do"
        )
