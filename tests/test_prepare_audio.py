"""From recordings to a dataset: told from soundfile, soxr, hashlib and NumPy on files made here."""

import hashlib
import json
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_files import full_disk, tree

from seqmodel import recordings
from seqmodel.dataset import open_dataset
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.frames.audio import BLOCK
from seqmodel.frames.definitions import AudioFrames, AudioSettings, PianoRollFrames
from seqmodel.frames.grid import Grid
from seqmodel.prepare import prepare
from seqmodel.recordings import Moments, whole_frames

RATE = 8000
FLOATS = st.floats(-1, 1, width=32)


def record(path, samples=1000, *, seed=0, rate=RATE, channels=1, subtype="PCM_16", container=None):
    """A file of noise, no two seeds alike; returns its samples (N, channels) as soundfile does."""
    random = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = random.uniform(-0.9, 0.9, (samples, channels)) + 0.05
    soundfile.write(path, noise, rate, subtype=subtype, format=container)
    return soundfile.read(path, dtype="float32", always_2d=True)[0]


def pieces(out):
    """Source -> (split, samples in [-1, 1) as one array), of every piece of a dataset."""
    found = open_dataset(out)
    return {
        source: (name, frames.ravel())
        for name in found.splits
        for source, frames in zip(found[name].sources, found[name], strict=True)
    }


def split_by_hash(samples):
    """The rule: the first 32 bits of the SHA-256 of the 32-bit floats, 80:10:10."""
    digest = hashlib.sha256(np.asarray(samples, "<f4").tobytes()).hexdigest()
    share = int(digest[:8], 16) / 2**32
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


@pytest.fixture
def corpus(tmp_path):
    """Forty recordings of different lengths, mono and of 16 bits, without split folders."""
    for k in range(40):
        record(tmp_path / "corpus" / f"{k:02}.wav", 300 + 7 * k, seed=100 + k)
    return tmp_path / "corpus"


def test_16_bits_are_stored_as_they_are(tmp_path):
    """Guards against a sample shifted or scaled, and a remainder kept or too much dropped."""
    path = tmp_path / "train/a.wav"
    samples = record(path, 1009)
    manifest = prepare([str(path)], tmp_path / "out", AudioSettings(frame_size=20, context=50))
    assert manifest == json.loads((tmp_path / "out/manifest.json").read_text())
    dataset = open_dataset(tmp_path / "out")
    split = dataset["train"]
    assert dataset.frame.media == "audio"
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


def test_the_shard_is_read_by_memory_map_without_a_copy(tmp_path):
    """Hours of audio are more than there is memory."""
    record(tmp_path / "train/a.wav", 500, seed=1)
    samples = record(tmp_path / "train/b.wav", 700, seed=2)
    prepare([str(tmp_path / "train")], tmp_path / "out", AudioSettings())
    split = open_dataset(tmp_path / "out")["train"]
    stored = split.stored(1)
    assert (stored.dtype, stored.shape) == (np.int16, (700,))
    np.testing.assert_array_equal(stored, samples[:, 0] * 32768)
    assert isinstance(stored.base, np.memmap)
    assert not stored.flags.owndata
    assert not stored.flags.writeable


@pytest.mark.parametrize(
    ("how", "dtype"),
    [
        ({"subtype": "PCM_U8"}, "int16"),
        ({"subtype": "ULAW"}, "int16"),
        ({"subtype": "ALAW", "container": "AU"}, "int16"),
        ({"subtype": "PCM_16", "container": "FLAC"}, "int16"),
        ({"subtype": "PCM_16", "channels": 2}, "float32"),
        ({"subtype": "PCM_16", "rate": 11025}, "float32"),
        ({"subtype": "PCM_24"}, "float32"),
        ({"subtype": "FLOAT"}, "float32"),
        ({"subtype": "VORBIS", "container": "OGG"}, "float32"),
    ],
)
def test_samples_are_stored_in_16_bits_only_where_that_loses_nothing(tmp_path, how, dtype):
    record(tmp_path / "in/plain.wav", 300)
    samples = record(tmp_path / "in/other.wav", 800, seed=1, **how)
    manifest = prepare([str(tmp_path / "in")], tmp_path / "out", AudioSettings(rate=RATE))
    assert manifest["frame"]["dtype"] == dtype
    expected = samples.mean(axis=1)
    if "rate" in how:
        expected = soxr.resample(expected, how["rate"], RATE, quality="HQ")
    expected = expected[: len(expected) // 10 * 10]
    _, found = pieces(tmp_path / "out")[str(tmp_path / "in/other.wav")]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 if "rate" in how else 0)


