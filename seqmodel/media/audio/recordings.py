"""Audio files to pieces of a dataset, of which never more than a block is in memory."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import DatasetWriter, Piece
from seqmodel.data.sources import Source
from seqmodel.data.splits import Tally
from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.audio.reader import Recording
from seqmodel.media.definitions import AudioFrames, AudioSettings

KEPT_IN_MEMORY = 2**22
"""Bytes of a recording that wait for its split in memory; those of a longer one wait on disk."""

COPIED_AT_ONCE = 2**18
"""Samples, on the way from there to the shard."""


class Recordings:
    """The audio of a dataset in the making: one `AudioFrames` for all of its files.

    Raises:
        SeqmodelError: when no rate is asked for and the sources differ in theirs.
        UsageError: when a clip is shorter than a frame.
    """

    def __init__(self, settings: AudioSettings, sources: Sequence[Source], folder: Path) -> None:
        self._folder = folder
        self._clip_seconds = settings.clip_seconds
        self._layout = _layout(settings, sources)
        rate, size = self._layout.rate, self._layout.frame_size
        self._clip: int | None = None
        if settings.clip_seconds is not None:
            self._clip = int(settings.clip_seconds * rate) // size * size
            if self._clip == 0:
                raise UsageError(
                    f"--clip-seconds {settings.clip_seconds:g} is shorter than a frame of {size} "
                    f"samples at {rate:,} Hz"
                )
        self._train = Moments()

    @property
    def frame(self) -> AudioFrames:
        """The frame definition, standardised by the training pieces added so far."""
        return replace(self._layout, mean=self._train.mean, deviation=self._train.deviation)

    @property
    def more(self) -> dict[str, Any]:
        """What the manifest tells besides."""
        return {"clip_seconds": self._clip_seconds}

    def add(self, source: Source, writer: DatasetWriter, tally: Tally) -> None:
        """Append the pieces of one file; SourceError tells why it cannot be used.

        The split depends on the whole content, so that samples wait in the dataset's folder until
        the file has been read to its end.
        """
        layout = self._layout
        whole, moments = hashlib.sha256(), Moments()
        digests: list[Any] = []
        lengths: list[int] = []
        with (
            Recording(source.path) as recording,
            SpooledTemporaryFile(KEPT_IN_MEMORY, dir=str(self._folder)) as waiting,
        ):
            samples = 0
            for block in whole_frames(recording.mono(layout.rate), layout.frame_size):
                moments.add(block)
                whole.update(_canonical(block))
                waiting.write(layout.encode(block).tobytes())
                for clip, part in _by_clips(block, samples, self._clip):
                    if clip == len(digests):
                        digests.append(hashlib.sha256())
                        lengths.append(0)
                    digests[clip].update(_canonical(part))
                    lengths[clip] += len(part)
                samples += len(block)
            if not digests:
                raise SourceError(
                    f"is shorter than a frame of {layout.frame_size} samples at {layout.rate:,} Hz"
                    + "".join(f"; {remark}" for remark in recording.remarks)
                )
            split = tally.place(whole.hexdigest(), source.split)
            waiting.seek(0)
            for k, (digest, length) in enumerate(zip(digests, lengths, strict=True)):
                name = str(source.path) if len(digests) == 1 else f"{source.path}#piece/{k}"
                tally.count(name, digest.hexdigest(), split, by_folder=source.split is not None)
                piece = Piece(name, digest.hexdigest(), length // layout.frame_size)
                writer.add(split, _copied(waiting, length, layout.row_dtype), piece)
            tally.forgive(str(source.path), recording.remarks)
        if split == "train":
            self._train.merge(moments)


class Moments:
    """The mean and the deviation of a stream of numbers, in 64 bits and without cancellation."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0
        """The sum of squared distances from the mean."""

    def add(self, values: NDArray[Any]) -> None:
        """Take in the values of an array."""
        one = Moments()
        if len(values):
            wide = values.astype(np.float64)
            one.count, one.mean = len(wide), float(wide.mean())
            one._squares = float(np.square(wide - one.mean).sum())
        self.merge(one)

    def merge(self, other: "Moments") -> None:
        """Take in what another has taken in."""
        count = self.count + other.count
        if other.count:
            apart = other.mean - self.mean
            self.mean += apart * (other.count / count)
            self._squares += other._squares + apart**2 * (self.count / count) * other.count
            self.count = count

    @property
    def deviation(self) -> float:
        """The root of the mean squared distance; 1 where there is none, to be divided by."""
        # Sums of one and the same 32-bit float are exact in 64 bits, and so is their mean.
        variance = self._squares / self.count if self.count else 0.0
        return math.sqrt(variance) or 1.0


def whole_frames(
    blocks: Iterable[NDArray[np.float32]], frame_size: int
) -> Iterator[NDArray[np.float32]]:
    """The same samples in blocks of whole frames, without the last ones that fill none."""
    rest = np.empty(0, np.float32)
    for block in blocks:
        samples = np.concatenate([rest, block])
        whole = len(samples) // frame_size * frame_size
        rest = samples[whole:]
        if whole:
            yield samples[:whole]


def _by_clips(
    block: NDArray[np.float32], start: int, clip: int | None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The parts of a block that begins at sample `start`, each with the number of its clip."""
    if clip is None:
        yield 0, block
        return
    end = start + len(block)
    for k in range(start // clip, -(-end // clip)):
        yield k, block[max(0, k * clip - start) : (k + 1) * clip - start]


def _layout(settings: AudioSettings, sources: Sequence[Source]) -> AudioFrames:
    """How all sources are stored, from their headers alone.

    A source that cannot be opened says nothing here; why is told when its turn comes to be read.
    """
    rates: dict[int, Path] = {}
    lossless = True
    for source in sources:
        try:
            with Recording(source.path) as recording:
                rates.setdefault(recording.rate, source.path)
                lossless &= recording.sixteen_bits and recording.channels == 1
        except SourceError:
            continue
    if settings.rate is None and len(rates) > 1:
        (rate, path), (other, elsewhere) = list(rates.items())[:2]
        raise SeqmodelError(
            f"{path} has {rate:,} samples a second and {elsewhere} has {other:,}: say with --rate "
            "at which all are to be read"
        )
    # Without a rate, and without a file that could be opened, any will do.
    rate = settings.rate or next(iter(rates), 1)
    exact = lossless and set(rates) <= {rate}
    dtype: Literal["int16", "float32"] = "int16" if exact else "float32"
    return AudioFrames(rate, settings.frame_size, settings.context, dtype)


def _canonical(samples: NDArray[np.float32]) -> bytes:
    """What is hashed: the same for a sample however it is stored, here and on any machine."""
    return samples.astype("<f4").tobytes()


def _copied(file: IO[bytes], samples: int, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """The next `samples` of a file, a block at a time."""
    for start in range(0, samples, COPIED_AT_ONCE):
        count = min(COPIED_AT_ONCE, samples - start)
        yield np.frombuffer(file.read(count * dtype.itemsize), dtype)
