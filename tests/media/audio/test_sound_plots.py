"""Pictures of sound: columns checked with NumPy and scipy, pixels where the sound is."""

import io

import matplotlib.image
import numpy as np
import pytest
from noise import in_memory

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.inspection import columns, inspect_splits, recording_png

RATE = 8000


def tone(hertz, samples):
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / RATE)).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "hop"), [(1, 6), (255, 256), (255, 3000), (2000, 6), (7000, 256), (7000, 1000)]
)
def test_columns_do_not_depend_on_blocks(samples, hop):
    """Guards block boundaries against columns lost, doubled, or begun a sample late."""
    sound = np.random.default_rng(samples).uniform(-1, 1, samples).astype(np.float32)
    low, high, power = columns(np.array_split(sound, 7), 256, hop)
    padded = np.pad(sound, (1000, 6000))
    starts = range(0, samples, hop)
    assert len(low) == len(high) == len(power) == len(starts)
    for k, start in enumerate(starts):
        within = padded[1000 + start : 1000 + start + hop]
        assert low[k] == within.min()
        assert high[k] == within.max()
        if hop <= 256:
            begins = [start - (256 - hop) // 2]
        else:
            begins = [start + j * hop // min(8, hop // 256) for j in range(min(8, hop // 256))]
        windows = [padded[1000 + begin : 1256 + begin] * np.hanning(256) for begin in begins]
        spectrum = np.mean([np.abs(np.fft.rfft(window)) ** 2 for window in windows], axis=0)
        np.testing.assert_allclose(power[k], spectrum / (np.hanning(256).sum() / 2) ** 2)


def picture(path, sound):
    path.write_bytes(recording_png(np.array_split(sound, 5), len(sound), RATE, title="$5 & _x_ é"))
    return matplotlib.image.imread(io.BytesIO(path.read_bytes()))[:, :, :3]


def test_time_goes_right_and_pitch_up(tmp_path):
    """A spectrogram drawn upside down or back to front still looks like sound."""
    image = picture(tmp_path / "a.png", np.concatenate([tone(500, 8000), tone(3500, 8000)]))
    bright = image[:, :, 0] - image[:, :, 2] > 0.2  # the yellow and orange end of the colours
    rows, columns = np.nonzero(bright)
    early = columns < image.shape[1] / 2
    assert early.any()
    assert (~early).any()
    assert np.median(rows[early]) > np.median(rows[~early]) + 100


def test_sample_values_and_silence_are_drawn_reproducibly(tmp_path):
    for name in "ab":
        picture(tmp_path / f"{name}.png", np.zeros(1, np.float32))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    split = in_memory(AudioFrames(RATE), (32767 * tone(1000, 8000)).astype(np.int16))
    inspect_splits({"train": split}, tmp_path / "a.png", "t")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
