"""Files whose headers lie, that have tags in front or behind, or are several in one.

Made here from files that libsndfile has written; what they hold is known from those. The layouts
are those of libsndfile, but for tags: ID3 (id3.org), APEv2 and Lyrics3.
"""

import struct

import numpy as np
import pytest
import soundfile
from test_audio import BLOCK, flac_parts, read, reason, voice, wav, write

from seqmodel.errors import SourceError
from seqmodel.media.audio.layout import View
from seqmodel.media.audio.reader import Recording

KINDS = {
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


def made(path, samples, name="", **how):
    container, subtype = KINDS[path.suffix[1:]]
    write(path, samples, format=container, subtype=subtype, **how)
    return path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_what_surrounds_the_sound_loses_no_sample_and_is_none(tmp_path, kind):
    """A FLAC with an ID3v1 tag, as rippers make them, was refused, or lost its last second, and so
    was an Ogg with a tag in front."""
    path = tmp_path / f"a.{kind}"
    for samples in (300, 2 * BLOCK, 2 * BLOCK + 77):
        data = made(path, voice(samples))
        whole, remarks = read(path)
        assert (len(whole), remarks) == (samples, [])
        for name, behind in BEHIND.items():
            path.write_bytes(data + behind)
            found, remarks = read(path)
            np.testing.assert_array_equal(found, whole, err_msg=name)
            assert remarks == [], name
        path.write_bytes(ID3V2 + FOOTED + data + ID3V1)
        found, remarks = read(path)
        np.testing.assert_array_equal(found, whole)
        assert remarks == []


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
        path.write_bytes(lying)
        found, remarks = read(path)
        np.testing.assert_array_equal(found, samples)
        there = 4 * len(samples)
        said = f"its header claims 0 bytes but {there:,} are there; read to the end"
        assert remarks == ([] if claim else [said])


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
    path.write_bytes(put(low, at, struct.pack(outer, 0)))
    found, (remark,) = read(path)
    np.testing.assert_array_equal(found, samples)
    assert remark == f"its header claims 1,000 bytes but {2 * BLOCK:,} are there; read to the end"


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
    """0 of a pipe; libFLAC stops at a number that is too low: 64 % of a public test file were lost
    without a word. 2^36 samples as floats are 256 GB, which must never be allocated."""
    path = write(tmp_path / "a.flac", voice(3 * BLOCK + 5), subtype="PCM_16")
    whole, _ = read(path)
    head, frames = flac_parts(path)
    bits = int.from_bytes(head[18:26], "big") >> 36 << 36  # rate, channels, bits; then 36 bits
    head = put(head, 18, (bits | claim).to_bytes(8, "big"))
    path.write_bytes(head + frames)
    found, told = read(path)
    np.testing.assert_array_equal(found, whole)
    assert told == remarks
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
    """libmpg123 takes the first frames for typical: 82 % of a recording were lost without a word,
    and others were said to end early."""
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


@pytest.mark.parametrize("kind", ["mp3", "ogg", "opus"])
def test_files_joined_to_one_are_read_one_after_another(tmp_path, kind):
    """`cat a.mp3 b.mp3`, or a recorded stream: all but the first used to be left out."""
    path = tmp_path / f"a.{kind}"
    parts = [(made(path, voice(n, seed=n)), read(path)[0]) for n in (9000, 20_000, 300)]
    path.write_bytes((ID3V1 + ID3V2 if kind == "mp3" else b"").join(data for data, _ in parts))
    found, remarks = read(path)
    np.testing.assert_allclose(found, np.concatenate([part for _, part in parts]), atol=2e-7)
    assert remarks == ["contains 3 files; read as one"]
    other = made(tmp_path / f"b.{kind}", voice(5000, 2))
    path.write_bytes(parts[0][0] + other + parts[1][0])
    found, remarks = read(path)
    np.testing.assert_allclose(found, parts[0][1], atol=2e-7)
    assert remarks == ["contains another file, which cannot be read as part of it"]


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
    path.write_bytes(lying[:begin] + b"note" + struct.pack(form, 3) + b"abc\0" + lying[begin:])
    found, remarks = read(path)
    np.testing.assert_array_equal(found, samples)
    assert len(remarks) == 1
    path.write_bytes(b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\x7f" + wav())
    assert reason(path).startswith("cannot be read as audio (")
