"""Audio files to mono samples, checked with soundfile, soxr and NumPy; also where headers lie."""

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
from seqmodel.media.audio.layout import View
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


def assert_read(data, path, expected, *remarks, atol=0.0):
    """That a file of these bytes holds these samples, and with what remarks."""
    path.write_bytes(data)
    found, said = read(path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    assert said == [*remarks]


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


@pytest.mark.parametrize("channels", [1, 2, 6, 200])
def test_channels_that_cancel_are_reported(tmp_path, channels):
    """The mean of an antiphase recording is silence, which a model would be trained on."""
    tone, path = voice(2 * BLOCK), tmp_path / "a.wav"
    for factors in ([1.0], [0.9], [0.9, 0.0], [0.9, -0.1]):  # mono, and what is no cause for alarm
        assert read(write(path, tone * np.resize(factors, channels)))[1] == []
    if channels > 1:
        samples, remarks = read(write(path, tone * np.resize([0.5, -0.5], channels)))
        assert np.abs(samples).max() < 1e-4
        assert remarks == [
            "mixed to mono, though its channels cancel each other: keep only one of them"
        ]


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
    """Whatever bytes are wrong; libmpg123 writes its complaints to stderr, bypassing Python."""
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


LAYOUTS = {
    "wav": ("WAV", "PCM_16"),
    "aiff": ("AIFF", "PCM_16"),
    "au": ("AU", "PCM_16"),
    "caf": ("CAF", "PCM_16"),
    "w64": ("W64", "PCM_16"),
    "rf64": ("RF64", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", None),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
}
PCM = ("wav", "aiff", "au", "caf", "w64", "rf64")

ID3V1 = b"TAG" + b"A title".ljust(30, b"\0") + b"An artist".ljust(91, b" ") + b"1999"
ID3V2 = b"ID3\3\0\0\0\0\2\0" + b"TIT2\0\0\0\5\0\0\0abcd" + bytes(256 - 15)
FOOTED = b"ID3\4\0\x10\0\0\2\0" + ID3V2[10:] + b"3DI\4\0\x10\0\0\2\0"
APE = b"".join(
    b"APETAGEX" + struct.pack("<4I8x", 2000, 50, 1, flags) + body
    for flags, body in ((0xA0000000, struct.pack("<2I", 4, 0) + b"Title\0name"), (0x80000000, b""))
)
BEHIND = {
    "ID3v1": ID3V1,
    "APEv2": APE,
    "Lyrics3": b"LYRICSBEGININD0000200000019LYRICS200" + ID3V1,
    "zeros": bytes(5000),
    "a byte": b"\0",
    "junk": np.random.default_rng(0).bytes(3000),
    "a page": b"<html>404</html>\n" * 5,
}


def made(path, samples, **how):
    container, subtype = LAYOUTS[path.suffix[1:]]
    write(path, samples, format=container, subtype=subtype, **how)
    return path.read_bytes()


@pytest.mark.parametrize("kind", LAYOUTS)
def test_what_surrounds_the_sound_loses_no_sample_and_is_none(tmp_path, kind):
    """A FLAC with an ID3v1 tag, as rippers make them, was refused, or lost its last second."""
    path = tmp_path / f"a.{kind}"
    for samples in (300, 2 * BLOCK, 2 * BLOCK + 77):
        data = made(path, voice(samples))
        whole, remarks = read(path)
        assert (len(whole), remarks) == (samples, [])
        for behind in BEHIND.values():
            assert_read(data + behind, path, whole)
        assert_read(ID3V2 + FOOTED + data + ID3V1, path, whole)


def put(data, place, new):
    return data[:place] + new + data[place + len(new) :]


def sizes(kind, data):
    """Place of the sound's size, its type, what it counts beside the sound, in a file made here."""
    if kind == "au":
        return 8, ">I", 0
    if kind == "rf64":
        return data.index(b"ds64") + 16, "<q", 0
    name = data.index(b"SSND" if kind == "aiff" else b"data")
    return {
        "wav": (name + 4, "<I", 0),
        "aiff": (name + 4, ">I", 8),
        "caf": (name + 4, ">q", 4),
        "w64": (name + 16, "<q", 24),
    }[kind]


WHOLE = {"wav": (4, "<I"), "aiff": (4, ">I"), "w64": (16, "<q"), "rf64": (20, "<q")}


@pytest.mark.parametrize(("claim", "whole"), [(0, None), (0, 0), (-1, 0), (-1, -1)])
@pytest.mark.parametrize("kind", PCM)
def test_a_size_that_was_never_filled_in_hides_no_sound(tmp_path, kind, whole, claim):
    """A recorder that crashes leaves 0, one that writes to a pipe all ones. Was "is empty"."""
    path = tmp_path / f"a.{kind}"
    data = made(path, voice(2 * BLOCK + 7, 2))
    samples, _ = read(path)
    place, form, more = sizes(kind, data)
    ones = {"I": b"\xff" * 4, "q": b"\xff" * 8}
    for size in (ones[form[1]] if claim else struct.pack(form, n) for n in {0, more}):
        lying = put(data, place, size)
        if kind in WHOLE and whole is not None:
            at, outer = WHOLE[kind]
            lying = put(lying, at, ones[outer[1]] if whole else struct.pack(outer, 0))
        there = 4 * len(samples)
        said = f"its header claims 0 bytes but {there:,} are there; read to the end"
        assert_read(lying, path, samples, *([] if claim else [said]))


@pytest.mark.parametrize("kind", ["wav", "aiff", "w64"])
def test_a_low_size_in_a_file_never_closed_hides_no_sound(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    data = made(path, voice(BLOCK))
    samples, _ = read(path)
    place, form, more = sizes(kind, data)
    low = put(data, place, struct.pack(form, 1000 + more))
    path.write_bytes(low)  # the size of the whole is right, and so, perhaps, is this one
    assert len(read(path)[0]) == 500
    at, outer = WHOLE[kind]
    said = f"its header claims 1,000 bytes but {2 * BLOCK:,} are there; read to the end"
    assert_read(put(low, at, struct.pack(outer, 0)), path, samples, said)


CHUNK = {
    "wav": b"LIST" + struct.pack("<I", 64) + b"INFOISFT" + struct.pack("<I", 52) + bytes(52),
    "aiff": b"ANNO" + struct.pack(">I", 64) + b"a" * 64,
    "caf": b"info" + struct.pack(">q", 64) + b"a" * 64,
    "w64": b"levl" + bytes.fromhex("f3acd3118cd100c04f8edb8a") + struct.pack("<q", 88) + bytes(64),
}


@pytest.mark.parametrize("behind", ["chunk", "ID3v1", "APEv2"])
@pytest.mark.parametrize("kind", CHUNK)
def test_metadata_are_never_read_as_sound(tmp_path, kind, behind):
    """Neither behind sound, where Wave64 used to be read on, nor behind none at all."""
    path = tmp_path / f"a.{kind}"
    data = made(path, voice(500))
    whole, _ = read(path)
    more = BEHIND.get(behind, CHUNK[kind])
    path.write_bytes(data + more)
    np.testing.assert_array_equal(read(path)[0], whole)
    place, form, extra = sizes(kind, data)
    path.write_bytes(put(data, place, struct.pack(form, extra))[: len(data) - 1000] + more)
    with pytest.raises(SourceError):
        read(path)


@pytest.mark.parametrize(
    ("claim", "remarks"),
    [
        (0, []),
        (1000, ["has 24,581 samples, though its header claims 1,000"]),
        (2**36 - 1, [f"ends after 24,581 of the {2**36 - 1:,} samples of its header"]),
    ],
)
def test_a_flac_is_read_whole_however_many_samples_it_claims(tmp_path, claim, remarks):
    """libFLAC stops at a number too low; 2^36 samples, 256 GB, must never be allocated."""
    path = write(tmp_path / "a.flac", voice(3 * BLOCK + 5), subtype="PCM_16")
    whole, _ = read(path)
    head, frames = flac_parts(path)
    bits = int.from_bytes(head[18:26], "big") >> 36 << 36  # rate, channels, bits; then 36 bits
    head = put(head, 18, (bits | claim).to_bytes(8, "big"))
    assert_read(head + frames, path, whole, *remarks)
    for behind in (ID3V1, bytes(5000)):
        path.write_bytes(head + frames + behind)
        np.testing.assert_array_equal(read(path)[0], whole)


def test_all_samples_up_to_a_break_are_kept(tmp_path):
    """A short FLAC that breaks off used to be refused, since its only block was incomplete."""
    path = write(tmp_path / "a.flac", voice(7000), subtype="PCM_16")
    whole, _ = read(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4] + np.random.default_rng(1).bytes(400))
    part, remarks = read(path)
    assert len(part) == 4096  # one of libFLAC's frames
    np.testing.assert_array_equal(part, whole[: len(part)])
    assert remarks == ["breaks off after 0.512 s (flac decoder lost sync)"]


def mp3(path, samples, mode):
    soundfile.write(path, samples, 44100, format="MP3", bitrate_mode=mode, compression_level=0.5)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("mode", "order"), [("CONSTANT", 1), ("VARIABLE", 1), ("VARIABLE", -1), ("AVERAGE", -1)]
)
def test_an_mp3_without_a_count_of_its_frames_is_read_to_its_end(tmp_path, mode, order):
    """libmpg123 takes the first frames for typical: 82 % of a recording were lost unsaid."""
    path = tmp_path / "a.mp3"
    noise = np.random.default_rng(0).uniform(-0.9, 0.9, 2 * 44100)
    sound = np.concatenate([noise, np.zeros(2 * 44100)])
    data = mp3(path, sound[::order], mode)
    whole, remarks = read(path)
    assert (len(whole), remarks) == (len(sound), [])
    tag = max(data.find(b"Xing"), data.find(b"Info"))
    path.write_bytes(ID3V2 + data[data.index(b"\xff\xfb", tag) :] + ID3V1)
    found, remarks = read(path)
    assert remarks == []
    delay = len(found) % 1152 + 1105  # of the encoder and the decoder, LAME's and libmpg123's
    assert len(sound) <= len(found) <= len(sound) + 2 * 1152
    np.testing.assert_allclose(found[delay : delay + 1000], whole[:1000], atol=2e-3)


def test_an_mp3_of_no_bytes_is_read_once(tmp_path):
    """It was taken for a file that follows itself, and read for ever."""
    path = tmp_path / "a.mp3"
    data = bytearray(mp3(path, voice(9000), "VARIABLE"))
    whole, _ = read(path)
    size_at = max(data.find(b"Xing"), data.find(b"Info")) + 12
    data[size_at : size_at + 4] = bytes(4)
    assert_read(data, path, whole)


@pytest.mark.parametrize("kind", ["mp3", "ogg", "opus"])
def test_files_joined_to_one_are_read_one_after_another(tmp_path, kind):
    """`cat a.mp3 b.mp3`, or a recorded stream: all but the first used to be left out."""
    path = tmp_path / f"a.{kind}"
    parts = [(made(path, voice(n, seed=n)), read(path)[0]) for n in (9000, 20_000, 300)]
    data, sounds = zip(*parts, strict=True)
    joined = (ID3V1 + ID3V2 if kind == "mp3" else b"").join(data)
    assert_read(joined, path, np.concatenate(sounds), "contains 3 files; read as one", atol=2e-7)
    other = made(tmp_path / f"b.{kind}", voice(5000, 2))
    said = "contains another file, which cannot be read as part of it"
    assert_read(data[0] + other + data[1], path, sounds[0], said, atol=2e-7)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(5, "Input/output error")])
