"""Targets in use, pipes in place of files, names of any kind, file systems that lack something."""

import errno
import fcntl
import os
import shutil
import sys
import warnings
from pathlib import Path

import pytest
from calling import ENVIRONMENT, PATIENCE, PNG, call_ok, call_refused, start, told, write_piece
from forking import LOADS_ANEW

from seqmodel.data.bundled import sample_dataset
from seqmodel.files import locked
from seqmodel.training import loop

MODEL = ("--model", "frame-wise", "--no-end", "--hidden", 4)
TRAINING = (*MODEL, "--epochs", 1)

# ---- two commands, one target --------------------------------------------------------------------

IN_USE = "another process is writing {}: wait for it to finish, or choose another path"


def test_a_second_training_leaves_the_first_alone(data, monkeypatch):
    """Used to mix the config of one with the weights of the other, and exit 0 from both."""
    likelihood = loop.likelihood

    def meanwhile(*given, **more):
        for options in ((data, "--unit", "gru"), (data, "--force"), ("--resume",)):
            call_refused("train", *options, "--run", "run", says=IN_USE.format("run"))
        return likelihood(*given, **more)

    monkeypatch.setattr(loop, "likelihood", meanwhile)
    call_ok("train", data, *TRAINING, "--unit", "lstm", "--run", "run", "-q")
    assert not list(Path().glob(".*"))
    assert told("inspect", "run")["config"]["unit"] == "lstm"


def test_a_run_that_another_process_is_about_to_begin_is_not_resumed():
    """It was said to be no run folder, as if the name were wrong."""
    with locked(Path("run")):  # as `train` holds it while it reads the data
        call_refused("train", "--resume", "--run", "run", says=IN_USE.format("run"))
    assert not [*Path().iterdir()]


def test_a_second_prepare_fails_before_it_starts(music):
    with locked(Path("data")):
        says = IN_USE.format("data")
        call_refused("prepare", music, "--out", "data", "--force", says=says)
    call_ok("prepare", music, "--out", "data", "--force")
    assert [path.name for path in Path().iterdir()] == ["data"]


# ---- pipes and devices that are named like files -------------------------------------------------

NAMES = ("a.mid", "b.npy", "c.npz", "d.mat", "e.pickle")


@pytest.fixture
def pipes(here):
    """Pipes with every suffix of music; opening one blocks for ever, which fails these tests."""
    for name in NAMES:
        os.mkfifo(here / name)
    return here


def test_files_must_be_files(run, pipes):
    """Guards memory as well: /dev/zero is endless."""
    for prime in ("a.mid", "b.npy", "/dev/zero"):
        says = f"--prime {prime}: is not a file"
        call_refused("sample", "o.mid", "--run", run, "--prime", prime, says=says)
    write_piece(pipes / "train" / "0.mid", 0)
    write_piece(pipes / "valid" / "1.mid", 1)
    skipped = told("prepare", pipes, "-o", "d")["skipped"]
    reasons = {Path(skip["source"]).name: skip["reason"] for skip in skipped}
    assert reasons == dict.fromkeys(NAMES, "is not a file")


@pytest.mark.parametrize(
    ("which", "name"),
    [
        *(("data", name) for name in ("manifest.json", "train.jsonl", "train.npy")),
        *(("run", name) for name in ("best.safetensors", "config.yaml", "metrics.jsonl")),
    ],
)
def test_a_pipe_in_a_dataset_or_run_does_not_block(call, request, which, name):
    shutil.copytree(request.getfixturevalue(which), "copy")
    Path("copy", name).unlink()
    os.mkfifo(Path("copy", name))
    result = call("inspect", "copy")
    if which == "data":
        assert (result.status, result.err.count("\n"), "copy" in result.err) == (1, 1, True)
        return
    assert result.err.count("\n") <= 1, result.err
    result = call("train", "--resume", "--run", "copy", "--epochs", 3, "-q")
    assert result.err.count("\n") <= 1, result.err


def test_a_pipe_for_a_folders_settings_does_not_block(data):
    """It has no writer, unlike the shell's; both looks at what a folder is used to wait for one."""
    Path("runs/r").mkdir(parents=True)
    os.mkfifo("runs/r/config.yaml")
    for options in ((data, "--run", "runs/r", "--force"), ("--resume",)):
        call_refused("train", *options, says="...")


def test_settings_may_come_from_a_pipe(data):
    """Guards `--config <(...)`, the shell's process substitution."""
    reader, writer = os.pipe()
    os.write(writer, b"hidden: 3\n")
    os.close(writer)
    config = call_ok("train", data, "--config", f"/dev/fd/{reader}", "--print-config").out
    os.close(reader)
    assert "\nhidden: 3\n" in config


# ---- names that are not UTF-8, control the terminal, or lack a glyph -----------------------------

RAW = os.fsdecode(b"caf\xe9") + "\x1b]0;owned\x07\x1b[2Jre\nd"


@pytest.fixture
def clean(call):
    """A function that runs a command, which succeeds and prints lines of printable characters."""

    def run(*arguments):
        shown = call(*arguments)
        said = shown.out + shown.err
        assert (shown.status, said.replace("\n", "").isprintable()) == (0, True), arguments

    return run