def test_without_folders_the_content_decides_however_it_is_stored(corpus, tmp_path):
    """A file of 24 bits among others makes all of them floats, and must not move any."""
    prepare([str(corpus)], tmp_path / "int", AudioSettings())
    record(corpus / "fine.wav", 500, seed=99, subtype="PCM_24")
    prepare([str(corpus)], tmp_path / "float", AudioSettings())
    before, after = pieces(tmp_path / "int"), pieces(tmp_path / "float")
    assert open_dataset(tmp_path / "int").frame.dtype == "int16"
    assert open_dataset(tmp_path / "float").frame.dtype == "float32"
    assert len(after) == 41
    assert len({split for split, _ in before.values()}) == 3
    for source, (split, samples) in before.items():
        assert split == split_by_hash(samples) == after[source][0]
        np.testing.assert_array_equal(samples, after[source][1])


def test_the_standardisation_is_that_of_the_training_split(corpus, tmp_path):
    """Figures of valid must not depend on valid itself, nor on the order or size of blocks."""
    record(corpus / "long.wav", 5 * BLOCK + 123, seed=77)
    manifest = prepare([str(corpus)], tmp_path / "out", AudioSettings())
    train = open_dataset(tmp_path / "out")["train"]
    samples = np.concatenate([frames.ravel() for frames in train]).astype(np.float64)
    assert manifest["frame"]["mean"] == pytest.approx(samples.mean(), rel=1e-9)
    assert manifest["frame"]["deviation"] == pytest.approx(samples.std(), rel=1e-9)


@pytest.mark.parametrize("folder", ["train", "test"])
def test_silence_can_still_be_divided_by_its_deviation(tmp_path, folder):
    """A deviation of 0 would make every standardised sample nan."""
    (tmp_path / folder).mkdir()
    soundfile.write(tmp_path / folder / "a.wav", np.zeros(100), RATE)
    prepare([str(tmp_path / folder)], tmp_path / "out", AudioSettings())
    frame = open_dataset(tmp_path / "out").frame
    assert (frame.mean, frame.deviation) == (0.0, 1.0)


@given(st.lists(arrays(np.float32, st.integers(0, 20), elements=FLOATS), max_size=6))
def test_moments_are_numpys_whatever_the_blocks(blocks):
    """Guards the merging of means: wrong weights would standardise by the last file alone."""
    moments = Moments()
    for block in blocks:
        moments.add(block)
    values = np.concatenate([*blocks, np.empty(0)])
    assert moments.count == len(values)
    if len(values):
        assert moments.mean == pytest.approx(values.mean(), abs=1e-12)
        assert moments.deviation == pytest.approx(values.std() or 1.0, rel=1e-6, abs=1e-9)


def test_moments_do_not_cancel():
    """The mean of squares less the square of the mean would be 0 here, or below."""
    values = 1000 + np.random.default_rng(0).uniform(-1e-4, 1e-4, 100_000)
    moments = Moments()
    for block in np.array_split(values, 37):
        moments.add(block)
    assert moments.deviation == pytest.approx(values.std(), rel=1e-6)


