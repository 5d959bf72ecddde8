"""Audio files to mono samples, in blocks: whatever libsndfile reads, at the rate that is wanted.

What a file claims of itself is checked before it counts, and none of it is allocated: blocks are
read until there are no more.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.definitions import FULL_SCALE, MAX_RATE

if TYPE_CHECKING:
    from soundfile import LibsndfileError, SoundFile

SUFFIXES = (
    {".wav", ".wave", ".bwf", ".rf64", ".w64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2"}
    | {".aif", ".aiff", ".aifc", ".caf", ".au", ".snd", ".sph", ".nist", ".voc", ".ircam", ".sf"}
    | {".avr", ".paf", ".pvf", ".svx", ".8svx", ".iff"}
)
"""The files that are read, by their names' ends in lower case."""

BLOCK = 8192
"""Samples of each channel read at a time; what is sound is told from what is not by blocks."""

MAX_RATIO = 256
"""Farther apart two rates are not resampled: one of them is a slip or a damaged header."""

MAX_SAMPLES = 2**31
"""Of one recording, 13 hours at 44.1 kHz: a longer one is a broken file or a mistaken rate."""

# What fits into 16 bits as libsndfile decodes it, compressed or not.
SIXTEEN_BITS = (
    {"PCM_S8", "PCM_U8", "PCM_16", "ULAW", "ALAW", "ALAC_16", "DWVW_12", "DWVW_16"}
    | {"IMA_ADPCM", "MS_ADPCM", "VOX_ADPCM", "NMS_ADPCM_16", "NMS_ADPCM_24", "NMS_ADPCM_32"}
    | {"GSM610", "G721_32", "G723_24", "G723_40", "DPCM_8", "DPCM_16"}
)
UNKNOWN_LENGTH = 2**63 - 1
# libsndfile's note on a header that counts more bytes than the file has left.
CUT_OFF = re.compile(
    r"^ *(?:data|SSND|riff|Riff size|Data Size) *: (\d+) \(should be (\d+)\)", re.MULTILINE
)


class _BreakError(Exception):
    """Here the sound of a file ends before its time; the message says why."""


class Recording:
    """An audio file opened for reading, once through; a context manager.

    Attributes:
        container, subtype: such as "WAV" and "PCM_16", in libsndfile's words.
        rate: samples per second.
        channels: their number.
        remarks: what was forgiven, complete when all blocks have been read.

    Raises:
        SourceError: when the file cannot be opened, or claims what cannot be.
    """

    def __init__(self, path: Path) -> None:
        self._file = _open(path)
        self.container, self.subtype = self._file.format, self._file.subtype
        self.rate, self.channels = self._file.samplerate, self._file.channels
        self.remarks: list[str] = []
        if not 1 <= self.rate <= MAX_RATE:
            self._file.close()
            raise SourceError(f"claims {self.rate:,} samples a second")
        cut = CUT_OFF.search(self._file.extra_info)
        if cut and int(cut[1]) > int(cut[2]):
            self.remarks.append(
                f"its header counts {int(cut[1]):,} bytes of which {int(cut[2]):,} are there; "
                "read as far as it goes"
            )

    @property
    def sixteen_bits(self) -> bool:
        """Whether every sample is a whole multiple of 1/32768."""
        return self.subtype in SIXTEEN_BITS and self.container != "SDS"  # it scales by 32767

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All samples in [-1, 1), or beyond where the file goes beyond, (n, channels) at a time.

        Raises:
            SourceError: when nothing in the file is sound, or a sample is no finite number.
        """
        done = 0
        broken = ""
        try:
            while len(block := self._read()):
                self._check(block, done)
                done += len(block)
                yield block
        except _BreakError as error:
            broken = str(error)
        claimed = self._file.frames
        if done == 0:
            raise SourceError(
                f"holds nothing that can be read ({broken})" if broken else "is empty"
            )
        if broken:
            self.remarks.append(f"breaks off after {done / self.rate:.3f} s ({broken})")
        elif done < claimed < UNKNOWN_LENGTH:
            self.remarks.append(f"ends after {done:,} of the {claimed:,} samples of its header")

    def _read(self) -> NDArray[np.float32]:
        import soundfile

        with _no_noise() if self.subtype.startswith("MPEG") else nullcontext():
            try:
                block: NDArray[np.float32] = self._file.read(BLOCK, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                raise _BreakError(_reason(error)) from error
        return block

    def _check(self, block: NDArray[np.float32], done: int) -> None:
        """Refuse a block, `done` samples into the file, that holds what its header rules out."""
        finite = np.isfinite(block)
        if not finite.all():
            sample, channel = np.argwhere(~finite)[0]
            value, place = block[sample, channel], done + sample
            raise SourceError(f"holds {value} at {place / self.rate:.3f} s (sample {place:,})")
        if self.sixteen_bits and (block * FULL_SCALE % 1).any():
            raise _BreakError(f"there are more bits than the {self.subtype} of its header has")

    def mono(self, rate: int) -> Iterator[NDArray[np.float32]]:
        """The mean of the channels, (n,) at a time, resampled to `rate` samples per second.

        Raises:
            SourceError: as `blocks`, and when the rates are too far apart or there are more than
                `MAX_SAMPLES` samples.
        """
        if not 1 / MAX_RATIO <= rate / self.rate <= MAX_RATIO:
            raise SourceError(
                f"has {self.rate:,} samples a second, too far from {rate:,} to be resampled"
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
        blocks = (
            block.mean(axis=1) if self.channels > 1 else block[:, 0] for block in self.blocks()
        )
        if rate == self.rate:
            yield from blocks
            return
        import soxr

        stream = soxr.ResampleStream(self.rate, rate, 1, dtype="float32", quality="HQ")
        for block in blocks:
            yield stream.resample_chunk(block)
        yield stream.resample_chunk(np.empty(0, np.float32), last=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


def _open(path: Path) -> "SoundFile":
    import soundfile

    class Stream(soundfile.SoundFile):  # type: ignore[misc]  # it states no types
        # Else soundfile seeks to where it is after every block, which damaged files do not survive.
        def seekable(self) -> bool:
            return False

    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe's opening would wait for a writer
            raise SourceError("is no file")
        # libsndfile, given a name, would look into what stands beside it, and say less of errors.
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise SourceError((error.strerror or str(error)).lower()) from error
    with _no_noise():
        try:
            return Stream(descriptor)  # which closes it, also where it fails
        except soundfile.LibsndfileError as error:
            raise SourceError(f"is no audio that can be read ({_reason(error)})") from error


def _reason(error: "LibsndfileError") -> str:
    """What libsndfile says, without its ornaments."""
    text: str = error.error_string.strip().removeprefix("Error : ").rstrip(".").lower()
    if text.startswith("file does not exist"):  # its word for an MP3 without a sound frame
        return "no sound in it"
    return text


@contextmanager
def _no_noise() -> Iterator[None]:
    """Keep what the MPEG decoder says to stderr from being seen; it is no user's business."""
    try:
        stderr = os.dup(2)
    except OSError:  # closed: nothing is to be seen
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