@pytest.fixture
def odd(request, here):
    name = str(request.param)
    try:
        (here / name).touch()
    except OSError as error:
        pytest.skip(f"this file system refuses the name: {error}")
    (here / name).unlink()
    return name


@pytest.mark.parametrize("odd", [RAW, "音楽 $\\frac$", "a$b$ \u202egpj"], indirect=True, ids=ascii)
def test_a_file_of_any_name_can_be_inspected_and_plotted(odd, call, clean):
    """Guards against names that reach the terminal raw, matplotlib's warnings and its mathtext."""
    path = Path("music", odd, f"{odd}.mid")
    write_piece(path, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean("inspect", path, "--plot", f"{odd}.png")
    assert Path(f"{odd}.png").read_bytes().startswith(PNG)
    assert call("inspect", path, "--json").status == 0
    clean("prepare", "music", "-o", f"{odd}-data")
    clean("inspect", f"{odd}-data", "--plot", "data.png")


@pytest.mark.parametrize("odd", [RAW], indirect=True, ids=ascii)
def test_a_run_folder_may_have_any_name(odd, data, call, clean):
    """Guards against a run that trains but then counts as damaged because of its name."""
    given, run = Path(odd, "data"), Path(odd, "run")
    shutil.copytree(data, given)
    clean("train", given, *TRAINING, "--run", run)
    clean("eval", run)
    clean("inspect", run, "--plot", Path(odd, "curve.png"))
    clean("sample", Path(odd, "o.png"), "--run", run, "--length", 4)
    clean("report", run, "--out", Path(odd, "r.html"))
    clean("train", "--resume", "--run", run, "--epochs", 2)
    clean("train", given, *TRAINING, "--run", run, "--force", "-q")  # recognised as a run
    (run / "best.safetensors").write_bytes(b"x")
    assert "best.safetensors is damaged" in call("eval", run).err


# ---- file systems without locks or room ----------------------------------------------------------


def failing(number):
    """A function that fails with this error, as a system call does."""

    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    return fail


def test_without_locks_only_what_many_share_is_refused(music, monkeypatch):
    """Empty lock files stayed, and a comparison a folder that had half begun."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    call_ok("prepare", music, "-o", "d")
    call_ok("train", "d", *TRAINING, "--run", "r", "-q")
    call_ok("train", "--resume", "--run", "r", "--epochs", 2, "-q")
    call_ok("train", "d", *TRAINING, "--run", "r", "--force", "-q")
    assert sample_dataset(Path("runs")).is_dir()
    says = f"cannot lock files in deep/out ({os.strerror(errno.ENOLCK).lower()}): choose a folder"
    call_refused("compare", "d", "--quick", "--out", "deep/out", "--set", "hidden=4", says=says)
    there = [path.as_posix() for path in (*Path().iterdir(), *Path("runs").iterdir())]
    assert sorted(there) == ["d", "r", "runs", "runs/sample-music"]


def test_a_training_that_filled_the_disk_says_how_to_go_on(call, data, monkeypatch):
    """It said only that last.safetensors could not be written, or a file of a temporary name."""
    flush, fail, flushed = os.fsync, failing(errno.ENOSPC), 0

    def flush_some(file):
        nonlocal flushed
        flushed += 1
        (fail if flushed > last else flush)(file)

    monkeypatch.setattr(os, "fsync", flush_some)
    last, said = 999, set()
    call_ok("train", data, *TRAINING, "--run", "whole", "-q")
    for last in range(flushed):
        flushed, run = 0, f"r{last}"
        result = call("train", data, *TRAINING, "--run", run, "-q")
        assert (result.status, result.out) == (1, "")
        again = f"; once there is room, continue with `seqmodel train --resume --run {run}`"
        name = result.err.split()[3].removesuffix(":")
        begun = name != run and Path(run).exists()
        assert result.err == (
            f"seqmodel: cannot write {name}: no space left on device{again * begun}\n"
        )
        first = name.replace(run, "r", 1) not in said
        said.add(name.replace(run, "r", 1))
        if begun and first:
            flushed = -999
            call_ok("train", "--resume", "--run", run, "-q")
            curve = [(path / "metrics.jsonl").read_text() for path in map(Path, (run, "whole"))]
            assert [text.count("epoch") for text in curve] == [1, 1]
    assert said >= {"r", "r/last.safetensors", "r/best.safetensors", "r/metrics.jsonl"}
    assert not list(Path().glob(".*"))


def test_a_comparison_that_filled_the_disk_says_how_to_go_on(data, here):
    """Also where a process of its own cannot write, whose error loses its kind on the way."""
    (here / "sitecustomize.py").write_text(
        "import os\n"
        "flush = os.fsync\n"
        "def full(file):\n"
        "    if '.best.safetensors' in os.readlink(f'/proc/self/fd/{file}'):\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    flush(file)\n"
        "os.fsync = full\n"
    )
    path = os.pathsep.join([str(here), *sys.path])
    process = start(
        *("compare", data, "--units", "gru", "--set", "hidden=4", "--set", "model=frame-wise"),
        *("--out", "o", "-q", "--quick"),
        env={**ENVIRONMENT, "PYTHONPATH": path, LOADS_ANEW: "1"},
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    name = "o/runs/data/gru/trial-0/best.safetensors"
    assert err.startswith(f"seqmodel: cannot write {name}: no space left on device; once there is")
