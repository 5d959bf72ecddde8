"""From files to a dataset: what goes where, what is skipped, by which processes; with a cache."""

import json
import multiprocessing
import os
import pickle
import shutil
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import mido
import numpy as np
import pytest
from midi_tracks import notes, save
from noise import files, places, prepared, split_by_hash

from seqmodel.data import bundled, cache
from seqmodel.data import prepare as reading
from seqmodel.data.bundled import PREPARED, sample_dataset, sample_sources
from seqmodel.data.cache import open_cache
from seqmodel.data.dataset import MANIFEST, open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.media.music.corpus import MusicCorpus
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.published import KNOWN_SETS
from seqmodel.media.registry import MEDIA

FRAME = PianoRollFrames(Grid.of_beats(2))


def tune(path, *pitches, transposed_by=0):
    """A MIDI file of quarter notes; on the grid of FRAME each is two frames."""
    some = [(k, k + 1, pitch + transposed_by) for k, pitch in enumerate(pitches)]
    return save(path, [notes(some, step=96)], division=96, kind=0)


def roll_of(*pitches):
    """The roll that `tune` must become, built by hand."""
    return np.eye(88, dtype=np.uint8)[np.array(pitches) - 21].repeat(2, axis=0)


def content_of_tune(*pitches):
    """What is hashed of `tune`, whatever the grid: ticks per beat, SMPTE or not, then the notes as
    three sorted rows, on, off and pitch, where a quarter note is one tick."""
    notes = sorted((k, k + 1, pitch) for k, pitch in enumerate(pitches))
    return b"1 False" + np.array(notes, "<i8").T.tobytes()


@pytest.fixture
def corpus(tmp_path):
    """Forty different tunes without split folders."""
    for k in range(40):
        tune(tmp_path / "corpus" / f"{k:02}.mid", 40 + k, 45 + k // 2, 62)
    return tmp_path / "corpus"


def test_files_that_are_named_are_placed_only_by_folders_that_differ(tmp_path, monkeypatch):
    """`prepare train/a.mid` put its one piece into train, and nothing into valid."""
    monkeypatch.chdir(tmp_path)
    for name in ("train/a.mid", "train/b.mid", "valid/c.mid", "d.mid"):
        tune(Path(name), 60)
    for names, splits in (
        (["train"], ["train", "train"]),
        (["valid", "d.mid"], ["valid", None]),
        (["train/a.mid"], [None]),
        (["train/a.mid", "./train/a.mid", "train/b.mid", "d.mid"], [None, None, None]),
        (["train/*.mid"], [None, None]),
        ([str(tmp_path / "train/a.mid")], [None]),
        (["train/a.mid", "valid/c.mid", "d.mid"], ["train", "valid", None]),
        (["*/*.mid"], ["train", "train", "valid"]),
        (["train", "valid/c.mid"], ["train", "train", "valid"]),
        (["train", "train/a.mid"], ["train", "train"]),
    ):
        assert [source.split for source in find_sources(names).files] == splits, names


def test_a_piece_holds_the_notes_of_its_file_whose_content_decides_without_folders(
    corpus, tmp_path
):
    manifest = prepared(corpus, tmp_path / "out", FRAME)
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.manifest, len(dataset.splits)) == (manifest, 3)
    for split in dataset.splits:
        for source, roll in zip(dataset[split].sources, dataset[split], strict=True):
            k = int(Path(source).stem)
            pitches = 40 + k, 45 + k // 2, 62
            assert split == split_by_hash(content_of_tune(*pitches)), source
            np.testing.assert_array_equal(roll, roll_of(*pitches))


def test_a_loose_copy_joins_the_split_of_a_folder_and_copies_in_two_are_reported(tmp_path):
    """Guards against training on a test piece because a copy of it lies outside the folder."""
    for k in range(20):
        tune(tmp_path / f"in/test/{k}.mid", 40 + k, 60)
        tune(tmp_path / f"in/zz/{k}.mid", 40 + k, 60)
    manifest = prepared(tmp_path / "in", tmp_path / "out", FRAME)
    assert (manifest["repeated_pieces"], manifest["also_in_another_split"]) == (20, [])
    assert set(places(tmp_path / "out").values()) == {"test"}
    copy = tune(tmp_path / "in/valid/b.mid", 40, 60)
    manifest = prepared(tmp_path / "in", tmp_path / "both", FRAME)
    assert manifest["also_in_another_split"] == [str(copy)]
    assert places(tmp_path / "both")[str(copy)] == "valid"


def test_the_order_in_which_the_disk_lists_files_does_not_matter(corpus, tmp_path, monkeypatch):
    """Two machines must make the same bytes from the same files."""
    monkeypatch.chdir(corpus.parent)
    prepared(["corpus"], tmp_path / "a", FRAME)
    iterdir = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: reversed(list(iterdir(path))))
    prepared(["corpus"], tmp_path / "b", FRAME)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    sources = open_dataset(tmp_path / "a")["train"].sources
    assert sources == sorted(sources)


