"""Which files a name stands for: folders that name splits, links, and files that are not read."""

from functools import partial
from pathlib import Path

import pytest
from noise import prepared, record
from refusals import refused
from test_prepare import tune

from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.media.audio.frames import AudioSettings
from seqmodel.media.registry import MEDIA

SUFFIX = {"music": "mid", "audio": "wav"}
AAC = "cannot be read; convert it first: ffmpeg -i "


def touch(*names):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


def link(name, target):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).symlink_to(target)


def placed(*names):
    """The files found, with the split of each; nothing was left out."""
    sources = find_sources(names)
    assert sources.skipped == []
    return {str(file.path): file.split for file in sources.files}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("medium", MEDIA)
def test_every_usual_name_of_a_folder_places_what_is_in_it(medium):
    """Used to know four names only: 16 of 20 pieces in val/ were trained on. The nearest decides. A
    linked folder is followed, and its files placed by the link's own name."""
    names = {
        "train": ("train", "Training", "TRAIN"),
        "valid": ("valid", "val", "VAL", "dev", "Dev", "validation", "eval"),
        "test": ("test", "testing", "Testing"),
    }
    kind = SUFFIX[medium]
    expected = {
        f"in/{folder}/deep/a.{kind}": split
        for split, folders in names.items()
        for folder in folders
    }
    expected[f"in/train/.hidden.{kind}"] = "train"
    expected |= {f"in/valid/train/a.{kind}": "train", f"in/x/TEST/y/a.{kind}": "test"}
    touch(*expected, f"train/deep/b.{kind}", f"train/c.{kind}", f"train/d.{kind}")
    link("in/linked/valid", "../../train")
    link(f"in/test/d.{kind}", f"../../train/d.{kind}")
    for file in ("c", "d", "deep/b"):
        expected[f"in/linked/valid/{file}.{kind}"] = "valid"
    assert placed("in") == expected | {f"in/test/d.{kind}": "test"}
    assert placed("in/x/TEST/y") == {f"in/x/TEST/y/a.{kind}": None}  # above the source


@pytest.mark.parametrize(
    ("beside", "split"),
    [("dev", "test"), ("val", "test"), ("train", "valid"), ("test", "valid"), ("x", "valid")],
)
def test_eval_is_for_test_beside_another_folder_for_valid(beside, split):
    """Corpora of speech have train, dev and eval: a model would be chosen by its test."""
    touch("in/eval/a.wav", f"in/{beside}/b.wav", "in/train/c.wav")
    assert placed("in")["in/eval/a.wav"] == split


def test_a_file_reached_twice_counts_once_where_a_folder_places_it():
    touch("in/all/a.wav", "in/all/b.wav", "in/all/c.wav")
    link("in/again", "all")
    link("in/valid/a.wav", "../all/a.wav")
    link("in/zz/train", "../all")
    expected = {f"in/zz/train/{k}.wav": "train" for k in "abc"}
    assert placed("in") == {"in/valid/a.wav": "valid", **expected}
    names = "in/again", "in/all", "in/all/a.wav", "in/all/*.wav", "./in//again/b.wav"
    assert list(placed(*names)) == [f"in/again/{k}.wav" for k in "abc"]
    again = placed("in/all", str(Path("in/all").resolve()))
    assert again == {f"in/all/{k}.wav": None for k in "abc"}


def test_links_that_lead_round_in_circles_or_above_the_source_end_and_are_named():
    touch("in/a.wav", "in/b/c.wav", "in/train/d.wav", "secret/e.wav")
    link("in/loop", "..")
    link("in/b/back", "..")
    link("in/train/up", "../b")
    link("in/self", "self")
    for one in "pqrstuvw":  # each with all others: 8! paths
        for other in "pqrstuvw".replace(one, ""):
            link(f"in/{one}/{other}", f"../{other}")
    sources = find_sources(["in"])
    assert {str(file.path): file.split for file in sources.files} == {
        "in/a.wav": None,
        "in/train/d.wav": "train",
        "in/train/up/c.wav": "train",
    }
    reasons = dict(sources.skipped)
    assert reasons["in/b/back"] == reasons["in/train/up/back"]
    assert reasons["in/b/back"] == "is a link to a folder that it is in"
    assert reasons["in/b/back"] == reasons["in/loop"]
    assert "symbolic links" in reasons["in/self"]
    assert len(reasons) < 100


def test_what_cannot_be_entered_or_read_is_named(monkeypatch):
    """Guards a whole folder of recordings, or an .m4a among them, that is left out without a word;
    but for resource forks, which an archive made on a Mac has under the suffix of each file."""
    for k in range(3):
        record(Path(f"in/{k}.wav"), seed=k)
    touch("in/locked/a.wav", "in/._0.wav", "in/__MACOSX/in/._0.wav")
    touch("in/My song.M4A", "in/b.wma", "in/score.mxl", "in/0.mp4", "in/cover.jpg")
    link("in/valid", "../gone")
    iterdir = Path.iterdir

    def locked(path):
        if path.name == "locked":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", locked)
    skipped = prepared(["in"], Path("out"), AudioSettings())["skipped"]
    unread = {
        "in/My song.M4A": f"{AAC}'in/My song.M4A' 'in/My song.flac'",
        "in/b.wma": f"{AAC}in/b.wma in/b.flac",
        "in/score.mxl": "is not audio, unlike the other files",
    }
    assert {one["source"]: one["reason"] for one in skipped} == {
        **unread, "in/locked": "permission denied", "in/valid": "no such file or directory"
    }  # fmt: skip
    strict = partial(prepared, ["in"], Path("strict"), AudioSettings(), strict=True)
    refused(strict, "in/My song.M4A: cannot be read")
    Path("in/cover.jpg").unlink()
    assert dict(find_sources(["in/*.*"]).skipped) == unread


def test_where_all_have_to_be_converted_the_error_says_so():
    touch("in/a.m4a", "in/b.aac", "song.abc")
    for name, said in (
        ("in/a.m4a", f"in/a.m4a: {AAC}in/a.m4a in/a.flac"),
        ("in", f"in/a.m4a, the first of 2 such files: {AAC}in/a.m4a in/a.flac"),
        ("song.abc", "song.abc: cannot be read; convert it first: abc2midi song.abc -o song.mid"),
    ):
        assert refused(partial(find_sources, [name])) == said


def test_a_sampled_tune_is_found_beside_its_score():
    tune(Path("in/a.mid"), 60)
    touch("in/a.musicxml", "in/b.musicxml")
    assert [one.source for one in find_sources(["in"]).skipped] == ["in/b.musicxml"]


def test_a_dataset_beside_its_sources_is_none_of_them():
    """`prepare . --out data` works twice, also of recordings, where its .npy made it music."""
    record(Path("1.wav"))
    for out in ("data", "again"):
        found = find_sources(["."])
        prepare(found, Path(out), found.medium.settings({}))
    skipped = dict(find_sources(["."]).skipped)
    assert skipped == dict.fromkeys(("again", "data"), "is a prepared dataset")


def test_json_is_read_where_it_is_named():
    """Guards against labels beside recordings, one for each, that would be taken for music."""
    touch("a.wav", "a.json")
    assert placed(".") == {"a.wav": None}
    assert find_sources(["a.json"]).medium.name == "music"
