"""From files to a dataset: which split a piece goes to, what is skipped and how it is reported."""

import json
from pathlib import Path

import numpy as np
import pytest
from midi_tracks import notes, save
from noise import places, prepared, split_by_hash

from seqmodel.data.dataset import open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid

FRAME = PianoRollFrames(Grid.of_beats(2))


def tune(path, *pitches, transposed_by=0):
    """A MIDI file of quarter notes; on the grid of FRAME each is two frames."""
    some = [(k, k + 1, pitch + transposed_by) for k, pitch in enumerate(pitches)]
    return save(path, [notes(some, step=96)], division=96, kind=0)


def roll_of(*pitches):
    """The roll that `tune` must become, built by hand."""
    return np.eye(88, dtype=np.uint8)[np.array(pitches) - 21].repeat(2, axis=0)


def content_of_tune(*pitches):
    """What is hashed of `tune`, whatever the grid: ticks per beat, SMPTE or not, then the notes.

    The notes are three rows, on, off and pitch, sorted in that order; a quarter note is one tick.
    """
    notes = sorted((k, k + 1, pitch) for k, pitch in enumerate(pitches))
    return b"1 False" + np.array(notes, "<i8").T.tobytes()


@pytest.fixture
def corpus(tmp_path):
    """Forty different tunes without split folders."""
    for k in range(40):
        tune(tmp_path / "corpus" / f"{k:02}.mid", 40 + k, 45 + k // 2, 62)
    return tmp_path / "corpus"


def test_a_piece_holds_the_notes_of_its_file(tmp_path):
    tune(tmp_path / "a.mid", 21, 60, 64, 108)
    manifest = prepared(tmp_path / "a.mid", tmp_path / "out", FRAME, split_by="piece")
    expected = roll_of(21, 60, 64, 108)
    split = open_dataset(tmp_path / "out")[split_by_hash(content_of_tune(21, 60, 64, 108))]
    np.testing.assert_array_equal(split[0], expected)
    assert open_dataset(tmp_path / "out").manifest == manifest


def test_folders_decide_the_split_the_nearest_first(tmp_path):
    top = tmp_path / "test"  # above the source: ignored
    files = {
        "a.mid": None,
        "train/a.mid": "train",
        "valid/train/a.mid": "train",
        "train/deep/er/a.mid": "train",
        "Validation/a.MIDI": "valid",
        "x/TEST/y/a.kar": "test",
        "training/a.mid": "train",
    }
    for k, name in enumerate(files):
        tune(top / "corpus" / name, 50 + k)
    prepared(top / "corpus", tmp_path / "out", FRAME)
    expected = {
        str(top / "corpus" / name): split or split_by_hash(content_of_tune(50 + k))
        for k, (name, split) in enumerate(files.items())
    }
    assert places(tmp_path / "out") == expected
    manifest = open_dataset(tmp_path / "out").manifest
    assert manifest["split_by"] == {"folder": 6, "content_hash": 1}


def test_files_that_are_named_are_placed_only_by_folders_that_differ(tmp_path, monkeypatch):
    """`prepare train/a.mid` put its one piece into train, and nothing into valid; but the files of
    `find corpus -name '*.mid' | prepare -` are placed as those of `prepare corpus`."""
    monkeypatch.chdir(tmp_path)
    for name in ("train/a.mid", "train/b.mid", "valid/c.mid", "d.mid"):
        tune(Path(name), 60)
    for names, splits in (
        (["train"], ["train", "train"]),
        (["valid", "d.mid"], ["valid", None]),
        (["train/a.mid"], [None]),
        (["train/a.mid", "./train/a.mid", "train/b.mid", "d.mid"], [None, None, None]),
        (["train/*.mid"], [None, None]),
        ([str(tmp_path / "train/a.mid")], [None]),
        (["train/a.mid", "valid/c.mid", "d.mid"], ["train", "valid", None]),
        (["*/*.mid"], ["train", "train", "valid"]),
        (["train", "valid/c.mid"], ["train", "train", "valid"]),
        (["train", "train/a.mid"], ["train", "train"]),
    ):
        assert [source.split for source in find_sources(names).files] == splits, names


def test_without_folders_the_content_decides(corpus, tmp_path):
    prepared(corpus, tmp_path / "out", FRAME)
    for source, split in places(tmp_path / "out").items():
        k = int(Path(source).stem)
        assert split == split_by_hash(content_of_tune(40 + k, 45 + k // 2, 62)), source
    assert len(set(places(tmp_path / "out").values())) == 3


def test_a_loose_copy_joins_the_split_of_a_folder_and_copies_in_two_are_reported(tmp_path):
    """Guards against training on a test piece because a copy of it lies outside the folder."""
    for k in range(20):
        tune(tmp_path / f"in/test/{k}.mid", 40 + k, 60)
        tune(tmp_path / f"in/zz/{k}.mid", 40 + k, 60)
    manifest = prepared(tmp_path / "in", tmp_path / "out", FRAME)
    assert (manifest["repeated_pieces"], manifest["also_in_another_split"]) == (20, [])
    assert set(places(tmp_path / "out").values()) == {"test"}
    copy = tune(tmp_path / "in/valid/b.mid", 40, 60)
    manifest = prepared(tmp_path / "in", tmp_path / "both", FRAME)
    assert manifest["also_in_another_split"] == [str(copy)]
    assert places(tmp_path / "both")[str(copy)] == "valid"


def test_a_file_named_twice_comes_once(corpus, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    names = ["corpus", "corpus/03.mid", "corpus/*.mid", "./corpus//03.mid", "corpus/**/0*.mid"]
    sources = find_sources(names).files
    assert [str(s.path) for s in sources] == [f"corpus/{k:02}.mid" for k in range(40)]


def test_the_order_in_which_the_disk_lists_files_does_not_matter(corpus, tmp_path, monkeypatch):
    """Two machines must make the same bytes from the same files."""
    monkeypatch.chdir(corpus.parent)
    prepared(["corpus"], tmp_path / "a", FRAME)
    iterdir = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: reversed(list(iterdir(path))))
    prepared(["corpus"], tmp_path / "b", FRAME)
    a, b = ({p.name: p.read_bytes() for p in iterdir(tmp_path / name)} for name in "ab")
    assert a == b
    sources = open_dataset(tmp_path / "a")["train"].sources
    assert sources == sorted(sources)


def test_published_rolls_keep_their_splits_or_go_by_folder_or_hash(tmp_path):
    rolls = {"train": [roll_of(60, 64), roll_of(30)], "valid": [roll_of(62)]}
    file = tmp_path / "rolls.npz"
    np.savez(file, **{f"{name}_{k}": r for name, some in rolls.items() for k, r in enumerate(some)})
    prepared(file, tmp_path / "out", FRAME)
    found = open_dataset(tmp_path / "out")
    for name, pieces in rolls.items():
        assert found[name].sources == [f"{file}#{name}/{k}" for k in range(len(pieces))]
        for ours, theirs in zip(found[name], pieces, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    by_hash = split_by_hash(np.packbits(roll_of(60, 61, 62), axis=1).tobytes())
    for name, split in {"loose.npy": by_hash, "valid/one.npy": "valid"}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "in" / name, roll_of(60, 61, 62))
        prepared(tmp_path / "in", tmp_path / "out", FRAME, force=True)
        assert places(tmp_path / "out")[f"{tmp_path}/in/{name}"] == split


def test_transposing_to_c_is_recorded_and_refused_for_rolls(tmp_path):
    """A roll has lost what the estimate needs; moving it by a guess would be silent damage."""
    scale = (60, 62, 64, 65, 67, 69, 71, 72, 67, 64, 60)
    tune(tmp_path / "in/train/g.mid", *scale, transposed_by=-5)
    np.save(tmp_path / "in/roll.npy", roll_of(60))
    frame = PianoRollFrames(Grid.of_beats(2), transpose_to_c=True)
    manifest = prepared(tmp_path / "in", tmp_path / "out", frame)
    assert [entry["source"] for entry in manifest["skipped"]] == [str(tmp_path / "in/roll.npy")]
    (line,) = (tmp_path / "out/train.jsonl").read_text().splitlines()
    assert json.loads(line)["transposed"] == 5
    np.testing.assert_array_equal(open_dataset(tmp_path / "out")["train"][0], roll_of(*scale))


@pytest.mark.parametrize("split_by", ["piece", "time"])
def test_voices_are_kept_frame_by_frame(tmp_path, split_by):
    """Guards the voices of a piece that is cut, which are those of its own frames."""
    found = np.empty(12, object)
    for k in range(12):
        found[k] = np.random.default_rng(k).integers(59, 75, (400, 3))
        found[k][found[k] == 59] = -1
    np.savez(tmp_path / "a.npz", all=found)
    sources = find_sources([str(tmp_path / "a.npz")])
    prepare(sources, tmp_path / "d", FRAME, split_by=split_by)
    dataset = open_dataset(tmp_path / "d")
    for split in dataset.splits:
        for roll, piece in zip(dataset[split], dataset[split].pieces, strict=True):
            sets = [sorted({p for p in frame if p > 0}) for frame in piece.facts["voices"]]
            assert [(np.flatnonzero(frame) + 21).tolist() for frame in roll] == sets