def test_published_rolls_keep_their_splits_or_go_by_folder_or_hash(tmp_path):
    rolls = {"train": [roll_of(60, 64), roll_of(30)], "valid": [roll_of(62)]}
    file = tmp_path / "rolls.npz"
    np.savez(file, **{f"{name}_{k}": r for name, some in rolls.items() for k, r in enumerate(some)})
    prepared(file, tmp_path / "out", FRAME)
    found = open_dataset(tmp_path / "out")
    for name, pieces in rolls.items():
        assert found[name].sources == [f"{file}#{name}/{k}" for k in range(len(pieces))]
        for ours, theirs in zip(found[name], pieces, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    by_hash = split_by_hash(np.packbits(roll_of(60, 61, 62), axis=1).tobytes())
    for name, split in {"loose.npy": by_hash, "valid/one.npy": "valid"}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "in" / name, roll_of(60, 61, 62))
        prepared(tmp_path / "in", tmp_path / "out", FRAME, force=True)
        assert places(tmp_path / "out")[f"{tmp_path}/in/{name}"] == split


def test_transposing_to_c_is_recorded_and_refused_for_rolls(tmp_path):
    """A roll has lost what the estimate needs; moving it by a guess would be silent damage."""
    scale = (60, 62, 64, 65, 67, 69, 71, 72, 67, 64, 60)
    tune(tmp_path / "in/train/g.mid", *scale, transposed_by=-5)
    np.save(tmp_path / "in/roll.npy", roll_of(60))
    frame = PianoRollFrames(Grid.of_beats(2), transpose_to_c=True)
    manifest = prepared(tmp_path / "in", tmp_path / "out", frame)
    assert [entry["source"] for entry in manifest["skipped"]] == [str(tmp_path / "in/roll.npy")]
    (line,) = (tmp_path / "out/train.jsonl").read_text().splitlines()
    assert json.loads(line)["transposed"] == 5
    np.testing.assert_array_equal(open_dataset(tmp_path / "out")["train"][0], roll_of(*scale))


@pytest.mark.parametrize("split_by", ["piece", "time"])
def test_voices_are_kept_frame_by_frame(tmp_path, split_by):
    """Guards the voices of a piece that is cut, which are those of its own frames."""
    found = np.empty(12, object)
    for k in range(12):
        found[k] = np.random.default_rng(k).integers(59, 75, (400, 3))
        found[k][found[k] == 59] = -1
    np.savez(tmp_path / "a.npz", all=found)
    sources = find_sources([str(tmp_path / "a.npz")])
    prepare(sources, tmp_path / "d", FRAME, split_by=split_by)
    dataset = open_dataset(tmp_path / "d")
    for split in dataset.splits:
        for roll, piece in zip(dataset[split], dataset[split].pieces, strict=True):
            sets = [sorted({p for p in frame if p > 0}) for frame in piece.facts["voices"]]
            assert [(np.flatnonzero(frame) + 21).tolist() for frame in roll] == sets


SAMPLES = Path(__file__).parents[2] / "sample_data"


@pytest.fixture
def at_once(monkeypatch):
    """Other processes help from the second file on."""
    monkeypatch.setattr(reading, "SECONDS_ALONE", 0.0)
    monkeypatch.setattr(reading, "MIN_FILES", 0)


@pytest.mark.parametrize(("medium", "room"), [("music", "music"), ("audio", "speech")])
def test_the_number_of_processes_changes_no_byte(at_once, tmp_path, monkeypatch, medium, room):
    """Guards the order of pieces, what is counted of them, and why a file is skipped."""
    sources, folders = tmp_path / "in" / "train", []
    shutil.copytree(SAMPLES / room / "train", sources)
    first = min(sources.iterdir())
    (sources / f"damaged{first.suffix}").write_bytes(first.read_bytes()[:30])
    for processes in (1, 3):
        monkeypatch.setattr("seqmodel.data.prepare.cores", lambda n=processes: n)
        folders.append(tmp_path / f"by-{processes}")
        found = find_sources([str(sources)])
        manifest = prepare(found, folders[-1], MEDIA[medium].settings({}))
        assert len(manifest["skipped"]) == 1
        assert manifest["splits"]["train"]["pieces"] > 5
    assert files(folders[0]) == files(folders[1])


def _numbered(path):
    """What the tests read of a file that is called by a number."""
    if path.name == "13":
        raise SourceError("brings bad luck")
    if path.name == "14":
        os._exit(1)
    if path.name == "15":
        raise MemoryError("of another process")
    return int(path.name)


