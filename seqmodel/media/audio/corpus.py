"""Audio files to pieces of a dataset, in bounded memory."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.audio.frames import AudioFrames, AudioSettings, Windows
from seqmodel.media.audio.reader import Recording
from seqmodel.media.definitions import Piece, Work
from seqmodel.media.words import plural

KEPT_IN_MEMORY = 2**22
"""Bytes of a recording held in memory until its split is known; longer ones wait on disk."""

COPIED_AT_ONCE = 2**16
"""Samples copied at a time from there to the shard."""


class AudioCorpus:
    """Recordings as mono samples of 16 bits, or 8-bit mu-law, at one rate.

    Raises:
        SeqmodelError: if no rate is requested and the sources differ in theirs.
        UsageError: if a clip is shorter than a frame.
    """

    def __init__(self, settings: AudioSettings, paths: Sequence[Path], folder: Path) -> None:
        rate, size = settings.rate or _common_rate(paths), settings.frame_size
        dtype: Literal["mu-law", "int16"] = "mu-law" if settings.levels == "mu-law" else "int16"
        self._layout = AudioFrames(rate, size, settings.context, dtype)
        self._folder = folder
        self._clip_seconds = settings.clip_seconds
        self._clip: int | None = None
        if settings.clip_seconds is not None:
            self._clip = int(settings.clip_seconds * rate) // size * size
            if self._clip == 0:
                raise UsageError(
                    f"--clip-seconds {settings.clip_seconds:g} is shorter than a frame of {size} "
                    f"samples at {rate:,} Hz"
                )
        self._train = Moments()
        self._rounded = self._cut = 0

    @property
    def frame(self) -> AudioFrames:
        """The frame definition, standardised by the works in train so far."""
        deviation = self._train.deviation or 1.0  # so that it can be divided by
        return replace(self._layout, mean=self._train.mean, deviation=deviation)

    @property
    def facts(self) -> Mapping[str, Any]:
        """How recordings were cut, and how many had over 16 bits or were mixed or resampled."""
        return {
            "clip_seconds": self._clip_seconds,
            "recordings_cut": self._cut,
            "rounded_to_16_bits": self._rounded,
        }

    def works(self, path: Path) -> Iterator[Work]:
        """The one recording of a file.

        The whole content decides the split, so samples wait in the dataset's folder until the file
        has been read to its end.
        """
        layout = self._layout
        prepared, moments, clips = hashlib.sha256(), Moments(), _Clips(self._clip)
        with (
            Recording(path) as recording,
            SpooledTemporaryFile(KEPT_IN_MEMORY, dir=str(self._folder)) as waiting,
        ):
            clipped = 0
            for block in whole_frames(recording.mono(layout.rate), layout.frame_size):
                clipped += int((np.abs(block) > 1).sum())
                rows = layout.encode(block)
                canonical = layout.canonical(rows)
                prepared.update(canonical)
                clips.add(canonical, len(rows))
                moments.add(layout.decode(rows).ravel())
                waiting.write(rows.tobytes())
            if not clips.lengths:
                raise SourceError(
                    f"is shorter than a frame of {layout.frame_size} samples at {layout.rate:,} Hz"
                    + "".join(f"; {remark}" for remark in recording.remarks)
                )
            repairs = list(recording.remarks)
            if clipped:
                repairs.append(f"clipped {plural(clipped, 'sample')} beyond full scale")
            self._rounded += layout.dtype == "int16" and not recording.is_exact(layout.rate)
            self._cut += len(clips.lengths) > 1
            waiting.seek(0)
            yield Work(
                source=str(path),
                content=recording.content,
                prepared=prepared.hexdigest(),
                split=None,
                pieces=self._pieces(str(path), clips, waiting),
                frames=sum(clips.lengths) // layout.frame_size,
                repairs=repairs,
                when_in_train=lambda: self._train.merge(moments),
                when_rows_in_train=lambda rows: self._train.add(layout.decode(rows).ravel()),
            )

    def _pieces(
        self, source: str, clips: "_Clips", waiting: IO[bytes]
    ) -> Iterator[tuple[Piece, Iterator[NDArray[Any]]]]:
        """Each clip with its samples, which must be read before the next is requested."""
        for k, (digest, length) in enumerate(zip(clips.digests, clips.lengths, strict=True)):
            name = source if len(clips.lengths) == 1 else f"{source}#piece/{k}"
            piece = Piece(name, digest.hexdigest(), length // self._layout.frame_size)
            yield piece, _copied(waiting, length, self._layout)


class _Clips:
    """The hashes and lengths, in samples, of the pieces of one recording."""

    def __init__(self, clip: int | None) -> None:
        self._clip = clip
        self.digests: list[Any] = []
        self.lengths: list[int] = []

    def add(self, canonical: bytes, samples: int) -> None:
        """Add a block of samples, given as the bytes to be hashed."""
        width, start = len(canonical) // samples, 0
        while start < samples:
            if not self.lengths or self.lengths[-1] == self._clip:
                self.digests.append(hashlib.sha256())
                self.lengths.append(0)
            left = samples - start
            count = left if self._clip is None else min(left, self._clip - self.lengths[-1])
            self.digests[-1].update(canonical[start * width : (start + count) * width])
            self.lengths[-1] += count
            start += count


class Moments:
    """The mean and deviation of a stream of numbers, in 64 bits and without cancellation."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0
        """The sum of squared distances from the mean."""

    def add(self, values: NDArray[Any]) -> None:
        """Add the values of an array (n,)."""
        one = Moments()
        if len(values):
            wide = values.astype(np.float64)
            one.count, one.mean = len(wide), float(wide.mean())
            one._squares = float(np.square(wide - one.mean).sum())
        self.merge(one)

    def merge(self, other: "Moments") -> None:
        """Add all values that `other` has counted."""
        count = self.count + other.count
        if other.count:
            apart = other.mean - self.mean
            self.mean += apart * (other.count / count)
            self._squares += other._squares + apart**2 * (self.count / count) * other.count
            self.count = count

    @property
    def deviation(self) -> float:
        """The population standard deviation."""
        # Sums of identical 32-bit floats are exact in 64 bits, and so is their mean.
        return math.sqrt(self._squares / self.count) if self.count else 0.0


