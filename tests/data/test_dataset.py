"""The prepared dataset: it reads back as written, and damage is reported in one line."""

import hashlib
import json
import math
import os
import shutil
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from allocation import peak_of
from refusals import refused

from seqmodel.data.dataset import DATASET_FOLDER, DatasetWriter, open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.music.frames import PianoRollFrames, pack
from seqmodel.media.music.grid import Grid


@pytest.fixture
def copy(dataset, tmp_path):
    """A copy of the dataset to damage."""
    return Path(shutil.copytree(dataset.folder, tmp_path / "copy"))


def test_every_piece_is_read_back(dataset, rolls):
    """By a file that NumPy reads, and an index and a manifest that say what is in it."""
    manifest = json.loads((dataset.folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("seqmodel-dataset", 1)
    assert manifest["media"] == "music"
    plain = {"notes": 88, "grid": {"steps_per_beat": 4}, "restrike": "close"}
    plain |= {"drums": False, "transpose_to_c": False, "short_notes": True}
    assert manifest["frame"] == plain
    for name, pieces in rolls.items():
        split, lengths = dataset[name], [len(roll) for roll in pieces]
        assert split.sources == [f"{name}/{k}.mid" for k in range(len(pieces))]
        assert split.lengths.tolist() == lengths
        np.testing.assert_array_equal(split.totals(), np.concatenate(pieces).sum(0))
        for ours, roll in zip(split, pieces, strict=True):
            assert ours.dtype == np.uint8
            np.testing.assert_array_equal(ours, roll)
        for index in (len(split), -len(split) - 1):
            with pytest.raises(IndexError):
                split[index]
        shard = np.load(dataset.folder / f"{name}.npy", allow_pickle=False)
        np.testing.assert_array_equal(shard, np.packbits(np.concatenate(pieces), axis=1))
        counts = {"pieces": len(pieces), "frames": sum(lengths), "longest": max(lengths)}
        assert manifest["splits"][name] == counts
        lines = (dataset.folder / f"{name}.jsonl").read_text().splitlines()
        hashes = [hashlib.sha256(np.packbits(r, axis=1).tobytes()).hexdigest() for r in pieces]
        assert [json.loads(line)["sha256"] for line in lines] == hashes


def test_slices_are_those_of_a_list(dataset, rolls):
    """Of pieces, and of the rows of one: guards lengths, places and hashes of other pieces."""
    for name, begin, end, step in product(
        dataset.splits, (0, -2, 1, None, 9), (3, None, 9), (None, -2)
    ):
        part, split = slice(begin, end, step), dataset[name]
        for some in (split[part][:], split[[*range(len(split))][part]]):
            assert (some.name, some.sources) == (name, split.sources[part])
            assert [frames.tolist() for frames in some] == [r.tolist() for r in rolls[name][part]]
            assert some.frames == sum(map(len, rolls[name][part]))
    split, roll = dataset["train"], np.packbits(rolls["train"][2], axis=1)
    for begin, end in ((0, None), (0, 3), (5, 9), (20, 99), (24, None), (30, 40)):
        np.testing.assert_array_equal(split.read_rows(2, begin, end), roll[begin:end])
    assert split.row_count(2) == len(roll)


def test_a_shard_is_read_piece_by_piece(tmp_path, write_dataset):
    """Loading a shard whole would make training's memory grow with the corpus."""
    pieces = [np.eye(5000, 88, dtype=np.uint8)] * 40
    split = write_dataset(tmp_path, {"train": pieces})["train"]
    split.read_rows(0)
    found = []
    peak = peak_of(lambda: found.extend(len(split.read_rows(k, 4000)) for k in range(40)))
    assert found == [1000] * 40
    assert peak < 5 * pieces[0].nbytes / 8  # of 40


def test_beginnings_of_some_pieces_are_a_split_of_their_own(dataset, rolls):
    """Guards starts in rows, which are those of another array, and pieces shorter than the rest."""
    train = rolls["train"]
    longest = max(map(len, train))
    for pieces, frames in ((2, 10), (99, 7), (99, longest * len(train) + 5), (1, 1)):
        some = dataset["train"].beginnings(pieces, frames)
        count = min(pieces, len(train))
        chosen, each = [k * len(train) // count for k in range(count)], math.ceil(frames / count)
        assert some.sources == [f"train/{k}.mid" for k in chosen]
        assert some.lengths.tolist() == [min(each, len(train[k])) for k in chosen]
        for roll, k in zip(some, chosen, strict=True):
            np.testing.assert_array_equal(roll, train[k][:each])


def test_enough_is_all_of_a_small_split_and_never_a_few_short_pieces(tmp_path, write_dataset):
    """Guards statistics of little data, and of long pieces among which the first is short."""
    pieces = [np.eye(n, 88, dtype=np.uint8) for n in (1, 80, 80, 80, 2, 2, 2, 2)]
    train = write_dataset(tmp_path, {"train": pieces})["train"]
    assert train.subsample(train.frames).sources == train.subsample().sources == train.sources
    for frames in range(1, train.frames):
        assert train.subsample(frames).frames >= frames
    assert len(train.subsample(80)) < len(train)


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (lambda shard: os.truncate(shard, 200), "has been cut short or added to"),
        (lambda shard: shard.unlink(), "has gone"),
        (lambda shard: shutil.rmtree(shard.parent), "has gone"),
        (lambda shard: shutil.copy(shard, shard.with_suffix(".b")).replace(shard), "replaced"),
    ],
)
def test_a_shard_that_changes_while_it_is_read_is_an_error(copy, harm, line):
    """Guards against a bus error of a memory map, and going on with data that are on no disk."""
    split = open_dataset(copy)["train"]
    split[0]
    harm(copy / "train.npy")
    for piece in (0, 1):
        refused(lambda piece=piece: split[piece], copy, line)


@pytest.mark.parametrize("media", ["music", "audio"])
def test_a_changed_byte_is_found_when_its_piece_is_read(
    dataset, audio_dataset, tmp_path, monkeypatch, media
):
    """Guards training and evaluation, also of later epochs and past a piece's first block: sizes
    and shapes alone would not show it. The file is changed after it was read, then restored."""
    monkeypatch.setattr("seqmodel.data.dataset.HASH_FRAMES", 7)
    original = {"music": dataset, "audio": audio_dataset}[media]
    folder = Path(shutil.copytree(original.folder, tmp_path / "copy"))
    split, ends = open_dataset(folder)["valid"], np.cumsum(original["valid"].lengths)
    expected = list(split)  # read, and found to be as they were prepared
    shard, good = folder / "valid.npy", (folder / "valid.npy").read_bytes()
    frame_bytes = (len(good) - 128) // ends[-1]
    for turn, place in enumerate([*range(128, len(good), 97), len(good) - 1]):
        shard.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        os.utime(shard, ns=(1, (turn + 1) * 10**9))  # however coarse the file system's clock
        piece = int(np.searchsorted(ends, (place - 128) // frame_bytes, side="right"))
        damaged = f"{folder} is damaged: {split.sources[piece]} in valid no longer matches its hash"
        refused(lambda piece=piece: split.read_rows(piece, 0, 1), damaged)
        refused(open_dataset(folder).check_content, damaged)
        np.testing.assert_array_equal(split[piece - 1], expected[piece - 1])
    shard.write_bytes(good)
    open_dataset(folder).check_content()
    np.testing.assert_array_equal(open_dataset(folder)["valid"][-1], expected[-1])


def test_other_data_have_a_different_fingerprint(
    tmp_path, dataset, audio_dataset, rolls, write_dataset
):
    """Otherwise a run would silently resume on another note, order, split or kind of frame."""
    train, (*rest, last) = rolls["train"], rolls["train"]
    note = [train[0] ^ (np.arange(88) == 3).astype(np.uint8), *train[1:]]
    for number, change in enumerate(
        ({"train": note}, {"train": train[::-1]}, {"train": rest, "valid": [*rolls["valid"], last]})
    ):
        other = write_dataset(tmp_path / str(number), rolls | change)
        assert other.fingerprint() != dataset.fingerprint()
    other = Path(shutil.copytree(audio_dataset.folder, tmp_path / "other"))
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["frame"]["context"] += 10
    (other / "manifest.json").write_text(json.dumps(manifest))
    assert open_dataset(other).fingerprint() != audio_dataset.fingerprint()


@pytest.mark.parametrize("source", ["Bört/é.mid", "a\nb\u2028c.mid", "no utf-8: \udcff.mid"])
def test_any_file_name_can_be_a_source(tmp_path, source):
    """File names are bytes; one that is not UTF-8 must not abort an hour's work."""
    roll = np.ones((2, 88), np.uint8)
    frame = PianoRollFrames(Grid.of_seconds("0.1"), "discard", drums=True, transpose_to_c=True)
    with DatasetWriter(tmp_path, frame) as writer:
        writer.add("test", source, [pack(roll)], {"transposed": -3})
        writer.finish(frame, {"skipped": [{"source": source, "reason": "é"}]})
    found = open_dataset(tmp_path)
    assert found["test"].sources == [source]
    assert found.manifest["skipped"] == [{"source": source, "reason": "é"}]
    assert found.frame == frame
    assert found.splits == ["test"]
    assert "é" in (tmp_path / "manifest.json").read_text()  # readable, not \u00e9


def test_a_damaged_shard_header_is_an_error(copy):
    """No changed byte of the header leads to a traceback, or to other frames."""
    shard, good = copy / "test.npy", (copy / "test.npy").read_bytes()
    there = open_dataset(copy)["test"][0]
    for place in range(128):
        flip = (1, 32, 255)[place % 3]
        shard.write_bytes(good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :])
        with suppress(SeqmodelError):
            np.testing.assert_array_equal(open_dataset(copy)["test"][0], there)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("skipped", "x", "skipped must be a list, not 'x'"),
        ("skipped", [{"source": 3}], "skipped[0].source must be text, not 3"),
        ("skipped", [["a", "b"]], "skipped[0] must be an object, not a list"),
        ("splits:valid:frames", ..., "splits.valid.frames is missing"),
        ("splits:valid:frames", 1e300, "splits.valid.frames must be a whole number from 5 to "),
        ("splits:valid:pieces", True, "splits.valid.pieces must be a whole number from 0 to "),
        ("splits:../../x", {"pieces": 1}, "splits has '../../x', not one of train, valid, "),
        ("media", 3, "media must be text, not 3"),
        ("media", "smell", "holds frames of an unknown medium: 'smell'"),
        ("frame", {}, "holds frames that are not valid music frames: frame.restrike is missing"),
        ("frame", None, "frame must be an object, not null"),
        ("frame:grid", {"steps_per_beat": -1}, "holds an impossible grid: "),
        ("frame:grid", {"steps_per_beat": True}, "holds an invalid grid: "),
        ("frame:grid", {"steps": 4}, "holds an invalid grid: "),
        ("frame:drums", "no", "frame.drums must be true or false, not 'no'"),
        ("frame:restrike", "open", "frame.restrike must be one of close, discard"),
    ],
)
def test_a_damaged_manifest_names_the_field(copy, path, value, says):
    """Each used to be a traceback, or to go unnoticed until something else failed on it."""
    file = copy / "manifest.json"
    manifest = json.loads(file.read_text())
    *parents, last = path.split(":")
    inner = manifest
    for name in parents:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    file.write_text(json.dumps(manifest))
    refused(lambda: open_dataset(copy), f"{file} is damaged: ", says, "run `seqmodel prepare`")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", '{"format": "seqmodel-data', "\x00", "[" * 3000, "\xff"),
        *('{"a": NaN}', '{"a": 1e999}', '{"version": ' + "1" * 5001 + "}", '{"format": null}'),
    ],
)
def test_a_manifest_of_other_or_extreme_json_is_a_one_line_error(copy, text):
    (copy / "manifest.json").write_text(text, encoding="latin-1")
    refused(lambda: open_dataset(copy), f"{copy / 'manifest.json'} is damaged: ")
    assert not DATASET_FOLDER.is_marked(copy)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"frames": 17', '"frames": "x"', "frames must be a whole number from 1 to "),
        ('"frames": 17', '"frames": 0', "frames must be a whole number from 1 to "),
        ('"frames": 17', f'"frames": {2**70}', "frames must be a whole number from 1 to "),
        ('"frames": 17', '"frames": 1e400', "1e400 is out of range"),
        ('"sha256": "', '"sha256": "0', "sha256 must be 64 hexadecimal digits"),
        ('"source": "train/3.mid"', '"source": null', "source must be text, not null"),
        (', "transposed": 0}', "", "Expecting ',' delimiter"),
        ('"sha256"', '"other"', "sha256 is missing"),
    ],
)
def test_a_damaged_index_names_line_and_field(copy, old, new, says):
    index = copy / "train.jsonl"
    lines = index.read_text().splitlines()
    assert old in lines[3]
    index.write_text("\n".join([*lines[:3], lines[3].replace(old, new, 1), *lines[4:]]) + "\n")
    damaged = f"{copy} is damaged: train.jsonl, line 4: {says}", "seqmodel prepare"
    refused(lambda: open_dataset(copy)["train"], *damaged)
    refused(open_dataset(copy).fingerprint, *damaged)


def test_an_index_that_is_not_the_shards_is_an_error(copy):
    index = copy / "train.jsonl"
    text = index.read_text()
    for changed in (text.partition("\n")[2], text.replace('"frames": 9', '"frames": 8', 1)):
        index.write_text(changed)
        refused(lambda: open_dataset(copy)["train"], copy)
    index.unlink()
    refused(lambda: open_dataset(copy)["train"], copy)