def _at_length(path):
    """More than a pipe holds."""
    return bytes(2**20)


def _paths(*numbers):
    return [Path(str(number)) for number in numbers]


def test_errors_are_told_where_they_belong(at_once):
    """Guards an error that ends the reading of others, is told of another file, or as a kill."""
    *others, last = reading.read_all(_numbered, _paths(*range(14)), 3)
    assert others == [*range(13)]
    assert str(last) == "brings bad luck"
    with pytest.raises(MemoryError, match="of another process"):
        list(reading.read_all(_numbered, _paths(1, 2, 15), 2))


def test_a_killed_process_is_told(at_once):
    """Also as it sends. Guards a command that waits for ever, or goes on without some files."""
    with pytest.raises(SeqmodelError, match="killed"):
        list(reading.read_all(_numbered, _paths(*range(20)), 3))
    with closing(reading.read_all(_at_length, _paths(*range(9)), 2)) as going:
        next(going), next(going)
        time.sleep(0.2)  # both wait for room in their pipes by now
        for child in multiprocessing.active_children():
            child.kill()
        with pytest.raises(SeqmodelError, match="killed"):
            list(going)


def test_nothing_is_left_of_a_reading_that_ends_early(at_once):
    """Guards processes that outlive the command, as where the disk is full."""
    with closing(reading.read_all(_numbered, _paths(*range(100, 50_000)), 2)) as going:
        assert [next(going), next(going), next(going)] == [100, 101, 102]
        began = multiprocessing.active_children()
    assert len(began) == 2
    assert not any(process.is_alive() for process in began)


@pytest.mark.parametrize("sample", PREPARED)
def test_a_sample_is_prepared_once_and_anew_if_it_is_of_an_older_version(
    tmp_path, monkeypatch, sample
):
    """Concurrent first uses wait for one. Without metres all pieces would be taken as 4/4."""
    prepare, times = bundled.prepare, []

    def slow(*args, **options):
        times.append(args)
        time.sleep(0.1)
        prepare(*args, **options)

    monkeypatch.setattr(bundled, "prepare", slow)
    with ThreadPoolExecutor(3) as pool:
        found = {*pool.map(lambda _: sample_dataset(tmp_path / "runs", sample), range(3))}
    (path,) = found
    assert path == sample_dataset(tmp_path / "runs", sample)
    assert [*(tmp_path / "runs").iterdir()] == [path]
    assert len(times) == 1
    dataset = open_dataset(path)
    assert dataset.frame.medium == ("audio" if sample == "speech" else "music")
    assert dataset.frame.onsets is (sample == "music")
    for split in ("train", "valid", "test"):
        assert len(dataset[split]) == len(list((sample_sources(sample) / split).iterdir()))
    assert dataset.manifest["skipped"] == dataset.manifest["also_in_another_split"] == []
    if sample == "rolls":  # as the others, but sooner prepared
        older = {name: value for name, value in dataset.manifest.items() if name != "metre"}
        (path / MANIFEST).write_text(json.dumps(older))
        sample_dataset(tmp_path / "runs", sample)
        assert open_dataset(path).manifest == dataset.manifest


FILES = 30


def waltz(path, first):
    """Twelve bars of three quarters, the first of each a chord, said to be in 4/4."""
    said = mido.MetaMessage("time_signature", numerator=4, denominator=4)
    song = [(k, k + 1, first + k % 5) for k in range(36)]
    chords = [(k, k + 1, 70 + n) for k in range(0, 36, 3) for n in range(3)]
    return save(path, [[(0, said)], notes(song + chords, step=480)])


@pytest.fixture
def waltzes(tmp_path, monkeypatch):
    """The folder "in" of tunes, one file that is none, and one that repeats another."""
    monkeypatch.chdir(tmp_path)
    for k in range(FILES - 1):
        waltz(Path(f"in/{k:02}.mid"), 40 + k)
    waltz(Path("in/again.mid"), 40)
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


def bytes_of(out, cache=None, *, sources="in", progress=lambda done, total: None, **options):
    """The bytes of a dataset by file; `out` is new."""
    settings = MEDIA["music"].settings(options)
    found = find_sources([sources])
    prepare(found, Path(out), settings, cache=cache and Path(cache), progress=progress)
    return files(Path(out))


