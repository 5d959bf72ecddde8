"""Recordings to a dataset, checked with soundfile, soxr, hashlib and NumPy on files made here."""

import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from noise import RATE, make_corpus, pieces, prepared, record
from refusals import refused
from test_files import full_disk

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.audio import corpus as recordings
from seqmodel.media.audio.frames import AudioSettings
from seqmodel.media.audio.reader import BLOCK
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus")


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
    says = "none of the 2 files ", f" for example, {names[0]}: cannot"
    refused(partial(prepared, names, tmp_path / "deep/er/out", AudioSettings()), *says)
    assert sorted(map(str, tmp_path.iterdir())) == names


def test_when_no_file_can_be_used_the_usual_reason_is_given(tmp_path):
    """Reasons that differ in numbers count as one; that of the first file may be another."""
    record(tmp_path / "a.wav", 3)  # too short for a frame
    for name, at in ("b.wav", 20), ("c.wav", 130):
        samples = np.zeros(200)
        samples[at] = np.inf
        soundfile.write(tmp_path / name, samples, 8000, "FLOAT")
    one = partial(prepared, tmp_path, tmp_path / "out", AudioSettings())
    refused(one, f" for example, {tmp_path / 'b.wav'}: holds inf")


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
