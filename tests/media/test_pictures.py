"""Pictures of sampled pieces: a box per note, the extremes of each stretch of a waveform."""

import numpy as np
import pytest

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.pictures import Box


def test_notes_are_boxes_and_restruck_ones_are_separate():
    """Guards against restruck notes that look like one, and losing notes held from before."""
    frames = np.zeros((6, 176), np.uint8)
    frames[0:5, 39] = 1  # middle C sounds for five frames,
    frames[[0, 2], 88 + 39] = 1  # struck twice
    frames[0:2, 60] = 1  # A5, held from before the beginning
    definition = PianoRollFrames(Grid.of_seconds("0.25"), onsets=True)
    picture = MUSIC.picture(frames, definition)
    assert set(picture.boxes) == {Box(0, 59.5, 2, 1), Box(2, 59.5, 3, 1), Box(0, 80.5, 2, 1)}
    assert picture.apart
    assert (picture.width, picture.seconds) == (6, 1.5)
    assert (picture.bottom, picture.top) == (57.5, 83.5)
    assert [(level.y, level.name) for level in picture.levels] == [(60, "C4"), (72, "C5")]
    assert picture.summary == "piano-roll: 3 notes from C4 to A5 in 6 frames"


def test_silence_has_a_picture_too():
    picture = MUSIC.picture(np.zeros((4, 88), np.uint8), PianoRollFrames(Grid.of_beats(4)))
    assert picture.boxes == ()
    assert picture.bottom < 60 < picture.top
    assert picture.summary == "piano-roll: 0 notes in 4 frames"


@pytest.mark.parametrize("frames", [1, 7, 80, 81, 3200])
def test_a_waveform_covers_every_sample(frames: int):
    """Guards against peaks lost between columns, for pieces shorter and longer than the picture."""
    samples = np.random.default_rng(frames).uniform(-0.5, 0.5, (frames, 10)).astype(np.float32)
    picture = AUDIO.picture(samples, AudioFrames(8000, 10, 20))
    line = samples.reshape(-1).astype(float)
    assert picture.seconds == len(line) / 8000
    assert len(picture.boxes) <= 800
    per_box = len(line) / picture.width
    for k, value in enumerate(line):
        box = picture.boxes[int(k / per_box)]
        assert box.y - 1e-9 <= value <= box.y + box.height + 1e-9
    for before, after in zip(picture.boxes, picture.boxes[1:], strict=False):
        assert after.x == before.x + before.width
        assert min(before.y + before.height, after.y + after.height) >= max(before.y, after.y)
    assert picture.bottom <= line.min() <= line.max() <= picture.top
    peak = np.abs(line).max()
    assert max(box.y + box.height for box in picture.boxes) == pytest.approx(line.max(), abs=0.01)
    assert picture.summary.endswith(f"at 8,000 Hz, peak {peak:.4f}")


def test_a_silent_waveform_is_a_line():
    picture = AUDIO.picture(np.zeros((4, 10), np.float32), AudioFrames(8000, 10, 20))
    assert all(0 < box.height < 0.02 for box in picture.boxes)
    assert picture.bottom < 0 < picture.top