def test_what_interrupts_a_read_is_not_taken_for_the_end(tmp_path, monkeypatch, error, capfd):
    """libsndfile cannot pass it on: Ctrl-C would have gone unheard, and a bad disk cut a file."""
    path = tmp_path / "a.flac"
    write(path, voice(9 * BLOCK), subtype="PCM_16")
    peek, calls = View.peek, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) > 8:
            raise error
        return peek(*args)

    with Recording(path) as recording:
        blocks = recording.blocks()
        next(blocks)
        monkeypatch.setattr(View, "peek", interrupted)
        expected = SourceError if isinstance(error, OSError) else error
        with pytest.raises(expected, match=r"^(input/output error)?$"):
            list(blocks)
    assert capfd.readouterr() == ("", "")


def test_the_sound_is_found_behind_a_chunk_of_odd_size_and_none_behind_a_lying_one(tmp_path):
    """A byte of padding follows such a chunk: without it the lying size would go unnoticed."""
    path = tmp_path / "a.wav"
    data = made(path, voice(2 * BLOCK + 7, 1))
    samples, _ = read(path)
    place, form, _ = sizes("wav", data)
    lying = put(data, place, struct.pack(form, 0))
    begin = place - 4
    chunk = b"note" + struct.pack(form, 3) + b"abc\0"
    there = 2 * len(samples)
    said = f"its header claims 0 bytes but {there:,} are there; read to the end"
    assert_read(lying[:begin] + chunk + lying[begin:], path, samples, said)
    path.write_bytes(b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\x7f" + wav())
    assert reason(path).startswith("cannot be read as audio (")
