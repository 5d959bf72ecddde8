"""Recordings to a dataset, checked on files made here; which split a source goes to."""

import hashlib
import io
import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_tracks import midi, note, tempo
from noise import RATE, make_corpus, pieces, places, prepared, record
from refusals import refused
from test_files import full_disk

from seqmodel.data.dataset import DatasetWriter, open_dataset
from seqmodel.data.prepare import Placer, hash_split
from seqmodel.errors import SeqmodelError
from seqmodel.media.audio import corpus as recordings
from seqmodel.media.audio.frames import AudioFrames, AudioSettings
from seqmodel.media.audio.reader import BLOCK
from seqmodel.media.definitions import Work
from seqmodel.media.music.corpus import content_of
from seqmodel.media.music.frames import PianoRollFrames, is_valid, states
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus")


def test_16_bit_samples_are_stored_unchanged(tmp_path):
    """Guards against shifting or scaling samples, keeping a remainder, or dropping too much."""
    path = tmp_path / "train/a.wav"
    samples = record(path, 1009)
    manifest = prepared(path.parent, tmp_path / "out", AudioSettings(frame_size=20, context=50))
    assert manifest == json.loads((tmp_path / "out/manifest.json").read_text())
    dataset = open_dataset(tmp_path / "out")
    split = dataset["train"]
    assert dataset.frame.medium == "audio"
    assert (dataset.frame.rate, dataset.frame.dtype) == (RATE, "int16")
    assert (split.frame.frame_size, split.frame.context) == (20, 50)
    np.testing.assert_array_equal(split[0], samples[:1000].reshape(50, 20))
    assert split[0].dtype == np.float32
    assert split.lengths.tolist() == [50]
    shard = np.load(tmp_path / "out/train.npy")
    np.testing.assert_array_equal(shard, soundfile.read(path, dtype="int16")[0][:1000])
    (line,) = map(json.loads, (tmp_path / "out/train.jsonl").read_text().splitlines())
    digest = hashlib.sha256(samples[:1000].astype("<f4").tobytes()).hexdigest()
    assert line == {"source": str(path), "sha256": digest, "frames": 50}


