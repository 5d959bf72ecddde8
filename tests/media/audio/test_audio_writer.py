"""Recordings on their way to a dataset, and samples to files and pipes, read back by others."""

import io
import math
import os
import wave

import numpy as np
import pytest
import scipy.io.wavfile
import soundfile
from allocation import peak_of
from noise import files, make_corpus, pieces, prepared, record, split_by_hash
from refusals import refused

from seqmodel.errors import UsageError
from seqmodel.media.audio import corpus as recordings
from seqmodel.media.audio.frames import AudioFrames, AudioSettings
from seqmodel.media.audio.sampling import AudioSampling, write_audio
from seqmodel.media.samples import SampleRequest
from seqmodel.media.sound import MAX_SAMPLES, check_encoder, write_sound


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


FRAME = AudioFrames(11_025, frame_size=7)
LEVELS = np.random.default_rng(1).integers(-32768, 32768, (60, 7)).astype(np.int16)
LEVELS[0, :4] = [-32768, 32767, 0, -1]


def blocks(levels=LEVELS):
    return np.array_split((levels / 32768).astype(np.float32).reshape(-1), 5)


def written(kind, frame=FRAME, samples=None):
    buffer = io.BytesIO()
    write_audio(kind, buffer, blocks() if samples is None else [samples], frame, len(LEVELS))
    return buffer.getvalue()


def test_three_readers_agree_on_the_wav():
    """Guards against a header that only lenient players read, and samples off by one level."""
    data = written("wav")
    assert len(data) == 44 + LEVELS.nbytes
    with wave.open(io.BytesIO(data)) as file:
        assert file.getparams()[:5] == (1, 2, 11_025, LEVELS.size, "NONE")
        assert file.readframes(LEVELS.size) == LEVELS.astype("<i2").tobytes()
    rate, samples = scipy.io.wavfile.read(io.BytesIO(data))
    assert rate == 11_025
    np.testing.assert_array_equal(samples, LEVELS.reshape(-1))
    info = soundfile.info(io.BytesIO(data))
    assert (info.format, info.subtype, info.channels) == ("WAV", "PCM_16", 1)
    assert "should be" not in info.extra_info  # how it marks a wrong size


def test_samples_between_and_beyond_the_levels_become_the_nearest():
    """Guards resampled primers: samples that overshoot must not wrap to the other sign."""
    samples = np.array([1.0, 1.7, -1.0, -3.0, 0.4 / 32768, 0.6 / 32768, -0.6 / 32768], np.float32)
    expected = [32767, 32767, -32768, -32768, 0, 1, -1]
    for kind in ("wav", "flac"):
        data = io.BytesIO(written(kind, samples=np.tile(samples, 60)))
        assert soundfile.read(data, dtype="int16")[0][:7].tolist() == expected


