"""Mono samples to 16-bit sound files, for every medium that can be rendered as sound.

WAV and raw are written block by block without seeking, so the target can be a pipe. Other formats
are encoded by libsndfile and written at once.
"""

import io
import struct
import zlib
from collections.abc import Iterable
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError

FULL_SCALE = 32768
"""The 16-bit level that would be 1.0; the highest actual level is one less."""
LOUDEST = 1 - 1 / FULL_SCALE
"""The highest sample of 16 bits."""

HEADER_BYTES = 44  # of a WAV; its size field does not count the first 8
MAX_SAMPLES = (2**32 - 1 - (HEADER_BYTES - 8)) // 2
"""The limit for a WAV, whose size field has 32 bits."""

ENCODERS = {"flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS"), "mp3": ("MP3", "MPEG_LAYER_III")}
"""libsndfile's format and subtype for each kind that it encodes."""

SERIAL, CHECKSUM = slice(14, 18), slice(22, 26)
SEGMENTS = 26
"""Offset of the number of segments in a page of an Ogg file; their sizes follow, a byte each."""
BIT_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in reverse order."""


def to_levels(samples: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The nearest 16-bit levels, -32768 to 32767, of samples in [-1, 1); those beyond are clipped.

    Scaling by a power of two is exact, so samples decoded from 16 bits give back their levels.
    """
    levels: NDArray[np.floating[Any]] = np.rint(samples * np.float32(FULL_SCALE))
    return levels.clip(-FULL_SCALE, FULL_SCALE - 1)


def check_encoder(kind: str, rate: int = 44_100) -> None:
    """UsageError if the installed libsndfile cannot write `kind` at this rate, found by trying.

    MP3 needs libsndfile 1.1 or later; FLAC has at most 655,350 samples per second.
    """
    if kind not in ENCODERS:
        return
    import soundfile

    try:
        _encode(io.BytesIO(), kind, [], rate)
    except soundfile.LibsndfileError as error:
        raise UsageError(
            f"the installed libsndfile {soundfile.__libsndfile_version__} cannot write {kind} at "
            f"{rate:,} Hz: use a .wav"
        ) from error


def write_sound(
    kind: str, file: BinaryIO, blocks: Iterable[NDArray[np.float32]], rate: int, samples: int
) -> None:
    """Write `samples` samples, at most `MAX_SAMPLES`, given in blocks (n,) in [-1, 1).

    `kind` is wav, raw (bare 16-bit levels) or one of `ENCODERS`. The same samples give the same
    bytes. For wav and raw, each block is flushed before the next is requested.
    """
    if kind in ENCODERS:
        buffer = io.BytesIO()
        _encode(buffer, kind, blocks, rate)
        data = buffer.getvalue()
        file.write(_without_serial(data) if kind == "ogg" else data)
        return
    if kind == "wav":  # its length is known, so the header needs no correction at the end
        header = (
            *(b"RIFF", HEADER_BYTES - 8 + 2 * samples, b"WAVE", b"fmt "),
            *(16, 1, 1, rate, 2 * rate, 2, 16),  # PCM, 1 channel, 2 bytes, 16 bits a sample
            *(b"data", 2 * samples),
        )
        file.write(struct.pack("<4sI4s4sIHHIIHH4sI", *header))
    file.flush()
    for block in blocks:
        file.write(to_levels(block).astype("<i2").tobytes())
        file.flush()


def _without_serial(data: bytes) -> bytes:
    """The one-stream Ogg file `data` with its serial number set to 0, to be reproducible.

    libsndfile derives it from the clock. It is in each page's header (RFC 3533, section 6).
    """
    file, start = bytearray(data), 0
    while start < len(file):
        body = start + SEGMENTS + 1 + file[start + SEGMENTS]
        end = body + sum(file[start + SEGMENTS + 1 : body])
        page = file[start:end]
        page[SERIAL] = page[CHECKSUM] = bytes(4)
        # zlib's polynomial, but most significant bit first, from 0, not inverted.
        mirrored = zlib.crc32(page.translate(BIT_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
        page[CHECKSUM] = int(f"{mirrored:032b}"[::-1], 2).to_bytes(4, "little")
        file[start:end] = page
        start = end
    return bytes(file)


def flac_bytes(blocks: Iterable[NDArray[np.floating[Any]]]) -> int:
    """The size of blocks (n,) in [-1, 1) as FLAC, which is not stored.

    Uses libFLAC's level 8, its highest. The sampling rate, which FLAC limits, does not affect its
    predictions.
    """
    with TemporaryFile() as file:
        _encode(file, "flac", blocks, 8000, compression_level=1.0)
        return file.seek(0, io.SEEK_END)


def _encode(
    target: Any, kind: str, blocks: Iterable[NDArray[np.floating[Any]]], rate: int, **options: float
) -> None:
    """Write the whole file; libsndfile seeks back to its header at the end."""
    import soundfile

    container, subtype = ENCODERS[kind]
    with soundfile.SoundFile(target, "w", rate, 1, subtype, format=container, **options) as file:
        for block in blocks:
            file.write(to_levels(block).astype(np.int16))
