"""Audio files to mono samples, in blocks: any format that libsndfile reads, at any sampling rate.

A header's claims are checked before use, and nothing is allocated based on them: blocks are read
until there are no more.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from seqmodel.errors import SourceError, reason
from seqmodel.media.audio.frames import MAX_RATE
from seqmodel.media.audio.layout import View
from seqmodel.media.input import open_media

BLOCK = 8192
"""Samples per channel read at a time; of a damaged file, whole blocks are kept."""

MAX_RATIO = 256
"""Maximum ratio of two rates; a larger one is assumed to be a typing error or a damaged header."""

MAX_PEAK = 4.0
"""12 dB above full scale. Samples beyond full scale are clipped, which barely harms a slightly hot
mix; larger ones mean that the file's full scale is not 1."""

CANCELLED_SHARE = 0.01
"""Of the power that the mean of unrelated channels has, 20 dB down: with less, channels cancel."""

MAX_SAMPLES = 2**31
"""Per recording: 13 hours at 44.1 kHz; a longer one is a damaged file or has a wrong rate."""

UNKNOWN_LENGTH = 2**63 - 1


class _Stream(soundfile.SoundFile):  # type: ignore[misc]  # it states no types
    """A file without soundfile's seek after every block, which fails in damaged files."""

    def seekable(self) -> bool:
        return False


class _BreakError(Exception):
    """The sound of a file ends here, prematurely; the message says why."""