@given(
    arrays(np.float32, st.integers(0, 200), elements=FLOATS),
    st.lists(st.integers(0, 200), max_size=8),
    st.integers(1, 30),
)
def test_whole_frames_are_all_samples_but_the_last_few(samples, cuts, size):
    blocks = list(whole_frames(np.split(samples, sorted(cuts)), size))
    assert all(len(block) and len(block) % size == 0 for block in blocks)
    joined = np.concatenate([*blocks, np.empty(0, np.float32)])
    np.testing.assert_array_equal(joined, samples[: len(samples) // size * size])


@given(arrays(np.int16, st.integers(1, 20).map(lambda t: 10 * t)))
def test_encoded_samples_decode(samples):
    """The round trip of every 16-bit value, the lowest and the highest among them."""
    values = samples.astype(np.float32) / 32768
    for dtype in ("int16", "float32"):
        frame = AudioFrames(RATE, dtype=dtype)
        frames = frame.decode(frame.encode(values))
        np.testing.assert_array_equal(frames, values.reshape(-1, 10))
    np.testing.assert_array_equal(AudioFrames(RATE, dtype="int16").encode(values), samples)


def test_clips_of_a_recording_are_all_of_it_and_in_one_split(tmp_path):
    """Half a sentence in train and the other half in valid would flatter every figure."""
    whole = {}
    for k in range(25):
        path = tmp_path / "in" / f"{k:02}.wav"
        whole[str(path)] = record(path, 3000 + 1111 * k, seed=k)[:, 0]
    settings = AudioSettings(frame_size=12, clip_seconds=0.5)
    manifest = prepare([str(tmp_path / "in")], tmp_path / "out", settings)
    assert manifest["clip_seconds"] == 0.5
    assert manifest["also_in_another_split"] == []
    found = pieces(tmp_path / "out")
    clip = 4000 // 12 * 12
    for source, samples in whole.items():
        kept = samples[: len(samples) // 12 * 12]
        count = -(-len(kept) // clip)
        names = [source] if count == 1 else [f"{source}#piece/{k}" for k in range(count)]
        mine = [found.pop(name) for name in names]
        assert {split for split, _ in mine} == {split_by_hash(kept)}
        assert {len(samples) for _, samples in mine[:-1]} <= {clip}
        np.testing.assert_array_equal(np.concatenate([samples for _, samples in mine]), kept)
    assert found == {}
    hashes = {
        line["source"]: line["sha256"]
        for split in ("train", "valid", "test")
        for line in map(json.loads, (tmp_path / f"out/{split}.jsonl").read_text().splitlines())
    }
    for source, (_, samples) in pieces(tmp_path / "out").items():
        assert hashes[source] == hashlib.sha256(samples.astype("<f4").tobytes()).hexdigest()


def test_a_clip_never_moves_a_recording(corpus, tmp_path):
    """Guards against splits that change with --clip-seconds: the test set would leak."""
    prepare([str(corpus)], tmp_path / "whole", AudioSettings())
    prepare([str(corpus)], tmp_path / "clips", AudioSettings(clip_seconds=0.02))
    whole = {source: split for source, (split, _) in pieces(tmp_path / "whole").items()}
    for source, (split, _) in pieces(tmp_path / "clips").items():
        assert split == whole[source.split("#")[0]]


def test_identical_recordings_never_straddle_splits(tmp_path):
    """A loose copy joins its twin in a folder, whatever its own hash, its format and remainder."""
    for k in range(20):
        samples = record(tmp_path / f"in/test/{k}.wav", 400, seed=k)
        (tmp_path / "in/zz").mkdir(exist_ok=True)
        longer = np.concatenate([samples[:, 0], [0.25] * (k % 10)])
        soundfile.write(tmp_path / f"in/zz/{k}.flac", longer, RATE)
    manifest = prepare([str(tmp_path / "in")], tmp_path / "out", AudioSettings())
    assert manifest["repeated_pieces"] == 20
    assert manifest["also_in_another_split"] == []
    assert manifest["split_by"] == {"folder": 20, "content_hash": 20}
    assert {split for split, _ in pieces(tmp_path / "out").values()} == {"test"}


def test_pieces_that_folders_put_into_two_splits_are_reported(tmp_path):
    for folder in ("train", "valid"):
        record(tmp_path / "in" / folder / "a.wav")
    manifest = prepare([str(tmp_path / "in")], tmp_path / "out", AudioSettings())
    assert manifest["also_in_another_split"] == [str(tmp_path / "in/valid/a.wav")]


def test_the_rate_is_the_sources_own_where_they_agree(tmp_path):
    record(tmp_path / "in/a.wav", rate=16000)
    manifest = prepare([str(tmp_path / "in")], tmp_path / "out", AudioSettings())
    assert manifest["frame"]["rate"] == 16000
    record(tmp_path / "in/b.wav", rate=8000)
    with pytest.raises(SeqmodelError) as caught:
        prepare([str(tmp_path / "in")], tmp_path / "other", AudioSettings())
    said = str(caught.value)
    assert f"{tmp_path}/in/a.wav has 16,000" in said
    assert f"{tmp_path}/in/b.wav has 8,000" in said
    assert "--rate" in said
    assert not (tmp_path / "other").exists()


def test_rerunning_gives_the_same_bytes(corpus, tmp_path):
    record(corpus / "r.wav", 9000, rate=11025, channels=2)
    settings = AudioSettings(rate=RATE, clip_seconds=0.1)
    prepare([str(corpus)], tmp_path / "out", settings)
    first = tree(tmp_path / "out")
    with pytest.raises(SeqmodelError, match="add --force"):
        prepare([str(corpus)], tmp_path / "out", settings)
    prepare([str(corpus)], tmp_path / "out", settings, force=True)
    assert tree(tmp_path / "out") == first


def test_a_recording_that_waits_on_disk_is_the_same(corpus, tmp_path, monkeypatch):
    """Guards the way of long recordings, which others of these tests are too short to take."""
    prepare([str(corpus)], tmp_path / "memory", AudioSettings(clip_seconds=0.02))
    monkeypatch.setattr(recordings, "KEPT_IN_MEMORY", 100)
    monkeypatch.setattr(recordings, "COPIED_AT_ONCE", 64)
    prepare([str(corpus)], tmp_path / "disk", AudioSettings(clip_seconds=0.02))
    memory, disk = tree(tmp_path / "memory"), tree(tmp_path / "disk")
    assert {p.name: data for p, data in memory.items()} == {p.name: d for p, d in disk.items()}


def test_memory_does_not_grow_with_a_recording(tmp_path, monkeypatch):
    """Guards against a two-hour recording held as floats, which is 1.3 GB."""
    record(tmp_path / "a.wav", 40 * 44100, rate=44100, channels=2)  # 7 MB as one of floats
    monkeypatch.setattr(recordings, "KEPT_IN_MEMORY", 100_000)
    tracemalloc.start()
    prepare([str(tmp_path / "a.wav")], tmp_path / "out", AudioSettings())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


def test_bad_files_are_skipped_counted_and_explained(corpus, tmp_path):
    """One bad file among thousands must not end the work, nor vanish without a word."""
    (corpus / "text.wav").write_text("Dear Sir or Madam")
    (corpus / "empty.flac").touch()
    (corpus / "gone.ogg").symlink_to(corpus / "nowhere.ogg")
    (corpus / "folder.mp3").mkdir()
    record(corpus / "tiny.wav", 9)
    infinite = np.zeros(500)
    infinite[123] = np.inf
    soundfile.write(corpus / "inf.wav", infinite, RATE, subtype="DOUBLE")
    manifest = prepare([str(corpus)], tmp_path / "out", AudioSettings())
    bad = ("empty.flac", "folder.mp3", "gone.ogg", "inf.wav", "text.wav", "tiny.wav")
    assert [entry["source"] for entry in manifest["skipped"]] == [str(corpus / x) for x in bad]
    reasons = {Path(entry["source"]).name: entry["reason"] for entry in manifest["skipped"]}
    assert reasons["tiny.wav"] == "is shorter than a frame of 10 samples at 8,000 Hz"
    assert reasons["inf.wav"] == "holds inf at 0.015 s (sample 123)"
    assert sum(counts["pieces"] for counts in manifest["splits"].values()) == 40
    for name in sorted(set(bad) - {"folder.mp3"}):  # which alone is a folder to look into
        with pytest.raises(SeqmodelError) as caught:
            prepare([str(corpus / name)], tmp_path / "alone", AudioSettings())
        assert str(caught.value) == f"{corpus / name}: {reasons[name]}"
    with pytest.raises(SeqmodelError, match=str(corpus / "empty.flac")):
        prepare([str(corpus)], tmp_path / "alone", AudioSettings(), strict=True)
    assert not (tmp_path / "alone").exists()


def test_what_was_forgiven_stands_in_the_manifest(corpus, tmp_path):
    cut = corpus / "cut.wav"
    samples = record(cut, 1000, seed=50)
    cut.write_bytes(cut.read_bytes()[: 44 + 2 * 405])
    manifest = prepare([str(corpus)], tmp_path / "out", AudioSettings())
    (entry,) = manifest["repaired"]
    assert entry["source"] == str(cut)
    assert entry["repairs"] == [
        "its header counts 2,000 bytes of which 810 are there; read as far as it goes"
    ]
    np.testing.assert_array_equal(pieces(tmp_path / "out")[str(cut)][1], samples[:400, 0])


def test_when_no_file_can_be_opened_the_first_is_named(tmp_path):
    """Guards against an error about rates where there is none to speak of."""
    for name in "ab":
        (tmp_path / f"{name}.wav").write_text("text")
    names = [str(tmp_path / f"{name}.wav") for name in "ab"]
    with pytest.raises(SeqmodelError, match=f"none of the 2 files .* the first, {names[0]}: is no"):
        prepare(names, tmp_path / "out", AudioSettings())
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    """Nor is a full disk a reason to skip a file: the next would not fit either."""
    record(tmp_path / "a.wav", 30_000)
    for kept in (100, 2**22):
        monkeypatch.setattr(recordings, "KEPT_IN_MEMORY", kept)
        with full_disk(500), pytest.raises(SeqmodelError, match=f"cannot write {tmp_path / 'out'}"):
            prepare([str(tmp_path / "a.wav")], tmp_path / "out", AudioSettings())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.wav"]


def test_music_and_audio_do_not_mix(tmp_path):
    record(tmp_path / "in/b.wav")
    (tmp_path / "in/a.mid").touch()
    for frame in (AudioSettings(), PianoRollFrames(Grid.of_beats(4))):
        with pytest.raises(SeqmodelError) as caught:
            prepare([str(tmp_path / "in")], tmp_path / "out", frame)
        assert f"{tmp_path}/in/b.wav is audio, {tmp_path}/in/a.mid is music" in str(caught.value)
    with pytest.raises(SeqmodelError, match=r"b\.wav is audio, not music"):
        prepare([str(tmp_path / "in/b.wav")], tmp_path / "out", PianoRollFrames(Grid.of_beats(4)))


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"rate": 0}, "--rate"),
        ({"rate": 10**7}, "--rate"),
        ({"frame_size": 0}, "--frame"),
        ({"context": -1}, "--context"),
        ({"context": 10**6}, "--context"),
        ({"clip_seconds": 0.0}, "--clip-seconds"),
        ({"clip_seconds": float("nan")}, "--clip-seconds"),
        ({"clip_seconds": 0.001}, "--clip-seconds"),
    ],
)
def test_settings_out_of_range_are_usage_errors(tmp_path, wrong, option):
    record(tmp_path / "a.wav")
    with pytest.raises(UsageError, match=option) as caught:
        prepare([str(tmp_path / "a.wav")], tmp_path / "out", AudioSettings(**wrong))
    assert "\n" not in str(caught.value)