@pytest.mark.parametrize(
    ("how", "rounded"),
    [
        ({"subtype": "PCM_U8"}, 0),
        ({"subtype": "ULAW"}, 0),
        ({"subtype": "ALAW", "container": "AU"}, 0),
        ({"subtype": "PCM_16", "container": "FLAC"}, 0),
        ({"subtype": "IMA_ADPCM"}, 0),
        ({"subtype": "PCM_16", "channels": 2}, 1),
        ({"subtype": "PCM_16", "rate": 11025}, 1),
        ({"subtype": "PCM_24"}, 1),
        ({"subtype": "FLOAT"}, 1),
        ({"subtype": "VORBIS", "container": "OGG"}, 1),
    ],
)
def test_all_samples_become_16_bit_levels(tmp_path, how, rounded):
    """Bits per sample are those of 16-bit levels: a sample between two levels would have none."""
    record(tmp_path / "in/plain.wav", 300)
    samples = record(tmp_path / "in/other.wav", 800, seed=1, **how)
    settings = AudioSettings(rate=RATE)
    manifest = prepared(tmp_path / "in", tmp_path / "out", settings, split_by="piece")
    assert manifest["frame"]["dtype"] == "int16"
    assert manifest["rounded_to_16_bits"] == rounded
    expected = samples.mean(axis=1)
    if "rate" in how:
        expected = soxr.resample(expected, how["rate"], RATE, quality="HQ")
    expected = expected[: len(expected) // 10 * 10]
    # Loud noise overshoots when it is resampled, or decoded from a lossy format.
    assert bool(manifest["repaired"]) == (np.abs(expected) > 1).any()
    _, found = pieces(tmp_path / "out")[str(tmp_path / "in/other.wav")]
    levels = np.floor(expected.astype(np.float64) * 32768 + 0.5).clip(-32768, 32767)
    if "rate" in how:  # soxr in one go differs in the last bits, which may round to a neighbour
        assert np.abs(found * 32768 - levels).max() <= 1
        assert (found * 32768 == levels).mean() > 0.99
    else:
        tie = expected * 32768 % 1 == 0.5
        np.testing.assert_array_equal((found * 32768)[~tie], levels[~tie])
        assert np.abs(found * 32768 - levels).max() <= 1


def test_samples_beyond_full_scale_are_clipped_and_counted_and_other_scales_refused(tmp_path):
    """Guards against clipping that goes unreported, and counting a full-scale 1.0 as clipped; an
    amplitude of 20000 clips to nothing but end levels, which score 2.5 "bits per sample"."""
    sound = np.linspace(-0.5, 0.5, 400)
    sound[[3, 50, 399]] = (1.5, -2.25, 1.0)
    (tmp_path / "train").mkdir()
    soundfile.write(tmp_path / "train/a.wav", sound, RATE, subtype="FLOAT")
    for k, scale in enumerate((20_000.0, 128.0, 4.1, 1e25)):
        loud = scale * np.sin(np.arange(1000))
        soundfile.write(tmp_path / f"train/loud{k}.wav", loud, RATE, subtype="FLOAT")
    manifest = prepared(tmp_path / "train", tmp_path / "out", AudioSettings())
    repair = "clipped 2 samples beyond full scale"
    assert manifest["repaired"] == [{"source": f"{tmp_path}/train/a.wav", "repairs": [repair]}]
    stored = np.load(tmp_path / "out/train.npy")
    assert stored[[3, 50, 399]].tolist() == [32767, -32768, 32767]
    np.testing.assert_array_equal(stored[100:300], np.rint(sound[100:300] * 32768))
    advice = "where full scale is 1: divide them by their full scale, such as 32,768"
    for k, entry in enumerate(manifest["skipped"]):
        assert Path(entry["source"]).stem == f"loud{k}"
        assert re.match(f"holds samples up to .*{advice}$", entry["reason"])
    assert k == 3


def test_an_older_dataset_of_floats_is_still_read(tmp_path, recordings):
    """Version 1 stored float32 where 16 bits would have lost precision."""
    frame = AudioFrames(RATE, 10, 20, "float32", 0.01, 0.2)
    samples = [np.float32(piece) / np.float32(30000) for piece in recordings["train"]]
    with DatasetWriter(tmp_path, frame) as writer:
        for k, piece in enumerate(samples):
            writer.add("train", f"{k}.wav", [piece.astype("<f4")])
        writer.finish(frame, {"clip_seconds": None, "skipped": []})
    dataset = open_dataset(tmp_path)
    dataset.check_content()
    assert dataset.frame == frame
    for piece, frames in zip(samples, dataset["train"], strict=True):
        np.testing.assert_array_equal(frames.ravel(), piece)


def test_the_standardisation_is_that_of_the_training_split(corpus, tmp_path):
    """Figures on valid must not depend on valid itself, nor on the order or size of blocks; a
    deviation of 0 would make every standardised sample nan, one of 1e-17 blow up all else."""
    record(corpus / "long.wav", 5 * BLOCK + 123, seed=77)
    manifest = prepared(corpus, tmp_path / "out", AudioSettings())
    train = open_dataset(tmp_path / "out")["train"]
    samples = np.concatenate([frames.ravel() for frames in train]).astype(np.float64)
    assert manifest["frame"]["mean"] == pytest.approx(samples.mean(), rel=1e-9)
    assert manifest["frame"]["deviation"] == pytest.approx(samples.std(), rel=1e-9)
    for folder, level, mean in (("train", 0, 0), ("train", 3277, 3277 / 32768), ("test", 500, 0)):
        (tmp_path / folder).mkdir(exist_ok=True)
        soundfile.write(tmp_path / folder / "a.wav", np.full(1340, level, np.int16), RATE)
        prepared(tmp_path / folder, tmp_path / "out", AudioSettings(), force=True)
        frame = open_dataset(tmp_path / "out").frame
        assert (frame.mean, frame.deviation) == (mean, 1.0)


def test_the_longest_pause_is_one_of_train_before_a_sound(tmp_path):
    """Not what is quiet after the last, nor one of valid; one over several blocks is one."""
    random = np.random.default_rng(0)
    pauses = {"train/a": (0.2, 0.06, 0.5), "train/b": (0.4,), "valid/c": (0.7,)}
    for name, seconds in pauses.items():
        sound = random.normal(0, 0.2, 63_500)  # a block of 65,536 samples ends in the 0.5 s
        parts = list[np.ndarray]()
        for one in seconds:
            parts += [random.uniform(-2e-3, 2e-3, round(one * RATE)), sound]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        samples = np.concatenate([*parts, np.zeros(RATE)])
        soundfile.write(tmp_path / f"{name}.wav", samples, RATE, subtype="PCM_16")
    stated = prepared(tmp_path, tmp_path / "out", AudioSettings(frame_size=1))["frame"]
    frame = open_dataset(tmp_path / "out").frame
    levels = np.abs(soundfile.read(tmp_path / "train/a.wav", dtype="int16")[0].astype(int))
    quiet = "".join("01"[int(level <= frame.pause_level)] for level in levels)
    longest = max(map(len, quiet.rstrip("1").split("0")))
    assert stated["longest_pause"] == frame.longest_pause == longest
    assert longest == pytest.approx(0.5 * RATE, abs=100)


def test_the_rate_is_the_sources_own_where_they_agree(tmp_path):
    record(tmp_path / "in/a.wav", rate=16000)
    manifest = prepared(tmp_path / "in", tmp_path / "out", AudioSettings())
    assert manifest["frame"]["rate"] == 16000
    record(tmp_path / "in/b.wav", rate=8000)
    other = partial(prepared, tmp_path / "in", tmp_path / "other", AudioSettings())
    refused(other, f"{tmp_path}/in/a.wav has 16,000", f"{tmp_path}/in/b.wav has 8,000", "--rate")
    assert not (tmp_path / "other").exists()


def test_bad_files_are_skipped_or_repaired_counted_and_explained(corpus, tmp_path):
    """One bad file among thousands must neither abort the work nor vanish silently."""
    (corpus / "text.wav").write_text("Dear Sir or Madam")
    (corpus / "empty.flac").touch()
    (corpus / "gone.ogg").symlink_to(corpus / "nowhere.ogg")
    (corpus / "folder.mp3").mkdir()
    record(corpus / "tiny.wav", 9)
    infinite = np.zeros(500)
    infinite[123] = np.inf
    soundfile.write(corpus / "inf.wav", infinite, RATE, subtype="DOUBLE")
    cut = corpus / "cut.wav"
    samples = record(cut, 1000, seed=50)
    cut.write_bytes(cut.read_bytes()[: 44 + 2 * 405])
    calls = []
    manifest = prepared(
        corpus, tmp_path / "out", AudioSettings(), progress=lambda *done: calls.append(done)
    )
    assert calls == [(k, 47) for k in range(1, 48)]
    bad = ("empty.flac", "folder.mp3", "gone.ogg", "inf.wav", "text.wav", "tiny.wav")
    assert [entry["source"] for entry in manifest["skipped"]] == [str(corpus / x) for x in bad]
    reasons = {Path(entry["source"]).name: entry["reason"] for entry in manifest["skipped"]}
    assert reasons["tiny.wav"] == "is shorter than a frame of 10 samples at 8,000 Hz"
    assert reasons["inf.wav"] == "holds inf at 0.015 s (sample 123)"
    assert sum(counts["pieces"] for counts in manifest["splits"].values()) == 41
    repair = "its header claims 2,000 bytes but 810 are there; read as far as it goes"
    assert manifest["repaired"] == [{"source": str(cut), "repairs": [repair]}]
    np.testing.assert_array_equal(pieces(tmp_path / "out")[str(cut)][1], samples[:400, 0])
    alone = tmp_path / "alone"
    for name in sorted(set(bad) - {"folder.mp3"}):  # given alone, it is a folder to search
        one = partial(prepared, corpus / name, alone, AudioSettings())
        assert refused(one) == f"{corpus / name}: {reasons[name]}"
    strict = partial(prepared, corpus, alone, AudioSettings(), strict=True)
    refused(strict, corpus / "empty.flac")
    assert not alone.exists()


def test_when_no_file_can_be_opened_the_first_is_named(tmp_path):
    """Guards against an error about rates when no file states one."""
    names = [str(tmp_path / f"{name}.wav") for name in "ab"]
    for name in names:
        Path(name).write_text("text")
    says = "none of the 2 files ", f" the first, {names[0]}: cannot"
    refused(partial(prepared, names, tmp_path / "deep/er/out", AudioSettings()), *says)
    assert sorted(map(str, tmp_path.iterdir())) == names


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    """Nor does it make `prepare` skip the file: the next would not fit either."""
    record(tmp_path / "a.wav", 30_000)
    for kept in (100, 2**22):
        monkeypatch.setattr(recordings, "MAX_MEMORY_BYTES", kept)
        with full_disk(500):
            write = partial(prepared, tmp_path / "a.wav", tmp_path / "out", AudioSettings())
            refused(write, f"cannot write {tmp_path / 'out'}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.wav"]


def test_damaged_frames_in_a_manifest_are_an_error(tmp_path):
    """Whatever the values, there is no division by 0 and no traceback."""
    record(tmp_path / "train/a.wav")
    prepared(tmp_path / "train", tmp_path / "out", AudioSettings())
    file = tmp_path / "out/manifest.json"
    good = json.loads(file.read_text())
    wrong = [{name: value} for name in good["frame"] for value in (None, "x", 0, -1, [], True)]
    wrong += [{"deviation": 0.0}, {"mean": float("nan")}, {"deviation": float("inf")}, {"more": 1}]
    wrong += [{"longest_pause": 0}, {"longest_pause": True}]
    wrong += [{"dtype": "float32"}, {"frame_size": 13}]  # not what the shard holds
    changed = [{"frame": good["frame"] | values} for values in wrong]
    for values in (*changed, *({"media": media} for media in ("music", "video", None, 3))):
        file.write_text(json.dumps(good | values))
        refused(lambda: open_dataset(tmp_path / "out")["train"], "is damaged")


def test_music_and_audio_do_not_mix_but_a_stray_array_is_skipped(tmp_path):
    """A labels.npy next to the recordings used to fail the whole folder with "not both"."""
    folder, music = tmp_path / "in", PianoRollFrames(Grid.of_beats(4))
    for k in range(3):
        record(folder / f"{k}.wav", 500, seed=k)
    np.save(folder / "labels.npy", np.arange(3))
    (skipped,) = prepared(folder, tmp_path / "out", AudioSettings())["skipped"]
    reason = "is not audio, unlike the other files"
    assert skipped == {"source": f"{folder}/labels.npy", "reason": reason}
    others = partial(prepared, folder, tmp_path / "others")
    refused(partial(others, AudioSettings(), strict=True), "labels.npy: is not audio")
    refused(partial(others, music), "0.wav is audio, not music")
    for k in range(3):  # now the recordings are in the minority
        np.save(folder / f"{k}.npy", np.eye(4, 88))
    refused(partial(others, AudioSettings()), "not both")
    (folder / "0.mid").touch()
    for frame in (AudioSettings(), music):
        refused(partial(others, frame), f"{folder}/0.wav is audio, {folder}/0.mid is music")


def test_all_awkward_audio_goes_through_without_a_traceback(shared_data, tmp_path, capfd):
    folder = shared_data / "awkward/audio"
    manifest = prepared(folder, tmp_path / "out", AudioSettings(rate=RATE))
    files = [file for file in folder.rglob("*") if file.is_file()]
    used = sum(counts["pieces"] for counts in manifest["splits"].values())
    assert used + len(manifest["skipped"]) == len(files)
    assert used > 15
    for entry in manifest["skipped"]:
        alone = partial(prepared, [entry["source"]], tmp_path / "alone", AudioSettings(rate=RATE))
        assert refused(alone) == f"{entry['source']}: {entry['reason']}"
    for file in files:  # at its own rate
        with suppress(SeqmodelError):
            prepared(file, tmp_path / "own", AudioSettings(frame_size=1), force=True)
    assert capfd.readouterr() == ("", "")


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
def songs(tmp_path_factory):
    """Sixty tunes with restruck notes, drums and notes between the steps of a coarse grid."""
    folder = tmp_path_factory.mktemp("songs")
    random = np.random.default_rng(5)
    for k in range(60):
        columns = [random.integers(*of, 30) for of in ((0, 64), (1, 12), (40, 70))]
        columns.append(random.choice([0, 1, 9], 30, p=[0.6, 0.3, 0.1]))
        file = tune(np.transpose(columns).tolist(), microseconds=300_000 + 7_000 * k)
        file.save(folder / f"{k:02}.mid")
    return folder


def test_music_keeps_its_split_on_every_grid_and_by_every_rule(songs, tmp_path):
    """A piece tested on one grid and trained on another would leak through --init-from."""
    found = {}
    for name, frame in WAYS.items():
        manifest = prepared(songs, tmp_path / name, frame)
        assert manifest["split_rule"] == "source content"
        assert "moved" not in manifest  # as none is empty
        found[name] = places(tmp_path / name)
    first = found["as it is"]
    assert len(first) == 60
    assert set(first.values()) == {"train", "valid", "test"}
    assert all(others == first for others in found.values())


def test_audio_keeps_its_split_at_every_rate_and_frame(tmp_path):
    songs = make_corpus(tmp_path / "songs")
    for path in sorted(songs.iterdir())[::4]:  # a copy stays with the original
        samples, _ = soundfile.read(path, dtype="int16")
        soundfile.write(path.with_name(f"{path.stem}-b.flac"), samples[:, None].repeat(2, 1), RATE)
    record(songs / "stereo.wav", 1003, seed=3, channels=2)
    ways = [
        AudioSettings(),
        AudioSettings(rate=4000, clip_seconds=0.01),
        AudioSettings(rate=11_025, context=7, frame_size=17),
    ]
    found = []
    for k, way in enumerate(ways):
        manifest = prepared(songs, tmp_path / str(k), way)
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