class Recording:
    """An audio file opened to be read once; SourceError if it cannot be.

    Attributes:
        container, subtype: such as "WAV" and "PCM_16", in libsndfile's terms.
        rate, channels: samples per second, and the number of channels.
        remarks: what was wrong and how the file was read anyway; complete after the last block.
    """

    def __init__(self, path: Path) -> None:
        with open_media(path) as file:
            self._bytes = os.fdopen(os.dup(file.fileno()), "rb")
        try:
            self._begin(0)
            self.container, self.subtype = self._file.format, self._file.subtype
            self.rate, self.channels = self._file.samplerate, self._file.channels
            if not 1 <= self.rate <= MAX_RATE:
                raise SourceError(f"claims {self.rate:,} samples per second")
        except BaseException:
            self._bytes.close()
            raise
        self._content = hashlib.sha256()
        self.remarks = [self._view.remark] if self._view.remark else []

    def _begin(self, start: int) -> None:
        try:
            self._view = View(self._bytes, start)
            try:
                with _stderr_hidden():
                    self._file = _Stream(self._view)
            finally:
                self._view.check()
        except soundfile.LibsndfileError as error:
            why = f"cannot be read as audio ({_reason(error)})"
            raise SourceError(f"{why}; if it plays elsewhere, convert it with ffmpeg") from error
        except OSError as error:
            raise SourceError(reason(error)) from error

    @property
    def content_hash(self) -> str:
        """SHA-256 of all samples read so far, before mixing and resampling."""
        return self._content.hexdigest()

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All samples, (n, channels) at a time: in [-1, 1), or beyond if the file's are.

        SourceError if there is no sound, or a sample is not finite or beyond `MAX_PEAK`.
        """
        done, files, power, mixed = 0, 0, 0.0, 0.0
        each = np.ones(self.channels, np.float32)
        while files == 0 or self._begin_next_file():
            files += 1
            for block in self._blocks(done):
                self._content.update(block.astype("<f4", copy=False).tobytes())
                done += len(block)
                mix = block @ each
                power, mixed = power + float(np.vdot(block, block)), mixed + float(mix @ mix)
                yield block
        if files > 1:
            self.remarks.append(f"contains {files} files; read as one")
        if mixed < CANCELLED_SHARE * power:
            self.remarks.append(
                "mixed to mono, though its channels cancel each other: keep only one of them"
            )

    def _begin_next_file(self) -> bool:
        """Begin the next file within ours, if there is one that can be read as part of it."""
        if self._view.next_start is None:
            return False
        with suppress(SourceError):
            self._begin(self._view.next_start)
            if (self._file.samplerate, self._file.channels) == (self.rate, self.channels):
                return True
        self.remarks.append("contains another file, which cannot be read as part of it")
        return False

    def _blocks(self, offset: int) -> Iterator[NDArray[np.float32]]:
        """All samples of the begun file, `offset` samples into the recording."""
        claimed = self._view.samples
        if claimed is None:
            claimed = self._file.frames if self._file.frames < UNKNOWN_LENGTH else 0
        done, broken = 0, ""
        while not broken:
            # Not beyond the end: what follows may not be sound and make the last samples fail.
            count = min(BLOCK, claimed - done) if done < claimed else BLOCK
            try:
                block = self._read(count)
            except _BreakError as error:
                broken = str(error)
                if done == claimed:  # what follows is not sound, and did no harm
                    break
                block = self._samples_before_break(done)
            if not len(block):
                break
            self._check_samples(block, offset + done)
            done += len(block)
            yield block
        if offset + done == 0:
            raise SourceError(f"has no readable sound ({broken})" if broken else "is empty")
        if broken and done != claimed:
            self.remarks.append(f"breaks off after {(offset + done) / self.rate:.3f} s ({broken})")
        elif done < claimed:
            self.remarks.append(f"ends after {done:,} of the {claimed:,} samples of its header")
        elif 0 < claimed < done:
            self.remarks.append(f"has {done:,} samples, though its header claims {claimed:,}")

    def _samples_before_break(self, done: int) -> NDArray[np.float32]:
        """The samples from `done` up to a break, which libsndfile drops with the rest."""
        self._begin(self._view.start)
        samples = [np.empty((0, self.channels), np.float32)]
        with suppress(_BreakError):
            for start in range(0, done, BLOCK):
                self._read(min(BLOCK, done - start))
            while len(samples) <= BLOCK and len(sample := self._read(1)):
                samples.append(sample)
        return np.concatenate(samples)

    def _read(self, count: int) -> NDArray[np.float32]:
        try:
            with _stderr_hidden() if self.subtype.startswith("MPEG") else nullcontext():
                block: NDArray[np.float32] = self._file.read(count, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            self._view.check()
            raise _BreakError(_reason(error)) from error
        self._view.check()
        return block

    def _check_samples(self, block: NDArray[np.float32], done: int) -> None:
        finite = np.isfinite(block)
        if not finite.all():
            sample, channel = np.argwhere(~finite)[0]
            value, place = block[sample, channel], done + sample
            raise SourceError(f"holds {value} at {place / self.rate:.3f} s (sample {place:,})")
        peak = float(np.abs(block).max())
        if peak > MAX_PEAK:
            raise SourceError(
                f"holds samples up to {peak:,.6g}, where full scale is 1: divide them by their "
                "full scale, such as 32,768"
            )

    def mono(self, rate: int) -> Iterator[NDArray[np.float32]]:
        """The mean of the channels, (n,) at a time, resampled to `rate` samples per second.

        SourceError as in `blocks`, or if the rates are too far apart or there are too many samples.
        """
        if not 1 / MAX_RATIO <= rate / self.rate <= MAX_RATIO:
            raise SourceError(
                f"has {self.rate:,} samples per second, too far from {rate:,} to be resampled"
            )
        samples = 0
        for block in self._resampled(rate):
            samples += len(block)
            if samples > MAX_SAMPLES:
                raise SourceError(
                    f"has more than {MAX_SAMPLES:,} samples at {rate:,} Hz; use a lower --rate"
                )
            yield block

    def _resampled(self, rate: int) -> Iterator[NDArray[np.float32]]:
        is_mono = self.channels == 1
        blocks = (block[:, 0] if is_mono else block.mean(axis=1) for block in self.blocks())
        if rate == self.rate:
            yield from blocks
            return
        stream = soxr.ResampleStream(self.rate, rate, 1, dtype="float32", quality="HQ")
        for block in blocks:
            yield stream.resample_chunk(block)
        yield stream.resample_chunk(np.empty(0, np.float32), last=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._bytes.close()


def _reason(error: soundfile.LibsndfileError) -> str:
    text: str = error.error_string.strip().removeprefix("Error : ").rstrip(".").lower()
    if text.startswith("file does not exist"):  # its message for an MP3 without a frame
        return "no sound in it"
    return text


@contextmanager
def _stderr_hidden() -> Iterator[None]:
    """Hide what the MPEG decoder prints to stderr."""
    try:
        stderr = os.dup(2)
    except OSError:  # already closed
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(null)
        os.close(stderr)
