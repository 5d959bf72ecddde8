"""Audio files to mono samples, checked with soundfile, soxr and NumPy on files written here."""

import os
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from seqmodel.errors import SourceError
from seqmodel.media.audio import reader as audio
from seqmodel.media.audio.reader import BLOCK, Recording

RATE = 8000


def voice(samples, channels=1, seed=0):
    """A varying signal (samples, channels) below full scale, different in each channel."""
    random = np.random.default_rng(seed)
    tone = np.sin(np.arange(samples)[:, None] * (0.05 + 0.02 * np.arange(channels)))
    return 0.5 * tone + 0.1 * random.uniform(-1, 1, (samples, channels))


def write(path, samples, rate=RATE, **how):
    soundfile.write(path, samples, rate, **how)
    return path


def read(path, rate=None):
    """(samples, remarks) of a whole file."""
    with Recording(path) as recording:
        blocks = list(recording.mono(rate or recording.rate))
        return np.concatenate(blocks), recording.remarks


def reason(path, rate=None):
    with pytest.raises(SourceError) as caught:
        read(path, rate)
    assert "\n" not in str(caught.value)
    return str(caught.value)


KINDS = [
    ("a.wav", "WAV", subtype)
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "IMA_ADPCM")
]
KINDS += [("a.flac", "FLAC", s) for s in ("PCM_S8", "PCM_16", "PCM_24")]
KINDS += [("a.aiff", "AIFF", "PCM_16"), ("a.au", "AU", "ALAW"), ("a.caf", "CAF", "PCM_24")]
KINDS += [("a.ogg", "OGG", "VORBIS"), ("a.opus", "OGG", "OPUS"), ("a.mp3", "MP3", None)]


@pytest.mark.parametrize(("name", "container", "subtype"), KINDS)
def test_samples_of_every_format_match_soundfile(tmp_path, name, container, subtype):
    """Guards against samples lost, doubled or scaled at block boundaries."""
    path = tmp_path / name
    channels = 1 if subtype in ("PCM_16", "ULAW", "VORBIS") and container != "FLAC" else 2
    write(path, voice(3 * BLOCK + 77, channels), format=container, subtype=subtype)
    expected = soundfile.read(path, dtype="float32", always_2d=True)[0].mean(axis=1)
    samples, remarks = read(path)
    assert samples.dtype == np.float32
    # soundfile.read seeks first, after which the MP3 decoder rounds differently.
    np.testing.assert_allclose(samples, expected, rtol=0, atol=2e-7 if container == "MP3" else 0)
    assert remarks == []


@pytest.mark.parametrize("rates", [(44100, 8000), (8000, 44100), (768_000, 8000), (48000, 16000)])
def test_resampling_keeps_a_tone_and_does_not_depend_on_blocks(tmp_path, rates):
    """Guards against a filter restarted at each block, a delay left in, or the tail cut off."""
    rate, wanted = rates
    length = max(rate // 2, 5 * BLOCK + 3)
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(length) / rate)
    path = write(tmp_path / "a.wav", tone, rate, subtype="FLOAT")
    samples, _ = read(path, wanted)
    assert len(samples) == pytest.approx(length * wanted / rate, abs=1)
    whole = soxr.resample(tone.astype(np.float32), rate, wanted, quality="HQ")
    np.testing.assert_allclose(samples, whole[: len(samples)], atol=1e-6)
    inner = slice(len(samples) // 4, -len(samples) // 4)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(len(samples)) / wanted)
    np.testing.assert_allclose(samples[inner], expected[inner], atol=1e-3)


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf"), (1e300, "inf")])
def test_a_non_finite_sample_is_reported_with_its_place(tmp_path, value, shown):
    """One nan would make every figure of a training run nan, hours later."""
    samples, place = voice(3 * BLOCK, 2), 2 * BLOCK + 5
    samples[place, 1] = value
    said = reason(write(tmp_path / "a.wav", samples, subtype="DOUBLE"))
    assert said == f"holds {shown} at {place / RATE:.3f} s (sample {place:,})"


@pytest.mark.parametrize("suffix", ["wav", "aiff", "au", "w64", "flac", "mp3"])
def test_a_truncated_file_is_read_as_far_as_it_goes_and_reported(tmp_path, suffix, capfd):
    """Downloads break off; half a recording is worth keeping, but not silently."""
    path = tmp_path / f"a.{suffix}"
    samples = voice(8 * BLOCK)
    subtype = None if suffix == "mp3" else "PCM_16"
    write(path, samples, subtype=subtype, format="W64" if suffix == "w64" else None)
    whole, _ = read(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 5])
    part, remarks = read(path)
    assert len(whole) // 2 <= len(part) < len(whole) * 0.62
    np.testing.assert_array_equal(part[:-2000], whole[: len(part) - 2000])
    assert len(remarks) == 1
    assert "\n" not in remarks[0]
    assert capfd.readouterr() == ("", "")


