"""Sampled audio to files, block by block and without seeking, so the target may be a pipe.

Every format but FLAC is written while its samples are being drawn.
"""

import io
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.sound import write_sound


def write_audio(
    kind: str,
    file: BinaryIO,
    blocks: Iterable[NDArray[np.float32]],
    frame: AudioFrames,
    length: int,
) -> None:
    """Write `length` frames, at most `MAX_SAMPLES` samples, given in blocks (n,) of raw samples.

    `kind` is npy, which holds the frames (length, F) as float32, or what `write_sound` takes.
    Except for FLAC, each block is flushed before the next is requested.
    """
    if kind != "npy":
        write_sound(kind, file, blocks, frame.rate, length * frame.frame_size)
        return
    file.write(_npy_header(length, frame.frame_size))
    file.flush()
    for block in blocks:
        file.write(block.astype("<f4").tobytes())
        file.flush()


def _npy_header(length: int, frame_size: int) -> bytes:
    buffer = io.BytesIO()
    shape = {"shape": (length, frame_size), "fortran_order": False, "descr": "<f4"}
    np.lib.format.write_array_header_1_0(buffer, shape)
    return buffer.getvalue()
