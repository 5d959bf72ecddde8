"""Recordings on their way to a dataset: cut into clips, measured, and never held in memory."""

import math

import numpy as np
import pytest
from allocation import peak_of
from noise import files, make_corpus, pieces, prepared, record, split_by_hash
from refusals import refused

from seqmodel.errors import UsageError
from seqmodel.media.audio import corpus as recordings
from seqmodel.media.audio.frames import AudioSettings


def test_clips_of_a_recording_cover_it_and_share_a_split(tmp_path):
    """Half a sentence in train and the other half in valid would flatter every figure."""
    whole = {}
    for k in range(25):
        path = tmp_path / "in" / f"{k:02}.wav"
        whole[str(path)] = record(path, 3000 + 1111 * k, seed=k)[:, 0]
    how = AudioSettings(frame_size=12, clip_seconds=0.5)
    manifest = prepared(tmp_path / "in", tmp_path / "out", how)
    assert manifest["clip_seconds"] == 0.5
    assert manifest["also_in_another_split"] == []
    found = pieces(tmp_path / "out")
    clip = 4000 // 12 * 12
    for source, samples in whole.items():
        kept = samples[: len(samples) // 12 * 12]
        count = -(-len(kept) // clip)
        names = [source] if count == 1 else [f"{source}#piece/{k}" for k in range(count)]
        mine = [found.pop(name) for name in names]
        assert {split for split, _ in mine} == {split_by_hash(samples.tobytes())}
        assert {len(samples) for _, samples in mine[:-1]} <= {clip}
        np.testing.assert_array_equal(np.concatenate([samples for _, samples in mine]), kept)
    assert found == {}


def test_a_clip_shorter_than_a_frame_is_a_usage_error(tmp_path):
    """Such clips would have no frames, and there would be no end of them."""
    record(tmp_path / "a.wav")
    short = AudioSettings(clip_seconds=0.001)
    with pytest.raises(UsageError, match=r"--clip-seconds .* is shorter than a frame of 10"):
        prepared(tmp_path / "a.wav", tmp_path / "out", short)
    assert not (tmp_path / "out").exists()


def test_a_recording_that_waits_on_disk_is_the_same(tmp_path, monkeypatch):
    """Guards the code path of long recordings; those of the other tests are too short for it."""
    corpus = make_corpus(tmp_path / "corpus")
    prepared(corpus, tmp_path / "memory", AudioSettings(clip_seconds=0.02))
    monkeypatch.setattr(recordings, "MAX_MEMORY_BYTES", 100)
    monkeypatch.setattr(recordings, "COPY_SAMPLES", 64)
    prepared(corpus, tmp_path / "disk", AudioSettings(clip_seconds=0.02))
    assert files(tmp_path / "memory") == files(tmp_path / "disk")


def test_memory_does_not_grow_with_a_recording(tmp_path, monkeypatch):
    """Guards against holding a two-hour recording as floats, which takes 1.3 GB."""
    record(tmp_path / "a.wav", 40 * 44100, rate=44100, channels=2)  # 7 MB as mono floats
    monkeypatch.setattr(recordings, "MAX_MEMORY_BYTES", 100_000)
    a_file, out = tmp_path / "a.wav", tmp_path / "out"
    assert peak_of(lambda: prepared(a_file, out, AudioSettings())) < 4e6


WRONG = {"rate": (0, 10**7), "frame_size": (0,), "context": (-1, 10**6)}
WRONG["clip_seconds"] = (0.0, math.nan, math.inf)


@pytest.mark.parametrize(("name", "value"), [(name, one) for name in WRONG for one in WRONG[name]])
def test_settings_out_of_range_are_usage_errors(name, value):
    """Guards against sizes that fail, or are allocated, only when the files are read."""
    option = "--" + name.removesuffix("_size").replace("_", "-")
    refused(lambda: AudioSettings(**{name: value}), option)