def flac_parts(path):
    """(marker and metadata, frames) of a FLAC file's bytes."""
    data = path.read_bytes()
    place, last = 4, False
    while not last:
        last = data[place] >= 128
        place += 4 + int.from_bytes(data[place + 1 : place + 4], "big")
    return data[:place], data[place:]


def test_a_file_that_changes_its_format_ends_there(tmp_path):
    """soundfile.read fails on it."""
    path, other = tmp_path / "a.flac", tmp_path / "b.flac"
    whole = voice(4 * BLOCK)
    write(path, whole, subtype="PCM_16")
    write(other, voice(4 * BLOCK, 2), subtype="PCM_16")
    head, frames = flac_parts(path)
    head = bytearray(head)
    head[21:26] = (head[21] & 0xF0, 0, 0, 0, 0)  # number of samples: unknown
    path.write_bytes(head + frames + flac_parts(other)[1])
    samples, (remark,) = read(path)
    assert 3 * BLOCK <= len(samples) <= 4 * BLOCK
    np.testing.assert_allclose(samples, whole[: len(samples), 0], atol=1 / 32768)
    assert remark.startswith(f"breaks off after {len(samples) / RATE:.3f} s (")


def wav(data=b"\0" * 2000, rate=RATE, channels=1, bits=16, claimed=None):
    """A WAV file's bytes, whatever they claim."""
    align = channels * bits // 8
    head = struct.pack("<HHIIHH", 1, channels, rate, min(rate * align, 2**32 - 1), align, bits)
    size = len(data) if claimed is None else claimed
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def test_rates_too_far_apart_are_refused(tmp_path):
    """One sample at 1 Hz becomes 8000 at 8 kHz: a small file would fill the disk."""
    path = tmp_path / "a.wav"
    for rate in (32, 768_000):
        path.write_bytes(wav(rate=rate))
        assert len(read(path, 8000)[0]) == pytest.approx(1000 * 8000 / rate, abs=1)
    for rate in (1, 31):
        path.write_bytes(wav(rate=rate))
        told = f"has {rate} samples per second, too far from 8,000 to be resampled"
        assert reason(path, 8000) == told
    path.write_bytes(wav(rate=2_000_000_000))
    assert reason(path) == "claims 2,000,000,000 samples per second"


def test_a_recording_over_the_length_limit_is_refused_while_it_is_read(tmp_path, monkeypatch):
    """A FLAC file of a megabyte can hold weeks of silence, too much for any disk."""
    monkeypatch.setattr(audio, "MAX_SAMPLES", 3 * BLOCK)
    path = write(tmp_path / "a.flac", np.zeros(3 * BLOCK), subtype="PCM_16")
    assert len(read(path)[0]) == 3 * BLOCK
    write(path, np.zeros(3 * BLOCK + 1), subtype="PCM_16")
    assert "use a lower --rate" in reason(path)


def test_files_that_are_not_audio_are_refused_with_a_reason_and_none_is_left_open(tmp_path):
    """A folder of thousands of bad files would run out of descriptors."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    path = write(tmp_path / "a.wav", voice(500))
    assert len(read(path)[0]) == 500
    (tmp_path / "folder.wav").mkdir()
    os.mkfifo(tmp_path / "pipe.wav")
    assert reason(tmp_path / "gone.wav") == "no such file or directory"
    assert reason(tmp_path / "folder.wav") == "is a directory"
    assert reason(tmp_path / "pipe.wav") == "is not a file"  # without waiting for a writer
    for data in (b"", b"Dear Sir or Madam", wav()[:30], b"RIFF" * 100, bytes(1000)):
        path.write_bytes(data)
        assert reason(path).startswith("cannot be read as audio (")
    path.write_bytes(wav(data=b""))
    assert reason(path) == "is empty"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "aiff", "au", "caf", "mp3"])
def test_damaged_files_are_read_or_refused_and_print_nothing(tmp_path, suffix, capfd):
    """Whatever bytes are wrong: finite samples, or an error with a reason. libmpg123 writes its
    complaints to stderr, bypassing Python."""
    random = np.random.default_rng(1)
    path = tmp_path / f"a.{suffix}"
    write(path, voice(6000, 2))
    good = path.read_bytes()
    for k in range(24):
        data = bytearray(good)
        places = random.integers(0, 200 if k % 2 else len(data), 1 + k % 5)
        data[places[0]] ^= 1 << k % 8
        for place in places[1:]:
            data[place] = random.integers(256)
        if k % 4 == 3:
            data[places[0] :] = random.bytes(600) + data[places[0] + 600 :] * (k % 8 == 3)
        path.write_bytes(data)
        with suppress(SourceError):
            samples, _ = read(path, 8000)
            assert np.isfinite(samples).all()
    assert capfd.readouterr() == ("", "")
