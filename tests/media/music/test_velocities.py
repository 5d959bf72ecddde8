"""Velocities of MIDI files kept in datasets, and their levels."""

import io
from dataclasses import replace
from pathlib import Path

import mido
import numpy as np
import pytest
from midi_tracks import notes, save
from onsets import marked

from seqmodel.data.batches import load
from seqmodel.data.bundled import FRAMES
from seqmodel.data.dataset import open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import PianoRollFrames, notes_of
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.media.music.writing import velocities
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
    sources = find_sources([str(folder)])
    settings = sources.medium.settings({"velocity": True} | options)
    prepare(sources, folder / "data", settings)
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
        found = train.frame.marks_of(train.stored(k))["velocity"]
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
    frame, rows = dataset.frame, dataset["train"].stored(0)
    cut = frame.cut(rows[6:])
    assert frame.decode(cut)[0, 88 + 60 - 21] == 1
    assert frame.marks_of(cut)["velocity"][0, 60 - 21] == 33


def test_levels_are_even_shares_of_train():
    # An independent count: np.quantile of the numbers themselves.
    random = np.random.default_rng(2)
    numbers = np.clip(random.normal(64, 20, 20_000).round(), 1, 127).astype(int)
    levels = Levels.of(np.bincount(numbers, minlength=128))
    share = np.quantile(numbers, np.arange(1, 16) / 16, method="inverted_cdf")
    assert levels.edges == tuple(share.astype(int))
    level = np.searchsorted(levels.edges, numbers)
    assert [round(numbers[level == k].mean(), 2) for k in range(16)] == list(levels.means)


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
