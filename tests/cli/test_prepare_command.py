"""What `prepare` prints and writes when all is well."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from calling import call_ok, call_refused, told, write_piece
from noise import record

from seqmodel.cli import prepare as command
from seqmodel.data.dataset import open_dataset

OPTIONS = {
    "music": "--steps-per-beat=4 --step-seconds=1 --restrike=close --drums=drop --transpose-to-c "
    "--onsets --no-onsets --short-notes=keep --pedal=ignore --cache=c",
    "audio": "--rate=8000 --context=20 --frame=10 --levels=mu-law --clip-seconds=1",
}


IN_TIME = (
    "split in time: the first 80% of each recording or piece to train, then 10% to valid and 10% "
    "to test, with gaps; to choose, put files into folders named train, valid and test\n"
)


def but_copies(said):
    """The lines that are not about passages in two splits."""
    return [line for line in said.splitlines() if "or more frames of train" not in line]


def test_prepare_prints_a_summary_in_columns(call, music):
    """Guards counts that can be compared at a glance, and frames of before the pedal."""
    result = call("prepare", music, "-o", "d")
    assert but_copies(result.err) == []
    assert result.out == (
        "d: 88 notes struck or held, 4 steps per beat\n"
        "  train  10 pieces  320 frames  longest 32\n"
        "  valid   3 pieces   96 frames  longest 32\n"
        "  test    2 pieces   64 frames  longest 32\n"
        "  metre: 4/4 assumed for 15 pieces\n"
    )
    values = told("prepare", music, "-o", "e")
    assert values == json.loads(Path("e/manifest.json").read_text())
    assert "pedal" not in values["frame"]


def test_prepare_explains_what_it_skips(call, music):
    """Guards against files that silently vanish from the count; each name stays on one line."""
    shutil.copytree(music, "m")
    for k in range(7):
        Path(f"m/train/bad\n{k}.mid").write_text("x")
    Path("m/gone.mid").symlink_to("/nowhere")
    result = call("prepare", "m", "-o", "d")
    reason = "is not a MIDI file (it does not begin with MThd)"
    assert but_copies(result.err) == [
        "skipped 8 files:",
        "  m/gone.mid: no such file or directory",
        *[f"  m/train/bad\\n{k}.mid: {reason}" for k in range(4)],
        "  ... and 3 more; --json lists all",
    ]
    assert len(json.loads(Path("d/manifest.json").read_text())["skipped"]) == 8
    assert call("prepare", "m", "-o", "d", "--force", "-q").err == ""


def test_prepare_says_how_many_pieces_no_folder_places(call, music):
    """Guards against a folder of another name, whose pieces go where their hashes say."""
    shutil.copytree(music / "train", "m/train")
    shutil.copytree(music / "valid", "m/VAL")
    shutil.copytree(music / "test", "m/extra")
    (first, *_) = sorted(Path("m/extra").iterdir())
    Path("m/extra/-.mid").touch()  # which is skipped, and so no example
    said = call("prepare", "m", "-o", "d").err
    words = "13 pieces split by folders named train, valid or test; the other 2, such as"
    assert f"{words} {first}, by a hash" in said
    Path("m/extra").rename("m/Testing")
    assert "split by folders" not in call("prepare", "m", "-o", "f").err


def test_prepare_warns_about_odd_splits(call, music):
    """Guards against silence about an empty valid split, or about a piece in two splits."""
    for split in ("train", "test"):
        Path(f"m/{split}").mkdir(parents=True)
        shutil.copy(music / "train" / "0.mid", f"m/{split}")
    twice, empty = but_copies(call("prepare", "m", "-o", "d").err)
    assert twice.startswith("1 piece appears in two splits, such as m/train/0.mid; figures on ")
    assert empty.startswith("no piece is in valid: add files, or put them into folders named train")


def test_one_long_recording_trains_at_once(call):
    """Guards against a batch of one endless row, and against cutting what is short already."""
    record(Path("long.wav"), 60_000, rate=1000)
    result = call("prepare", "long.wav", "-o", "d")
    cut = "cut 1 recording longer than 8 s into clips of 8 s; change it with --clip-seconds\n"
    assert (result.status, result.err) == (0, cut + IN_TIME)
    assert result.out == (
        "d: 1,000 Hz, frames of 10 samples, context 20\n"
        "  train  6 pieces  4,800 frames  48.0 s  longest 800\n"
        "  valid   1 piece    540 frames   5.4 s  longest 540\n"
        "  test   2 pieces    540 frames   5.4 s  longest 400\n"
    )
    assert call("train", "d", "--epochs", 1, "--hidden", 4).status == 0
    record(Path("short/a.wav"), 8000)
    for source, *whole in (("long.wav", "--clip-seconds", 0), ("short",)):
        assert call("prepare", source, "-o", "e", "--force", *whole).err == IN_TIME


@pytest.mark.parametrize(
    ("rate", "remark"),
    [(22_050, ""), (44_100, "at 44,100 Hz training takes 2.8 times as long as at 16,000 Hz; ")],
)
def test_what_a_high_rate_costs_is_said(rate, remark, call):
    """CD-quality recordings, trained on for minutes, give only noise."""
    record(Path("a.wav"), 4 * rate, rate=rate)
    err = call("prepare", "a.wav", "-o", "d").err
    assert err.startswith(remark)
    assert ("--rate 16000 resamples" in err) == bool(remark)
    told = call("prepare", "a.wav", "-o", "e", "--rate", rate)  # as the user wants it
    assert (told.status, "resamples" in told.err) == (0, False)


def test_prepare_reads_paths_globs_and_odd_names(call, music):
    """Guards names with spaces, brackets, accents and bytes that are not UTF-8."""
    odd = b"caf\xe9.mid".decode("utf-8", "surrogateescape")
    names = ["a b.mid", "[x]*?.mid", "überraschung 音.mid", "-dash.mid", odd]
    paths = [f"m/{name}" for name in names]
    Path("m").mkdir()
    for k, path in enumerate(paths):
        shutil.copy(music / "train" / f"{k}.mid", path)
    for given, stdin in (
        (["-"], "".join(f"{path}\n" for path in paths)),
        (["m/*.mid"], ""),
        (paths, ""),
    ):
        call_ok("prepare", *given, "-o", "d", "--force", stdin=stdin)
        assert len(open_dataset("d")["train"]) == len(names)
    call_ok("inspect", "d")


def test_paths_on_stdin_may_end_with_a_zero_byte(call, music):
    """Guards `find -print0 | seqmodel prepare -0 -`: a name may contain a newline."""
    for k, name in enumerate(("a.mid", "b\nc.mid")):
        shutil.copy(music / "train" / f"{k}.mid", name)
    call_ok("prepare", "-", "-0", "-o", "d", stdin="a.mid\0b\nc.mid\0")
    sources = open_dataset("d")["train"].sources
    assert [source.partition("#")[0] for source in sources] == ["a.mid", "b\nc.mid"]
    call_refused("prepare", "-0", "a.mid", "-o", "e", says="-0 needs -", status=2)
    for given in ("MThd\0\0\0\6", "a.mid\0b.mid\0"):  # a file, not a list of files; no -0
        says = "...stdin has NUL bytes: use -0"
        call_refused("prepare", "-", "-o", "e", says=says, status=2, stdin=given)


def test_rolls_that_state_no_grid_say_which_is_assumed(call):
    """Guards against sampled music at double speed, for a grid that nobody chose."""
    Path("rolls").mkdir()
    np.savez("rolls/r.npz", train=np.ones((5, 88), np.uint8), valid=np.ones((5, 88), np.uint8))
    told = "not state the grid: 2 steps per beat assumed; --steps-per-beat says otherwise"
    for source in ("rolls", "rolls/*.npz", "rolls/r.npz"):
        result = call("prepare", source, "-o", "d", "--force")
        assert result.out.startswith("d: 88 notes, 2 steps per beat\n")
        assert f"rolls/r.npz does {told}" in result.err.splitlines()
    assert f"  rolls/r.npz does {told}\n" in call("inspect", "d").out
    np.save("rolls/s.npy", np.ones((5, 88), np.uint8))
    said = call("prepare", "rolls", "-o", "e").err.splitlines()
    assert f"2 files, such as rolls/r.npz, do {told}" in said
    result = call("prepare", "rolls", "-o", "f", "--steps-per-beat", 3)
    assert result.out.startswith("f: 88 notes, 3 steps per beat\n")
    assert "grid" not in result.err


def test_the_published_chorales_are_quarter_notes(call, shared_data):
    """They were taken for eighths, like the other sets; a set is known by its pieces, not name."""
    rolls = shared_data / "music/rolls"
    for name in ("JSB_Chorales", "MuseData", "Piano_midi", "Nottingham"):
        grid = "1 step" if name == "JSB_Chorales" else "2 steps"
        shutil.copy(rolls / f"{name}.mat", "a.mat")
        said = f"  {grid} per beat ({name[:3]}"
        assert call("inspect", "a.mat").out.splitlines()[1].startswith(said)
    shutil.copy(rolls / "JSB_Chorales.mat", "b.mat")
    says = "a.mat has 2 steps per beat and b.mat has 1 step per beat: choose a grid"
    call_refused("prepare", "a.mat", "b.mat", "-o", "e", says=f"...{says}")
    result = call("prepare", "b.mat", "-o", "e", "--steps-per-beat", 4)
    assert result.out.startswith("e: 88 notes, 4 steps per beat\n")
    read = "b.mat has 1 step per beat (JSB chorales), read as 4 steps per beat"
    assert but_copies(result.err) == [read]


@pytest.mark.parametrize("media", OPTIONS)
def test_options_of_the_other_medium_are_refused(media):
    """Guards against an option that is accepted but has no effect."""
    write_piece(Path("music/0.mid"), 1)
    record(Path("audio/0.wav"), 8000)
    (other,) = OPTIONS.keys() - {media}
    for option in OPTIONS[media].split():
        says = f"{option.partition('=')[0]} is for {media}, and {other}/... is {other}"
        call_refused("prepare", other, "-o", "d", option, says=says, status=2)
        call_ok("prepare", media, "-o", "d", "--force", option)


def test_an_interrupted_prepare_says_how_it_goes_on(call, music, monkeypatch):
    """Not of few files, which are soon read again."""
    monkeypatch.setattr("seqmodel.data.prepare.prepare", Mock(side_effect=KeyboardInterrupt))
    for many, options, said in (
        (1000, [], ""),
        (10, [], "with --cache FOLDER, prepare goes on where it was interrupted\n"),
        (1000, ["--cache", "c"], "the same command goes on: c has what was read\n"),
    ):
        monkeypatch.setattr(command, "MANY_FILES", many)
        result = call("prepare", music, "-o", "d", *options)
        assert (result.status, result.out, result.err) == (130, "", said)


@pytest.mark.parametrize(
    ("name", "grid", "mixes"),
    [
        ("run", {"steps_per_beat": 4}, True),
        ("seconds_run", {"step_nanoseconds": 100_000_000}, False),
    ],
)
def test_a_sampled_roll_keeps_its_grid(call, music, name, grid, mixes, request):
    """Sampled on four steps per beat or 0.1 s, it was prepared again as eighths."""
    Path("in").mkdir()
    folder = request.getfixturevalue(name)
    call_ok("sample", "in/o.npy", "--run", folder, "--length", 40, "--seed", 1)
    call_ok("prepare", "in", "-o", "d", "--split-by", "piece")
    manifest = open_dataset("d").manifest
    assert (manifest["frame"]["grid"], "grid_remarks" in manifest) == (grid, False)
    assert np.array_equal(np.load("in/o.npy"), np.load("in/o.npy", mmap_mode="r"))
    theirs = Path("in/o.npy").read_bytes().replace(b"steps_per_beat", b"somebody_elses")
    Path("theirs.npy").write_bytes(theirs.replace(b"step_nanoseconds", b"of_somebody_else"))
    assert call("inspect", "theirs.npy").status == 0
    assert call("prepare", "in", music, "-o", "e").status == (0 if mixes else 1)
