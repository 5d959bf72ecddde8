"""Plots: PNG files whose pixels are where the notes are, identical for the same data."""

import io
import json
import tracemalloc

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest

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
