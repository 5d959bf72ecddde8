"""`prepare` with a cache: the same bytes, however much of what was read is taken from it."""

import os
import pickle
import shutil
import zlib
from hashlib import sha256
from pathlib import Path

import mido
import numpy as np
import pytest
from midi_tracks import notes, save
from noise import files

from seqmodel.data import prepare as reading
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.errors import SeqmodelError
from seqmodel.media.music.corpus import MusicCorpus
from seqmodel.media.music.published import KNOWN_SETS
from seqmodel.media.registry import MEDIA

FILES = 30


def tune(path, first):
    """Twelve bars of three quarters, the first of each a chord, said to be in 4/4."""
    said = mido.MetaMessage("time_signature", numerator=4, denominator=4)
    song = [(k, k + 1, first + k % 5) for k in range(36)]
    chords = [(k, k + 1, 70 + n) for k in range(0, 36, 3) for n in range(3)]
    return save(path, [[(0, said)], notes(song + chords, step=480)])


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """The folder "in" of tunes, one file that is none, and one that repeats another."""
    monkeypatch.chdir(tmp_path)
    for k in range(FILES - 1):
        tune(Path(f"in/{k:02}.mid"), 40 + k)
    tune(Path("in/again.mid"), 40)
    Path("in/none.mid").write_text("nothing")


@pytest.fixture
def read(monkeypatch):
    """The files that are read rather than taken from the cache, by the only process."""
    read, paths = MusicCorpus.read, []

    def counted(corpus, path):
        paths.append(path.name)
        return read(corpus, path)

    monkeypatch.setattr(MusicCorpus, "read", counted)
    monkeypatch.setattr(reading, "cores", lambda: 1)
    return paths


def dataset(out, cache=None, *, sources="in", progress=lambda done, total: None, **options):
    """The bytes of a dataset by file; `out` is new."""
    settings = MEDIA["music"].settings(options)
    found = find_sources([sources])
    prepare(found, Path(out), settings, cache=cache and Path(cache), progress=progress)
    return files(Path(out))


def test_the_cache_changes_no_byte_and_spares_what_was_read(corpus, read):
    """Guards results for other settings, of a file's former bytes, and under another's name."""
    plain = dataset("plain")
    assert b"(4/4, heard 3/4)" in plain["manifest.json"]
    assert dataset("cold", "c") == plain
    read.clear()
    assert dataset("warm", "c") == plain
    assert read == ["none.mid"]  # why a file cannot be read is not kept

    shutil.copytree("in", "elsewhere")
    assert dataset("moved", "c", sources="elsewhere") == dataset("m", sources="elsewhere")

    read.clear()
    marked = dataset("marked", "c", velocity=True, timing=True)
    assert len(read) == FILES  # twice the same content is read once
    assert marked == dataset("m2", velocity=True, timing=True) != plain

    path, before = Path("in/07.mid"), Path("in/07.mid").stat()
    changed = path.read_bytes().replace(bytes([47]), bytes([48]))
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    tune(Path("in/new.mid"), 30)
    read.clear()
    assert dataset("more", "c") == dataset("m3") != plain
    assert read[:3] == ["07.mid", "new.mid", "none.mid"]
    assert len(changed) == before.st_size


def test_files_that_rolls_change_are_not_taken_from_the_cache(corpus, monkeypatch):
    """Beside a published set, whose rolls lack short notes, those of MIDI files are dropped."""
    save(Path("in/short.mid"), [notes([(0, 5, 60), (0, 480, 64)])])
    dataset("alone", "c", onsets=False)
    np.savez("in/0.npz", train_0=np.eye(88, dtype=np.uint8))
    monkeypatch.setitem(KNOWN_SETS, sha256(b"[88.0]").hexdigest(), ("some", 4))
    assert dataset("mixed", "c", onsets=False) == dataset("plain", onsets=False)


def test_prepare_goes_on_where_it_was_interrupted(corpus, read):
    def interrupt(done, total):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset("d", "c", progress=interrupt)
    assert not Path("d").exists()
    assert len(read) == 12
    read.clear()
    resumed = dataset("d", "c")
    assert read == [*(f"{k}.mid" for k in range(12, FILES - 1)), "none.mid"]
    assert resumed == dataset("plain")


def test_processes_share_a_cache(corpus, monkeypatch):
    monkeypatch.setattr(reading, "SECONDS_ALONE", 0.0)
    monkeypatch.setattr(reading, "MIN_FILES", 0)
    monkeypatch.setattr(reading, "cores", lambda: 3)
    assert dataset("cold", "c") == dataset("warm", "c") == dataset("plain")
    assert len([*Path("c").iterdir()]) == FILES


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_damaged_and_foreign_entries_are_read_again(corpus, read):
    """Guards a wrong dataset, an error, and code that runs because it lies in the folder."""
    Path("in/again.mid").unlink()  # both would be read if the entry they share cannot be written
    plain = dataset("plain", "c")
    entries = [path for path in sorted(Path("c").iterdir()) if path.name != "CACHEDIR.TAG"]
    content = [path.read_bytes() for path in entries]
    flipped = bytearray(content[0])
    flipped[len(flipped) // 2] ^= 1
    pickles = pickle.dumps(Evil()), b"cnumpy.f2py.__main__\ndtype\n.", b"", pickle.dumps([1])
    damaged = [flipped, content[1][:-9], b"", *(zlib.compress(one, wbits=31) for one in pickles)]
    damaged.append(content[8])  # another's
    for path, instead in zip(entries, damaged, strict=False):
        path.write_bytes(instead)
    entries[9].unlink(), entries[9].mkdir()
    read.clear()
    assert dataset("d", "c") == plain
    assert len(read) == len(damaged) + 2
    assert not Path("evil").exists()
    assert [path.read_bytes() for path in entries[:8]] == content[:8]


def test_what_changes_as_it_is_read_is_not_kept(corpus, monkeypatch):
    """Guards the result for a file's later bytes under the name of the former ones."""
    read, file = MusicCorpus.read, Path("in/03.mid")
    former = file.read_bytes()

    def late(corpus, path):
        if path == file:
            tune(file, 20)
        return read(corpus, path)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(MusicCorpus, "read", late)
        dataset("late", "c")
    file.write_bytes(former)
    assert dataset("d", "c") == dataset("plain")


@pytest.mark.parametrize("cache", ["in", "in/00.mid", "plain"])
def test_only_a_cache_or_an_empty_folder_is_filled(corpus, cache):
    """Guards a user's folder against thousands of nameless files."""
    dataset("plain")
    before = sorted(Path().rglob("*"))
    with pytest.raises(SeqmodelError, match=f"{cache} is not a cache of prepare"):
        dataset("d", cache)
    assert sorted(Path().rglob("*")) == before
    Path("empty").mkdir()
    dataset("e", "empty")
    for inside in ("new", "new/cache"):
        with pytest.raises(SeqmodelError, match="lies in the dataset new"):
            dataset("new", inside)
    assert not Path("new").exists()
