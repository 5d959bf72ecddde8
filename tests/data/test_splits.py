"""Which split a source goes to: the same one whatever the options of `prepare`."""

import hashlib
import io
import json

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_tracks import midi, note, tempo
from noise import RATE, make_corpus, places, prepared, record

from seqmodel.data.dataset import open_dataset
from seqmodel.data.prepare import Placer, hash_split
from seqmodel.media.audio import corpus as recordings
from seqmodel.media.audio.frames import AudioSettings
from seqmodel.media.definitions import Work
from seqmodel.media.music.corpus import content_of
from seqmodel.media.music.frames import PianoRollFrames, is_valid, states
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score

WAYS = {
    "as it is": PianoRollFrames(Grid.of_beats(2)),
    "coarse": PianoRollFrames(Grid.of_beats(1), restrike="discard"),
    "fine": PianoRollFrames(Grid.of_beats(8), drums=True),
    "seconds": PianoRollFrames(Grid.of_seconds("0.1"), transpose_to_c=True, onsets=True),
}
NOTES = st.lists(
    st.tuples(
        *(st.integers(0, 40), st.integers(1, 9), st.integers(40, 80)), st.sampled_from([0, 1, 9])
    ),
    min_size=1,
    max_size=12,
)


def tune(notes, division=96, *, tracks=1, microseconds=500_000):
    """Notes (on, length, pitch, channel) as MIDI; times in quarter beats of division / 4 ticks."""
    step, parts = division // 4, [[tempo(0, microseconds)], *([] for _ in range(tracks - 1))]
    for k, (on, length, pitch, channel) in enumerate(notes):
        parts[k % tracks] += note(step * on, step * (on + length), pitch, channel)
    return midi(parts, division=division)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sixty tunes with restruck notes, drums and notes between the steps of a coarse grid."""
    folder = tmp_path_factory.mktemp("corpus")
    random = np.random.default_rng(5)
    for k in range(60):
        columns = [random.integers(*of, 30) for of in ((0, 64), (1, 12), (40, 70))]
        columns.append(random.choice([0, 1, 9], 30, p=[0.6, 0.3, 0.1]))
        file = tune(np.transpose(columns).tolist(), microseconds=300_000 + 7_000 * k)
        file.save(folder / f"{k:02}.mid")
    return folder


def test_music_keeps_its_split_on_every_grid_and_by_every_rule(corpus, tmp_path):
    """A piece tested on one grid and trained on another would leak through --init-from."""
    found = {}
    for name, frame in WAYS.items():
        manifest = prepared(corpus, tmp_path / name, frame)
        assert manifest["split_rule"] == "source content"
        assert "moved" not in manifest  # as none is empty
        found[name] = places(tmp_path / name)
    first = found["as it is"]
    assert len(first) == 60
    assert set(first.values()) == {"train", "valid", "test"}
    assert all(others == first for others in found.values())


def test_audio_keeps_its_split_at_every_rate_and_frame(tmp_path):
    corpus = make_corpus(tmp_path / "corpus")
    for path in sorted(corpus.iterdir())[::4]:  # a copy stays with the original
        samples, _ = soundfile.read(path, dtype="int16")
        soundfile.write(path.with_name(f"{path.stem}-b.flac"), samples[:, None].repeat(2, 1), RATE)
    record(corpus / "stereo.wav", 1003, seed=3, channels=2)
    ways = [
        AudioSettings(),
        AudioSettings(rate=4000, clip_seconds=0.01),
        AudioSettings(rate=11_025, context=7, frame_size=17),
    ]
    found = []
    for k, way in enumerate(ways):
        manifest = prepared(corpus, tmp_path / str(k), way)
        assert manifest["also_in_another_split"] == []
        assert manifest["repeated_pieces"] >= 10
        found.append(places(tmp_path / str(k)))
    assert len(found[0]) == 51
    assert set(found[0].values()) == {"train", "valid", "test"}
    assert all(others == found[0] for others in found)


def content(file):
    buffer = io.BytesIO()
    file.save(file=buffer)
    return content_of(read_score(buffer.getvalue()))


@settings(max_examples=60)
@given(notes=NOTES, data=st.data())
def test_a_piece_encoded_in_two_ways_has_one_content(notes, data):
    """Guards copies of a piece from another sequencer: other ticks, tempo, order and tracks."""
    # One note per pitch and channel: which one a note-off ends cannot depend on track order.
    notes = list({note[2:]: note for note in notes}.values())
    other = data.draw(st.permutations(notes))
    division = data.draw(st.sampled_from([4, 96, 480, 1024]))
    tracks = data.draw(st.integers(1, 3))
    again = tune(other, division, tracks=tracks, microseconds=731_000)
    assert content(again) == content(tune(notes))


@settings(max_examples=60)
@given(notes=NOTES, which=st.integers(0, 3), place=st.integers(0, 11))
def test_a_changed_note_changes_the_content(notes, which, place):
    """Guards against an incomplete hash: different pieces would share a split needlessly."""
    notes = [(20 * k, n, pitch, channel) for k, (_, n, pitch, channel) in enumerate(notes)]
    place %= len(notes)
    changed = list(notes[place])
    changed[which] = 9 - changed[3] // 9 * 9 if which == 3 else changed[which] + 1
    other = [*notes[:place], tuple(changed), *notes[place + 1 :]]
    assert content(tune(other)) != content(tune(notes))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["", "test"]))))
def test_equal_works_share_a_split_and_all_others_go_by_their_content(works):
    """Works equal in source or frames follow the first one, unless a folder decides."""
    placer, split_of = Placer(), {}
    for number, frames, folder in works:
        source = f"{number * 429_496_729:08x}"
        keys = ("content", number), ("frames", frames)
        twins = [split_of[key] for key in keys if key in split_of]
        split = placer.place(Work("a", source, f"{frames}", None, [], list), folder or None)
        assert split == (folder or next(iter(twins), hash_split(source)))
        for key in keys:
            split_of.setdefault(key, split)


# ---- where the hash leaves a split empty: few works are cut by time, else whole works move -------

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
    return hashlib.sha256(split.frame.canonical(split.read_rows(k))).hexdigest()


@pytest.mark.parametrize("clip", [None, 0.31])
def test_one_recording_is_cut_by_time(tmp_path, monkeypatch, clip):
    """Guards the place of each sample, also where blocks and clips do not end with parts; mean and
    deviation are those of train alone."""
    monkeypatch.setattr(recordings, "COPY_SAMPLES", 77)
    levels = np.rint(record(tmp_path / "a.wav", 20_007)[:, 0].astype(float) * 32768)
    settings = AudioSettings(clip_seconds=clip)
    manifest = prepared(tmp_path / "a.wav", tmp_path / "out", settings)
    assert manifest["split_by"]["time"] == sum(c["pieces"] for c in manifest["splits"].values())
    assert manifest["split_rule"].startswith("time")
    dataset = open_dataset(tmp_path / "out")
    for name, (begin, end) in spans(2000, 2).items():
        split = dataset[name]
        stored = np.concatenate([split.read_rows(k) for k in range(len(split))])
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
    held[0, 40] = 1
    (tmp_path / "in").mkdir()
    for k in range(3):
        held[k, 60 + k] = 1
        np.save(tmp_path / f"in/{k}.npy", held)
    prepared(tmp_path / "in", tmp_path / "out", frame)
    dataset = open_dataset(tmp_path / "out")
    for name, (begin, end) in spans(200, 1).items():
        assert dataset[name].lengths.tolist() == [end - begin] * 3
        for frames in dataset[name]:
            np.testing.assert_array_equal(frames[:, 40], 1)
            if onsets:
                assert is_valid(frames)
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


@pytest.mark.parametrize(("count", "split_by"), [(12, None), (4, "piece")])
def test_whole_tunes_move_where_there_are_enough(tmp_path, count, split_by):
    """Guards against moving pieces needlessly: only the two with hashes nearest the border."""
    hashes = tunes(tmp_path / "in", count)
    frame = PianoRollFrames(Grid.of_beats(2))
    manifest = prepared(tmp_path / "in", tmp_path / "out", frame, split_by=split_by)
    *_, second, first = sorted(hashes, key=hashes.get)
    dataset = open_dataset(tmp_path / "out")
    assert (dataset["valid"].sources, dataset["test"].sources) == ([first], [second])
    assert manifest["splits"]["train"]["pieces"] == count - 2
    assert manifest["split_by"] == {"folder": 0, "content_hash": count}
    moves = {(move["source"], move["to"]) for move in manifest["moved"]}
    assert moves == {(first, "valid"), (second, "test")}


def test_a_recording_too_short_to_cut_goes_to_train(tmp_path):
    record(tmp_path / "a.wav", 150)
    manifest = prepared(tmp_path / "a.wav", tmp_path / "out", AudioSettings())
    assert [manifest["splits"][name]["pieces"] for name in SPLITS] == [1, 0, 0]
