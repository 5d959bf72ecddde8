"""Plots: PNG files whose pixels are where the notes or the sound are, equal for equal data."""

import io
import json
import tracemalloc

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from noise import in_memory

from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.inspection import columns, inspect_splits, recording_png
from seqmodel.media.music.inspection import piano_roll_png, plot_note_frequencies
from seqmodel.plots import ACCENT, DARK, PRIMARY, plot_learning_curve


def pixels(png):
    assert png.startswith(b"\x89PNG")
    return matplotlib.image.imread(io.BytesIO(png))[:, :, :3]


def places_of(image, colour):
    """(rows, columns) of the pixels of a colour, as shares of the picture; row 0 at the top."""
    close = (abs(image - matplotlib.colors.to_rgb(colour)) < 0.01).all(axis=2)
    rows, columns = np.nonzero(close)
    return rows / len(image), columns / image.shape[1]


def until(roll, frame):
    """The notes before a frame."""
    return np.broadcast_to((np.arange(len(roll)) < frame)[:, None], roll.shape)


def test_time_goes_right_and_pitch_up():
    """A roll drawn upside down or back to front still looks like music."""
    roll = np.zeros((40, 88), np.uint8)
    roll[:10, 20] = roll[30:, 60] = 1  # low at first, high at last
    rows, columns = places_of(pixels(piano_roll_png(roll, title="t")), PRIMARY)
    early = columns < 0.5
    assert early.any()
    assert (~early).any()
    assert rows[early].min() > rows[~early].max()


def test_the_primer_stands_out():
    roll = np.zeros((40, 88), np.uint8)
    roll[:, 40] = 1
    image = pixels(piano_roll_png(roll, title="t", given=until(roll, 10)))
    _, given = places_of(image, ACCENT)
    _, drawn = places_of(image, PRIMARY)
    assert given.max() <= drawn.min()
    assert np.ptp(drawn) / np.ptp(given) == pytest.approx(3, rel=0.05)
    assert len(places_of(pixels(piano_roll_png(roll, title="t")), ACCENT)[0]) == 0


def test_a_note_begins_dark():
    """A note struck again and a long one must not look alike, in the primer or after it."""
    frames = np.zeros((40, 176), np.uint8)
    frames[:, 40] = frames[[0, 10, 20, 30], 128] = 1
    image = pixels(piano_roll_png(frames, title="t", given=until(frames[:, :88], 20)))
    left, right = (places_of(image, colour)[1] for colour in reversed(DARK))
    assert left.max() < right.min()
    for dark, held in ((left, ACCENT), (right, PRIMARY)):
        _, columns = places_of(image, held)
        assert len(columns) / len(dark) == pytest.approx(9, rel=0.1)
        assert dark.min() < columns.min() < dark.max() < columns.max()


@pytest.mark.parametrize("frames", [1, 3000])
def test_the_roll_is_left_unchanged_and_silence_can_be_drawn(frames):
    roll = np.zeros((frames, 88), np.uint8)
    for notes in (0, 1):
        roll[:, :] = notes
        picture = piano_roll_png(roll, title="$5 & _x_ é", given=until(roll, 1))
        assert (roll == notes).all()
        pixels(picture)


def test_the_same_data_give_the_same_bytes(tmp_path):
    """A date or version in the file would make every rerun a change."""
    roll = np.eye(88, dtype=np.uint8)
    assert piano_roll_png(roll, title="t") == piano_roll_png(roll, title="t")
    for name in "ab":
        shares = {"train": np.linspace(0, 1, 88), "valid": np.zeros(88)}
        plot_note_frequencies(tmp_path / name, shares, title="t")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("epochs", [1, 5])
def test_the_learning_curve_marks_the_best_epoch(tmp_path, epochs):
    valid = [5.0, 4.0, 3.0, 3.5, 4.5][:epochs]
    metrics = [
        {"epoch": k + 1, "train_nats_per_frame": v - 1, "valid_nats_per_frame": v}
        for k, v in enumerate(valid)
    ]
    plot_learning_curve(tmp_path / "a.png", json.loads(json.dumps(metrics)))
    image = pixels((tmp_path / "a.png").read_bytes())
    rows, columns = places_of(image, ACCENT)
    assert len(rows) > 20
    if epochs == 5:
        assert columns.mean() == pytest.approx(0.53, abs=0.05)  # the middle of the axes
        below = places_of(image, PRIMARY)
        assert rows.max() >= below[0].max() - 0.01  # the lowest point of valid's curve


def test_a_long_piece_is_drawn_in_the_memory_of_a_short_one():
    """Guards against a picture of floats as wide as the piece, 9 GB for a million frames.

    Also against notes that fall between its pixels.
    """
    roll = np.zeros((300_000, 88), np.uint8)
    roll[150_000, 20] = 1  # a single frame
    roll[250_000:, 60] = 1
    piano_roll_png(roll[:100], title="t")  # loads fonts
    tracemalloc.start()
    image = pixels(piano_roll_png(roll, title="t", given=until(roll, 260_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * roll.nbytes
    assert places_of(image, ACCENT)[1].min() == pytest.approx(0.5, abs=0.03)
    assert places_of(image, PRIMARY)[0].size


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


def test_time_goes_right_and_frequency_up(tmp_path):
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
