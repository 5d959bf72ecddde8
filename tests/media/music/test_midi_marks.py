"""What notes are marked with, velocities and how far they lie from the grid, to files and back."""

import io
from dataclasses import replace
from pathlib import Path

import mido
import noise
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_tracks import notes, save, tempo
from onsets import as_frames, marked, random_states

from seqmodel.data.batches import load
from seqmodel.data.bundled import FRAMES
from seqmodel.data.dataset import open_dataset
from seqmodel.media.marks import Levels
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames, marks_in, notes_of, struck
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.placing import place
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.media.music.writing import RATE, midi_bytes, render, velocities
from seqmodel.media.samples import SampleRequest

STEP = 120
"""Ticks of a frame."""


def write(path, some):
    """A file of notes (begin, end, pitch, velocity), in frames of a quarter of 480 ticks."""
    return save(path, [notes(some, step=STEP)])


def prepared(folder, pieces, **options):
    """A dataset of files, each of which goes to train."""
    for name, some in pieces.items():
        write(folder / "train" / f"{name}.mid", some)
    settings = MUSIC.settings({"velocity": True} | options)
    noise.prepared(folder, folder / "data", settings)
    return open_dataset(folder / "data")


def random_notes(random, count):
    some = []
    for pitch in random.choice(np.arange(21, 109), 12, replace=False).tolist():
        begins = np.unique(random.integers(0, 60, count // 12)).tolist()
        for begin, after in zip(begins, [*begins[1:], 64], strict=True):
            end = int(random.integers(begin + 1, after + 1))
            some.append((begin, end, pitch, int(random.integers(1, 128))))
    return some


def test_every_frame_of_a_note_has_the_velocity_that_the_file_states(tmp_path):
    # Guards against velocities that slip by a note, a row or a frame, or are lost in batches.
    random = np.random.default_rng(1)
    pieces = {name: random_notes(random, 200) for name in ("a", "b")}
    dataset = prepared(tmp_path, pieces)
    train = dataset["train"]
    batch = load(train, np.arange(2), begin=3, window=40)
    assert "velocity" in batch.marks
    for k, source in enumerate(train.sources):
        expected = np.zeros((64, 88), int)
        for begin, end, pitch, velocity in pieces[Path(source).stem]:
            expected[begin:end, pitch - 21] = velocity
        found = train.frame.marks_of(train.read_rows(k))["velocity"]
        assert (found == expected[: len(found)]).all()
        window = expected[3:43]
        assert (batch.marks["velocity"][:, k] == window[: len(batch.marks["velocity"])]).all()
    plain = prepared(tmp_path / "plain", pieces, velocity=False)["train"]
    assert all((ours == theirs).all() for ours, theirs in zip(train, plain, strict=True))
    assert not plain.frame.marks


def test_transposed_pieces_take_velocities_with_them_of_which_the_loudest_counts(tmp_path):
    # Where notes meet, on one key at one time, or moved onto one: not the last, or a mixture.
    struck_twice = [(0, 4, 60, 99), (0, 4, 60, 36), (0, 4, 62, 36), (0, 4, 62, 99)]
    dataset = prepared(tmp_path, {"a": [*struck_twice, (1, 3, 96, 33), (1, 3, 108, 64)]})
    batch = load(dataset["train"], np.arange(1), np.array([5]))
    assert batch.frames.sum(axis=(0, 1))[60 - 21 + 5] == 4
    assert (batch.marks["velocity"][0, 0, [60 - 21 + 5, 62 - 21 + 5]] == 99).all()
    assert batch.marks["velocity"][1, 0, 96 - 21 + 5] == 64  # 113 is off the keyboard


def test_a_velocity_that_is_not_known_follows_the_rules():
    # Guards against notes of velocity 0, which are none: a held one whose strike was left out.
    frames, loud = np.zeros((8, 176), np.uint8), np.zeros((8, 88))
    frames[:, [40, 47]] = 1
    frames[0, 88 + 47], loud[:, 47] = 1, 3
    some, grid = notes_of(frames), Grid.of_beats(4)
    by_rule = velocities(some, frames, grid)
    assert velocities(some, marked(frames, velocity=loud), grid).tolist() == [by_rule[0], 3]


def test_what_holds_a_primers_note_on_is_as_loud_as_that(tmp_path):
    # Guards against a velocity by rule where a drawn frame goes on with a note of the file.
    write(tmp_path / "prime.mid", [(0, 4, 60, 33), (2, 4, 64, 99)])
    definition = replace(FRAMES, onsets=True, marks={"velocity": Levels()})
    request = SampleRequest(
        "mid", length=4, options={}, title="t", prime=tmp_path / "prime.mid", include_prime=True
    )
    drawn = marked(np.zeros((4, 176)))
    drawn[:2, 60 - 21] = 1
    file = io.BytesIO()
    MusicSampling(definition, request).write(file, [drawn], lambda done, total: None)
    _, added = mido.MidiFile(file=io.BytesIO(file.getvalue())).tracks
    assert [(m.note, m.velocity) for m in added if m.type == "note_on"] == [(60, 33)]


def test_an_excerpt_strikes_held_notes_as_they_were_struck(tmp_path):
    dataset = prepared(tmp_path, {"a": [(0, 8, 60, 33), (4, 8, 64, 99)]})
    frame, rows = dataset.frame, dataset["train"].read_rows(0)
    cut = frame.cut(rows[6:])
    assert frame.decode(cut)[0, 88 + 60 - 21] == 1
    assert frame.marks_of(cut)["velocity"][0, 60 - 21] == 33


def test_levels_are_even_shares_of_train():
    # An independent count: np.quantile of the numbers themselves, of which a tenth are 127.
    random = np.random.default_rng(2)
    numbers = np.clip(random.normal(90, 30, 20_000).round(), 1, 127).astype(int)
    levels = Levels.of(np.bincount(numbers, minlength=128))
    share = np.quantile(numbers, np.arange(1, 16) / 16, method="inverted_cdf")
    assert levels.edges == tuple(share[share < 127].astype(int))
    level = np.searchsorted(levels.edges, numbers)
    assert [round(numbers[level == k].mean(), 2) for k in range(len(levels))] == list(levels.means)


@pytest.mark.parametrize("values", [[], [80], [5, 5, 9], [*range(1, 17)]])
def test_few_distinct_numbers_have_a_level_each(values):
    levels = Levels.of(np.bincount(np.array(values, int), minlength=128))
    distinct = sorted(set(values)) or [80]
    assert list(levels.means) == distinct
    assert levels.edges == tuple(distinct[:-1] if values else ())


@pytest.mark.parametrize(
    "damage",
    [{"edges": [3, 2]}, {"edges": [1.5]}, {"edges": 3}, {"means": [80]}, {"means": ["a", 3]}],
)
def test_damaged_levels_are_named(damage):
    values = {"edges": [40, 60], "means": [30.0, 50.0, 90.0]} | damage
    frame = PianoRollFrames.from_json
    grid = {"notes": 88, "grid": {"steps_per_beat": 4}, "restrike": "close", "drums": False}
    with pytest.raises(ValueError, match=r"velocity\.(edges|means) must be"):
        frame(grid | {"transpose_to_c": False, "onsets": True, "velocity": values})


TIMED = replace(FRAMES, onsets=True, marks={"timing": Levels()})


@pytest.mark.parametrize(
    ("grid", "microseconds"), [(Grid.of_beats(4), 500_000), (Grid.of_seconds(0.125), 500_000),
                        (Grid.of_seconds(0.05), 200_000)],
)  # fmt: skip
def test_notes_keep_how_far_they_are_from_the_grid(tmp_path, grid, microseconds):
    # Guards signs, and steps of beats taken for steps of time: 120 ticks are a frame in all three.
    some = [(0, 110, 60), (130, 240, 61), (230, 300, 62), (480, 600, 60), (539, 720, 70)]
    save(tmp_path / "a.mid", [[tempo(0, microseconds), *notes(some)]])
    found = marks_in(load_midi(tmp_path / "a.mid", replace(TIMED, grid=grid)).frames)["timing"]
    for frame, pitch, off in ((0, 60, 0), (1, 61, 10), (2, 62, -10), (4, 60, 0), (4, 70, 59)):
        assert found[frame, pitch - 21] == round(64 + 126 * off / 120)
    assert found[5, 70 - 21] == found[4, 70 - 21]  # held on


def test_timing_is_counted_from_the_lag_of_all_notes(tmp_path):
    """Or a song that was recorded and then matched to beats spends nats on its lag at each note."""
    begins = [120 * k + 50 + 12 * (k % 4 == 2) for k in range(1, 21)]
    save(tmp_path / "a.mid", [notes((begin, begin + 60, 60) for begin in begins)])
    found = marks_in(load_midi(tmp_path / "a.mid", TIMED).frames)["timing"][1:21, 60 - 21]
    later = found[1::4].astype(int) - found[0]
    assert (np.abs(later - 126 * 12 / 120) <= 1).all()
    assert abs(int(found[0]) - 64) <= 126 * 4 / 120  # the lag is the mean


GRIDS = st.sampled_from([Grid.of_beats(4), Grid.of_beats(7), Grid.of_beats(480),
                         Grid.of_seconds(0.02), Grid.of_seconds(0.0333)])  # fmt: skip


@settings(derandomize=True, max_examples=30)
@given(GRIDS, st.integers(0, 99), st.floats(20, 300))
def test_moved_notes_stay_in_their_frames(grid, seed, bpm):
    """Guards against onsets that fall into another frame, or notes that swallow the next."""
    states = np.zeros((30, 88), np.uint8)
    states[:, 40:46] = random_states(seed, 30, 6, density=0.7)
    frames = as_frames(states)
    timing = np.random.default_rng(seed).integers(1, 128, (30, 88))
    data = midi_bytes(marked(frames, timing=timing), grid, tempo_bpm=bpm)
    placed = place(read_score(data), PianoRollFrames(grid))
    again = placed.frames(onsets=True)
    assert np.array_equal(again, np.pad(frames, ((0, len(again) - len(frames)), (0, 0))))
    (track,) = mido.MidiFile(file=io.BytesIO(data)).tracks
    for pitch in range(61, 67):
        kinds = [m.type for m in track if m.type.startswith("note_") and m.note == pitch]
        assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)


def test_samples_are_as_late_as_their_timing(tmp_path):
    # Guards the way back: what is read again is what was drawn, but for where a piece begins.
    frames = as_frames(np.where(np.random.default_rng(3).random((20, 88)) < 0.1, 1, 0))
    begins = struck(frames)
    timing = np.random.default_rng(4).integers(3, 126, begins.shape) * begins
    timing[0] = np.maximum(timing[0], 64) * begins[0]
    (tmp_path / "a.mid").write_bytes(midi_bytes(marked(frames, timing=timing), Grid.of_beats(4)))
    found = marks_in(load_midi(tmp_path / "a.mid", TIMED).frames)["timing"]
    assert np.abs(found[:20].astype(int) - timing)[begins].max() <= 1  # of 120 ticks


def test_sound_is_as_late():
    one, times = np.array([[1, 3, 69]]), np.arange(5) * 0.1
    plain, late = (
        np.concatenate([*render(one, times, np.ones(1), late=shift)])
        for shift in (np.zeros(1), np.full(1, 0.25))
    )
    moved = round(0.025 * RATE)
    assert (plain[: round(0.1 * RATE)] == 0).all()
    assert np.array_equal(late[moved : moved + 6000], plain[:6000])


def test_files_that_are_filled_get_notes_off_the_grid(tmp_path):
    """Guards --into and --fill against drawn notes that are straightened."""
    save(tmp_path / "a.mid", [notes([(0, 480, 60), (480, 960, 62)])])
    original = Original(tmp_path / "a.mid", TIMED, transposed=0)
    frames, free = original.frames.copy(), np.zeros((8, 88), bool)
    free[2:4], timing = True, np.zeros((8, 88))
    frames[2:4, 70], frames[[2, 3], 88 + 70] = 1, 1
    timing[2, 70], timing[3, 70] = 64 + 63, 64 - 32
    data = original.with_drawn(marked(frames, timing=timing), free)
    *_, drawn = mido.MidiFile(file=io.BytesIO(data)).tracks
    ons = [(at, m.type) for at, m in zip(np.cumsum([m.time for m in drawn]), drawn, strict=True)]
    assert [at for at, kind in ons if kind == "note_on"] == [240 + 58, 360 - 30]
    assert [at for at, kind in ons if kind == "note_off"] == [330, 480]