def test_the_cache_changes_no_byte_and_spares_what_was_read(waltzes, read):
    """Guards results for other settings, of a file's former bytes, and under another's name."""
    plain = bytes_of("plain")
    assert b"(4/4, heard 3/4)" in plain["manifest.json"]
    assert bytes_of("cold", "c") == plain
    read.clear()
    assert bytes_of("warm", "c") == plain
    assert read == ["none.mid"]  # why a file cannot be read is not kept

    shutil.copytree("in", "elsewhere")
    assert bytes_of("moved", "c", sources="elsewhere") == bytes_of("m", sources="elsewhere")

    read.clear()
    marked = bytes_of("marked", "c", velocity=True, timing=True)
    assert len(read) == FILES  # twice the same content is read once
    assert marked == bytes_of("m2", velocity=True, timing=True) != plain

    path, before = Path("in/07.mid"), Path("in/07.mid").stat()
    changed = path.read_bytes().replace(bytes([47]), bytes([48]))
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    waltz(Path("in/new.mid"), 30)
    read.clear()
    assert bytes_of("more", "c") == bytes_of("m3") != plain
    assert read[:3] == ["07.mid", "new.mid", "none.mid"]
    assert len(changed) == before.st_size


def test_files_that_rolls_change_are_not_taken_from_the_cache(waltzes, monkeypatch):
    """Beside a published set, whose rolls lack short notes, those of MIDI files are dropped."""
    save(Path("in/short.mid"), [notes([(0, 5, 60), (0, 480, 64)])])
    bytes_of("alone", "c", onsets=False)
    np.savez("in/0.npz", train_0=np.eye(88, dtype=np.uint8))
    monkeypatch.setitem(KNOWN_SETS, sha256(b"[88.0]").hexdigest(), ("some", 4))
    assert bytes_of("mixed", "c", onsets=False) == bytes_of("plain", onsets=False)


def test_prepare_goes_on_where_it_was_interrupted(waltzes, read):
    def interrupt(done, total):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bytes_of("d", "c", progress=interrupt)
    assert not Path("d").exists()
    assert len(read) == 12
    read.clear()
    resumed = bytes_of("d", "c")
    assert read == [*(f"{k}.mid" for k in range(12, FILES - 1)), "none.mid"]
    assert resumed == bytes_of("plain")


def test_processes_share_a_cache(waltzes, at_once, monkeypatch):
    monkeypatch.setattr(reading, "cores", lambda: 3)
    assert bytes_of("cold", "c") == bytes_of("warm", "c") == bytes_of("plain")
    assert len([*Path("c").iterdir()]) == FILES


def test_a_cache_that_cannot_be_written_is_read(waltzes, read, monkeypatch):
    """Guards one that is shared by hosts, of which some only read it, and a full disk."""
    cold = bytes_of("cold", "c")
    monkeypatch.setattr("seqmodel.data.cache.write_file", Mock(side_effect=SeqmodelError("full")))
    assert bytes_of("warm", "c") == cold


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_damaged_and_foreign_entries_are_read_again(waltzes, read):
    """Guards a wrong dataset, an error, and code that runs because it lies in the folder."""
    Path("in/again.mid").unlink()  # both would be read if the entry they share cannot be written
    plain = bytes_of("plain", "c")
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
    assert bytes_of("d", "c") == plain
    assert len(read) == len(damaged) + 2
    assert not Path("evil").exists()
    assert [path.read_bytes() for path in entries[:8]] == content[:8]


def test_what_changes_as_it_is_read_is_not_kept(waltzes, monkeypatch):
    """Guards the result for a file's later bytes under the name of the former ones."""
    read, file = MusicCorpus.read, Path("in/03.mid")
    former = file.read_bytes()

    def late(corpus, path):
        if path == file:
            waltz(file, 20)
        return read(corpus, path)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(MusicCorpus, "read", late)
        bytes_of("late", "c")
    file.write_bytes(former)
    assert bytes_of("d", "c") == bytes_of("plain")


def test_a_cache_that_another_process_begins_meanwhile_is_shared(tmp_path, monkeypatch):
    def looked_for(folder):
        monkeypatch.undo()
        open_cache(folder)
        (folder / ("0" * 64)).touch()
        return False

    monkeypatch.setattr(cache, "_is_cache", looked_for)
    open_cache(tmp_path / "c")
    assert len(list((tmp_path / "c").iterdir())) == 2


@pytest.mark.parametrize("cache", ["in", "in/00.mid", "plain"])
def test_only_a_cache_or_an_empty_folder_is_filled(waltzes, cache):
    """Guards a user's folder against nameless files, and a cache whose writer was killed."""
    bytes_of("plain")
    before = sorted(Path().rglob("*"))
    with pytest.raises(SeqmodelError, match=f"{cache} is not a cache of prepare"):
        bytes_of("d", cache)
    assert sorted(Path().rglob("*")) == before
    Path("empty").mkdir()
    Path("empty/.CACHEDIR.TAG.seqmodel-b9804a7f7056").touch()
    bytes_of("e", "empty")
    for inside in ("new", "new/cache"):
        with pytest.raises(SeqmodelError, match="lies in the dataset new"):
            bytes_of("new", inside)
    assert not Path("new").exists()
