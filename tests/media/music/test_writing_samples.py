"""Samples of music on their way to a file."""

import io
import tracemalloc

import numpy as np

from seqmodel.data.bundled import FRAMES
from seqmodel.media.definitions import SampleRequest
from seqmodel.media.music.sampling import MusicSampling


def picture(frames):
    """Write a picture of a sample of so many frames, of one note each."""
    request = SampleRequest(
        kind="png",
        length=frames,
        seconds=None,
        prime=None,
        include_prime=False,
        options={},
        title="t",
        longest_piece=None,
    )
    chunk = np.eye(1, 88, 40, dtype=np.uint8).repeat(100, axis=0)
    chunks = (chunk.copy() for _ in range(0, frames, 100))
    return MusicSampling(FRAMES, request).write(io.BytesIO(), chunks, lambda done, total: None)


def test_a_long_sample_is_held_once():
    """Guards against chunks kept next to the whole, and a picture that grows: a million frames used
    to take over twice their 88 MB."""
    picture(100)  # loads fonts
    tracemalloc.start()
    assert picture(1_000_000).size == "1,000,000 frames"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * 1_000_000 * 88
