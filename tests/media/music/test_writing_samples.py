"""Samples of music on their way to a file."""

import io
from dataclasses import replace

import numpy as np
from allocation import peak_of

from seqmodel.data.bundled import FRAMES
from seqmodel.media.music.frames import with_onsets
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.media.samples import SampleRequest


def write(file, kind, chunks, frames, definition=FRAMES, **options):
    """Write a sample of so many frames."""
    request = SampleRequest(kind, length=frames, options=options, title="t")
    return MusicSampling(definition, request).write(file, chunks, lambda done, total: None)


def test_a_sample_that_freezes_is_told():
    """Guards the count: strikes end a chord, silence is none, train's longest is no freezing."""
    frame = replace(FRAMES, onsets=True, longest_chord=5)
    roll = np.zeros((20, 88), np.uint8)
    roll[1:13, [30, 34]] = 1
    drawn = with_onsets(roll)
    hint = write(io.BytesIO(), "npy", [drawn], 20, frame).hint
    assert hint.startswith("a chord is held for 12 frames, but for 5 at most in train")
    drawn[[6, 11], 88 + 34] = 1
    assert write(io.BytesIO(), "npy", [drawn], 20, frame).hint == ""
    assert write(io.BytesIO(), "npy", [roll], 20).hint == ""  # train is not known


def test_a_long_sample_is_held_once():
    """Guards against chunks kept next to the whole, 53 MB, and a picture, 31 MB, that grows."""
    assert picture(1000).size == "1,000 frames"  # which loads fonts, too
    # With a second copy before the picture: 106e6.
    assert peak_of(lambda: picture(600_000)) < 95e6


def picture(frames):
    """Write a picture of a sample of so many frames, of one note each."""
    chunk = np.eye(1, 88, 40, dtype=np.uint8).repeat(100, axis=0)
    chunks = (chunk.copy() for _ in range(0, frames, 100))
    return write(io.BytesIO(), "png", chunks, frames)


def test_a_sample_is_transposed_strikes_and_all():
    """The published chorales lie an octave too high, and so does what is learned from them."""
    definition = replace(FRAMES, onsets=True)
    roll = np.zeros((3, 88), np.uint8)
    roll[:, [5, 40]] = 1
    roll[1, 17] = 1  # where 5 goes
    drawn = with_onsets(roll)
    drawn[2, 88 + 40] = 1
    file = io.BytesIO()
    write(file, "npy", [drawn], 3, definition, transpose=-12)
    found = np.load(io.BytesIO(file.getvalue()))
    expected = np.zeros((3, 88))
    expected[:, 28] = [1, 2, 1]
    expected[:, 5] = [1, 1, 2]  # 17 goes to 5; 5, off the keyboard, back to 5
    assert np.array_equal(found, expected)
