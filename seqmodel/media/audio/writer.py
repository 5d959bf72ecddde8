"""Samples to audio, 16 bits, mono, block by block, without seeking: the target may be a pipe.

Every format but FLAC is written while its samples are drawn.
"""

import io
import struct
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio.frames import AudioFrames, to_levels

HEADER_BYTES = 44  # of a WAV; its size field does not count the first 8
MAX_SAMPLES = (2**32 - 1 - (HEADER_BYTES - 8)) // 2
"""In a WAV, whose size field has 32 bits."""

MAX_FLAC_RATE = 655_350


def write_audio(
    kind: str,
    file: BinaryIO,
    blocks: Iterable[NDArray[np.float32]],
    frame: AudioFrames,
    length: int,
) -> None:
    """Write `length` frames, at most `MAX_SAMPLES` samples, given in blocks (n,) of raw samples.

    `kind` is wav, flac, raw or npy. The first three hold 16-bit levels, raw nothing else,
    little-endian; npy holds the frames (length, F) as float32. Except for FLAC, each block is
    flushed before the next is asked for.
    """
    if kind == "flac":
        file.write(_flac(blocks, frame.rate))
        return
    encode = _floats if kind == "npy" else _levels
    if kind == "npy":
        file.write(_npy_header(length, frame.frame_size))
    elif kind == "wav":
        file.write(_wav_header(frame.rate, length * frame.frame_size))
    file.flush()
    for block in blocks:
        file.write(encode(block).tobytes())
        file.flush()


def _levels(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    return to_levels(samples).astype("<i2")


def _floats(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    return samples.astype("<f4")


def _wav_header(rate: int, samples: int) -> bytes:
    """The header of a WAV of known length, which needs no correction at the end."""
    size = 2 * samples
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", HEADER_BYTES - 8 + size, b"WAVE"),
        *(b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16),  # PCM, 1 channel, 2 bytes, 16 bits a sample
        *(b"data", size),
    )


def _npy_header(length: int, frame_size: int) -> bytes:
    buffer = io.BytesIO()
    shape = {"shape": (length, frame_size), "fortran_order": False, "descr": "<f4"}
    np.lib.format.write_array_header_1_0(buffer, shape)
    return buffer.getvalue()


def _flac(blocks: Iterable[NDArray[np.float32]], rate: int) -> bytes:
    """A whole FLAC; its header holds a checksum of all samples, so it is written last."""
    import soundfile

    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", rate, 1, "PCM_16", format="FLAC") as file:
        for block in blocks:
            file.write(_levels(block).astype(np.int16))
    return buffer.getvalue()