@pytest.mark.parametrize("kind", ["wav", "raw", "npy"])
def test_a_pipe_has_every_block_before_the_next_is_drawn(kind):
    """Guards `| aplay`: a buffer in between, or a seek, would keep it waiting."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    whole, width = written(kind), 4 if kind == "npy" else 2
    sent = len(whole) - width * LEVELS.size
    got = b""

    def drawn():
        nonlocal sent, got
        for block in blocks():
            if len(got) < sent:  # reading an empty pipe is an error
                got += os.read(reader, 10**6)
            assert len(got) == sent
            sent += width * len(block)
            yield block

    with os.fdopen(writer, "wb") as file:
        write_audio(kind, file, drawn(), FRAME, len(LEVELS))
        got += os.read(reader, 10**6)
    os.close(reader)
    assert got == whole


def test_the_sizes_in_the_header_of_the_shortest_and_the_longest_wav():
    """Guards the first and last lengths whose sizes fit into the header."""
    for length, sizes in ((1, (38, 2)), (MAX_SAMPLES, (2**32 - 2, 2**32 - 38))):
        buffer = io.BytesIO()
        write_audio("wav", buffer, [], AudioFrames(8000, frame_size=1), length)
        data = buffer.getvalue()
        assert tuple(int.from_bytes(data[k : k + 4], "little") for k in (4, 40)) == sizes


RATE = 44_100
TONE = (0.3 * np.sin(np.arange(5 * RATE) * 0.05)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "container", "error"),
    [("wav", "WAV", 0), ("flac", "FLAC", 0), ("ogg", "OGG", 0.01), ("mp3", "MP3", 0.01)],
)
def test_every_kind_reads_back(kind, container, error):
    """Guards the rate, the length and the sound of each format; two of them are lossy."""
    buffer = io.BytesIO()
    write_sound(kind, buffer, np.array_split(TONE, 7), RATE, len(TONE))
    info = soundfile.info(io.BytesIO(buffer.getvalue()))
    assert (info.format, info.samplerate, info.channels) == (container, RATE, 1)
    assert (info.subtype == "PCM_16", info.frames) == (error == 0, len(TONE))
    sound, _ = soundfile.read(io.BytesIO(buffer.getvalue()))
    assert len(sound) == len(TONE)
    middle = slice(RATE, 4 * RATE)  # lossy ones are rough where the tone starts and stops
    assert np.abs(sound - np.rint(TONE * 32_768) / 32_768)[middle].max() <= error


def test_a_libsndfile_that_cannot_encode_is_reported_beforehand(monkeypatch):
    """Guards against a traceback from libsndfile 1.0 once everything has been sampled."""
    new = soundfile.SoundFile

    def old(*given, format, **options):
        if format != "FLAC":
            raise soundfile.LibsndfileError(1)
        return new(*given, format=format, **options)

    monkeypatch.setattr(soundfile, "SoundFile", old)
    monkeypatch.setattr(soundfile, "__libsndfile_version__", "1.0.31")
    for kind in ("wav", "raw", "npy", "png", "flac"):
        check_encoder(kind)
    for kind in ("ogg", "mp3"):
        with pytest.raises(UsageError, match=rf"libsndfile 1\.0\.31 cannot write {kind} .*wav"):
            check_encoder(kind)


@pytest.mark.parametrize(("kind", "before"), [("raw", [0, 20, 40]), ("wav", [0, 0, 0])])
def test_only_sound_without_a_header_is_written_before_its_model_has_ended_it(kind, before):
    request, file, written = SampleRequest(kind, length=9, longest_piece=9), io.BytesIO(), []

    def drawn():
        for _ in range(3):
            written.append(file.tell())
            yield np.zeros((1, 10), np.float32)

    AudioSampling(AudioFrames(8000, 10), request).write(file, drawn())
    assert written == before


@pytest.mark.parametrize(("rate", "advised"), [(24_000, False), (44_100, True)])
def test_distorted_sound_at_a_high_rate_is_advised_a_lower_one(rate, advised):
    """An album that clips after a minute of training at 44.1 kHz hardly does at 16 kHz."""
    sampling = AudioSampling(AudioFrames(rate, 10), SampleRequest("wav", length=1))
    hint = sampling.write(io.BytesIO(), [np.ones((1, 10), np.float32)]).hint
    assert hint.startswith("100% of the samples at full scale: train longer")
    assert ("longer, prepare with --rate 16000 or, if" in hint) == advised


@pytest.mark.parametrize(
    ("size", "length", "louder"), [(0.32, 800, "10 dB"), (0.3, 800, ""), (0.32, 799, "")]
)
def test_sound_far_louder_than_train_is_remarked_on_though_little_of_it_clips(size, length, louder):
    """A piece may be louder than train is on the whole, but not by 10 dB for a second."""
    frame = AudioFrames(8000, 10, deviation=0.1)
    tone = np.resize([size, -size], (length, 10)).astype(np.float32)
    sampling = AudioSampling(frame, SampleRequest("wav", length=length))
    hint = sampling.write(io.BytesIO(), [tone]).hint
    assert hint == (louder and f"{louder} louder than train: train longer")
