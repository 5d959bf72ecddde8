"""Splits that the hash leaves empty: few works are cut by time, else whole works move."""

import hashlib
import json

import numpy as np
import pytest
from noise import RATE, prepared, record

from seqmodel.data.dataset import open_dataset
from seqmodel.media.audio import corpus as recordings
from seqmodel.media.audio.frames import AudioSettings
from seqmodel.media.music.frames import PianoRollFrames, possible, states
from seqmodel.media.music.grid import Grid

SPLITS = ("train", "valid", "test")


def spans(frames, context):
    """The first frame of each part and the one after its last, by the published rule."""
    gap = max(frames // 100, context)
    cuts = frames * 8 // 10, frames * 9 // 10
    return {
        "train": (0, cuts[0]),
        "valid": (cuts[0] + gap, cuts[1]),
        "test": (cuts[1] + gap, frames),
    }


def hash_of(split, k):
    return hashlib.sha256(split.frame.canonical(split.stored(k))).hexdigest()


@pytest.mark.parametrize("clip", [None, 0.31])
def test_one_recording_is_cut_by_time(tmp_path, monkeypatch, clip):
    """Guards the place of each sample, also where blocks and clips do not end with parts; no sample
    is in two parts, and mean and deviation are those of train alone."""
    monkeypatch.setattr(recordings, "COPIED_AT_ONCE", 77)
    levels = np.rint(record(tmp_path / "a.wav", 20_007)[:, 0].astype(float) * 32768)
    settings = AudioSettings(clip_seconds=clip)
    manifest = prepared(tmp_path / "a.wav", tmp_path / "out", settings)
    assert manifest["split_by"]["time"] == sum(c["pieces"] for c in manifest["splits"].values())
    assert manifest["split_rule"].startswith("time")
    dataset = open_dataset(tmp_path / "out")
    for name, (begin, end) in spans(2000, 2).items():
        split = dataset[name]
        stored = np.concatenate([split.stored(k) for k in range(len(split))])
        np.testing.assert_array_equal(stored, levels[begin * 10 : end * 10])
        lines = (tmp_path / f"out/{name}.jsonl").read_text().splitlines()
        for k, line in enumerate(map(json.loads, lines)):
            assert line["sha256"] == hash_of(split, k)
            assert line["frames"] == split.lengths[k]
        assert len({*split.sources}) == len(split)
    train = levels[:16_000] / 32768
    assert dataset.frame.mean == pytest.approx(train.mean(), abs=1e-9)
    assert dataset.frame.deviation == pytest.approx(train.std(), rel=1e-6)
    if clip is None:
        assert dataset["test"].sources == [f"{tmp_path}/a.wav#frames/1820-2000"]


@pytest.mark.parametrize("onsets", [False, True])
def test_a_few_tunes_are_cut_by_time(tmp_path, onsets):
    """The same for rolls; with onsets, a note held over a cut is struck after it."""
    frame = PianoRollFrames(Grid.of_beats(2), onsets=onsets)
    held = np.zeros((200, 88), np.uint8)
    held[:, 40] = 2 if onsets else 1
    held[0] = np.minimum(held[0], 1)
    for k in range(3):
        held[k, 60 + k] = 1
        (tmp_path / "in").mkdir(exist_ok=True)
        np.save(tmp_path / f"in/{k}.npy", held)
    prepared(tmp_path / "in", tmp_path / "out", frame)
    dataset = open_dataset(tmp_path / "out")
    for name, (begin, end) in spans(200, 1).items():
        assert dataset[name].lengths.tolist() == [end - begin] * 3
        for frames in dataset[name]:
            np.testing.assert_array_equal(frames[:, 40], 1)
            if onsets:
                assert possible(frames)
                assert states(frames)[:3, 40].tolist() == [1, 2, 2]
    again = prepared(tmp_path / "in", tmp_path / "again", frame)
    assert again == dataset.manifest


def tunes(folder, count):
    """Write rolls whose hashes all give train; returns source -> hash."""
    folder.mkdir()
    found, k = {}, 0
    while len(found) < count:
        roll = np.zeros((30, 88), np.uint8)
        roll[:, 20] = 1
        roll[: k % 29 + 1, 30 + k // 29] = 1
        digest = hashlib.sha256(np.packbits(roll, axis=1).tobytes()).hexdigest()
        if int(digest[:8], 16) / 16**8 < 0.8:
            np.save(folder / f"{k:03}.npy", roll)
            found[str(folder / f"{k:03}.npy#piece/0")] = digest
        k += 1
    return found


@pytest.mark.parametrize(("count", "split_by"), [(12, None), (12, "piece"), (4, "piece")])
def test_whole_tunes_move_where_there_are_enough(tmp_path, count, split_by):
    """Guards against moving pieces needlessly: only the two with hashes nearest the border."""
    hashes = tunes(tmp_path / "in", count)
    frame = PianoRollFrames(Grid.of_beats(2))
    manifest = prepared(tmp_path / "in", tmp_path / "out", frame, split_by=split_by)
    *_, second, first = sorted(hashes, key=hashes.get)
    assert [open_dataset(tmp_path / "out")[name].sources for name in SPLITS[1:]] == [
        [first],
        [second],
    ]
    assert manifest["splits"]["train"]["pieces"] == count - 2
    assert manifest["split_by"] == {"folder": 0, "content_hash": count}
    assert {(move["source"], move["to"]) for move in manifest["moved"]} == {
        (first, "valid"),
        (second, "test"),
    }


def test_no_split_changes_where_none_is_empty(tmp_path):
    """Guards existing datasets: their splits, and what their manifests say."""
    tunes(tmp_path / "in", 3)
    (tmp_path / "folders").mkdir()
    for name in SPLITS:
        tunes(tmp_path / "folders" / name, 1)
    frame = PianoRollFrames(Grid.of_beats(2))
    manifest = prepared(tmp_path / "folders", tmp_path / "out", frame, split_by="time")
    assert {name: c["pieces"] for name, c in manifest["splits"].items()} == dict.fromkeys(SPLITS, 1)
    for k in range(60):
        roll = np.zeros((30, 88), np.uint8)
        roll[: k % 29 + 1, k] = 1
        np.save(tmp_path / f"in/more-{k}.npy", roll)
    manifest = prepared(tmp_path / "in", tmp_path / "whole", frame)
    assert manifest["split_by"] == {"folder": 0, "content_hash": 63}
    assert manifest["split_rule"] == "source content"
    assert "moved" not in manifest
    cut = prepared(tmp_path / "in", tmp_path / "cut", frame, split_by="time")
    assert {name: c["pieces"] for name, c in cut["splits"].items()} == dict.fromkeys(SPLITS, 63)


def test_a_recording_too_short_to_cut_goes_to_train(tmp_path):
    record(tmp_path / "a.wav", 150, rate=RATE)
    manifest = prepared(tmp_path / "a.wav", tmp_path / "out", AudioSettings())
    assert [manifest["splits"][name]["pieces"] for name in SPLITS] == [1, 0, 0]
