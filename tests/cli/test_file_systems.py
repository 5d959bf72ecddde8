"""File systems that lack something: flushing of folders, locks, room."""

import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

from calling import ENVIRONMENT, call_ok, start

TRAINING = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--epochs", 1)


def failing(number):
    """A function that fails with this error, as a system call does."""

    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    return fail


def test_folders_need_not_be_flushed(call, music, monkeypatch):
    """On CIFS nothing could be prepared or trained."""
    flush, fail = os.fsync, failing(errno.EINVAL)
    monkeypatch.setattr(
        os, "fsync", lambda f: (fail if stat.S_ISDIR(os.fstat(f).st_mode) else flush)(f)
    )
    call_ok("prepare", music, "-o", "d")
    call_ok("train", "d", *TRAINING, "--run", "r", "-q")
    assert sorted(path.name for path in Path().iterdir()) == ["d", "r"]


def test_without_locks_only_what_many_share_is_refused(call, music, monkeypatch):
    """Empty lock files stayed, and a comparison a folder that had half begun."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    call_ok("prepare", music, "-o", "d")
    call_ok("train", "d", *TRAINING, "--run", "r", "-q")
    call_ok("train", "--resume", "--run", "r", "--epochs", 2, "-q")
    call_ok("train", *TRAINING, "--run", "r", "--force", "-q")  # of the sample
    compared = call("compare", "d", "--quick", "--out", "deep/out", "--set", "hidden=4")
    assert (compared.status, compared.out) == (1, "")
    assert compared.err == (
        f"seqmodel: cannot lock files in deep/out ({os.strerror(errno.ENOLCK).lower()}): choose "
        "a folder on a disk of this machine\n"
    )
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
        said.add(name.replace(run, "r", 1))
        if begun:
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
        env={**ENVIRONMENT, "PYTHONPATH": path},
    )
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err == (
        "seqmodel: cannot write o/runs/data/gru/trial-0/best.safetensors: no space left on device; "
        "once there is room, run the same command to resume\n"
    )