def whole_frames(
    blocks: Iterable[NDArray[np.float32]], frame_size: int
) -> Iterator[NDArray[np.float32]]:
    """The same samples in blocks of whole frames, without an incomplete last frame."""
    frames = Windows(frame_size, frame_size)
    for block in blocks:
        if len(whole := frames.of(block)):
            yield whole.reshape(-1)


def _common_rate(paths: Sequence[Path]) -> int:
    """The rate of all files, from their headers alone.

    A file that cannot be opened is skipped: the reason is reported when it is due to be read.
    """
    rates: dict[int, Path] = {}
    for path in paths:
        try:
            with Recording(path) as recording:
                rates.setdefault(recording.rate, path)
        except SourceError:
            continue
    if len(rates) > 1:
        (rate, first), (other, elsewhere) = list(rates.items())[:2]
        raise SeqmodelError(
            f"{first} has {rate:,} samples per second and {elsewhere} has {other:,}: choose a rate "
            "for all with --rate"
        )
    # If no file can be opened any rate will do at which a clip holds a frame.
    return next(iter(rates), 192_000)


def _copied(file: IO[bytes], samples: int, frame: AudioFrames) -> Iterator[NDArray[Any]]:
    """The next `samples` of a file, a block of whole frames at a time."""
    dtype, at_once = frame.row_dtype, -(-COPIED_AT_ONCE // frame.frame_size) * frame.frame_size
    for start in range(0, samples, at_once):
        count = min(at_once, samples - start)
        yield np.frombuffer(file.read(count * dtype.itemsize), dtype)
