"""Frames of audio: stored and read back exactly, with impossible settings rejected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seqmodel.errors import UsageError
from seqmodel.media.audio.frames import AudioFrames, AudioSettings

RATE = 8000


@given(arrays(np.int16, st.integers(1, 20).map(lambda t: 10 * t)))
def test_encoded_samples_decode(samples):
    """The round trip of any 16-bit values, including the lowest and the highest."""
    values = samples.astype(np.float32) / 32768
    for dtype in ("int16", "float32"):
        frame = AudioFrames(RATE, dtype=dtype)
        frames = frame.decode(frame.encode(values))
        np.testing.assert_array_equal(frames, values.reshape(-1, 10))
    np.testing.assert_array_equal(AudioFrames(RATE, dtype="int16").encode(values), samples)


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"rate": 0}, "--rate"),
        ({"rate": 10**7}, "--rate"),
        ({"frame_size": 0}, "--frame"),
        ({"context": -1}, "--context"),
        ({"context": 10**6}, "--context"),
        ({"clip_seconds": 0.0}, "--clip-seconds"),
        ({"clip_seconds": float("nan")}, "--clip-seconds"),
        ({"clip_seconds": float("inf")}, "--clip-seconds"),
    ],
)
def test_settings_out_of_range_are_usage_errors(wrong, option):
    """Guards against sizes that fail, or are allocated, only when the files are read."""
    with pytest.raises(UsageError, match=option) as caught:
        AudioSettings(**wrong)
    assert "\n" not in str(caught.value)