def test_damaged_frames_in_a_manifest_are_an_error(tmp_path):
    """Whatever stands there, nothing is divided by 0 and nothing has a traceback."""
    record(tmp_path / "train/a.wav")
    prepare([str(tmp_path / "train")], tmp_path / "out", AudioSettings())
    file = tmp_path / "out/manifest.json"
    good = json.loads(file.read_text())
    wrong = [{name: value} for name in good["frame"] for value in (None, "x", 0, -1, [], True)]
    wrong += [{"deviation": 0.0}, {"mean": float("nan")}, {"deviation": float("inf")}, {"more": 1}]
    wrong += [{"dtype": "float32"}, {"frame_size": 13}]  # not what the shard holds
    for values in wrong:
        file.write_text(json.dumps(good | {"frame": good["frame"] | values}))
        with pytest.raises(SeqmodelError, match="is damaged"):
            open_dataset(tmp_path / "out")["train"]
    for media in ("music", "video", None, 3):
        file.write_text(json.dumps(good | {"media": media}))
        with pytest.raises(SeqmodelError, match="is damaged"):
            open_dataset(tmp_path / "out")["train"]


def test_real_speech_is_kept_to_the_sample(shared_data, tmp_path):
    folder = shared_data / "speech/fsdd/valid"
    manifest = prepare([str(folder)], tmp_path / "out", AudioSettings())
    assert (manifest["frame"]["rate"], manifest["frame"]["dtype"]) == (RATE, "int16")
    assert manifest["skipped"] == manifest["repaired"] == []
    split = open_dataset(tmp_path / "out")["valid"]
    assert len(split) == 300
    for source, frames in zip(split.sources, split, strict=True):
        samples, _ = soundfile.read(source, dtype="float32")
        np.testing.assert_array_equal(frames.ravel(), samples[: len(samples) // 10 * 10])


def test_all_awkward_audio_goes_through_without_a_traceback(shared_data, tmp_path, capfd):
    folder = shared_data / "awkward/audio"
    manifest = prepare([str(folder)], tmp_path / "out", AudioSettings(rate=RATE))
    files = [file for file in folder.rglob("*") if file.is_file()]
    used = sum(counts["pieces"] for counts in manifest["splits"].values())
    assert used + len(manifest["skipped"]) == len(files)
    assert used > 15
    for entry in manifest["skipped"]:
        assert "\n" not in entry["reason"]
        with pytest.raises(SeqmodelError) as caught:
            prepare([entry["source"]], tmp_path / "alone", AudioSettings(rate=RATE))
        assert str(caught.value) == f"{entry['source']}: {entry['reason']}"
    for file in files:  # at its own rate
        with suppress(SeqmodelError):
            prepare([str(file)], tmp_path / "own", AudioSettings(frame_size=1), force=True)
    assert capfd.readouterr() == ("", "")
