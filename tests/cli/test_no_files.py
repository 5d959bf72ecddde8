"""Non-files that are named like files: a pipe that nobody writes to, an endless device."""

import json
import os
import shutil
from pathlib import Path

import pytest
from calling import write_piece

NAMES = ("a.mid", "b.npy", "c.npz", "d.mat", "e.pickle")


@pytest.fixture
def pipes(here):
    """Pipes with every suffix of music; opening one blocks for ever, which fails these tests."""
    for name in NAMES:
        os.mkfifo(here / name)
    return here


def test_prepare_skips_pipes(call, pipes):
    write_piece(pipes / "train" / "0.mid", 0)
    write_piece(pipes / "valid" / "1.mid", 1)
    result = call("prepare", pipes, "-o", "d")
    assert result.status == 0, result.err
    skipped = json.loads(Path("d/manifest.json").read_text())["skipped"]
    reasons = {Path(skip["source"]).name: skip["reason"] for skip in skipped}
    assert reasons == dict.fromkeys(NAMES, "is not a file")


@pytest.mark.parametrize("prime", ["a.mid", "b.npy", "/dev/zero"])
def test_a_primer_must_be_a_file(call, run, pipes, prime):
    """Guards memory as well: /dev/zero is endless."""
    result = call("sample", "o.mid", "--run", run, "--prime", prime)
    assert (result.status, result.err) == (1, f"seqmodel: --prime {prime}: is not a file\n")


def with_pipe(folder, name):
    """Copy a folder to ./copy, with the file `name` replaced by a pipe."""
    copy = Path("copy")
    shutil.copytree(folder, copy)
    (copy / name).unlink()
    os.mkfifo(copy / name)
    return copy


@pytest.mark.parametrize("name", ["manifest.json", "train.jsonl", "train.npy"])
def test_a_pipe_in_a_dataset_is_an_error(call, data, name):
    result = call("inspect", with_pipe(data, name))
    assert result.status == 1
    assert result.err.count("\n") == 1
    assert "copy" in result.err


@pytest.mark.parametrize("name", ["best.safetensors", "config.yaml", "metrics.jsonl"])
def test_a_pipe_in_a_run_does_not_block(call, run, name):
    copy = with_pipe(run, name)
    for command in (("inspect", copy), ("train", "--resume", "--run", copy, "--epochs", 3, "-q")):
        result = call(*command)
        assert result.err.count("\n") <= 1, result.err


def test_a_pipe_for_a_folders_settings_does_not_block(call, data):
    """It has no writer, unlike the shell's; both looks at what a folder is used to wait for one."""
    Path("runs/r").mkdir(parents=True)
    os.mkfifo("runs/r/config.yaml")
    for options in (("--run", "runs/r", "--force"), ("--resume",)):
        result = call("train", *options, *[data] * ("--force" in options))
        assert (result.status, result.err.count("\n")) == (1, 1), result.err


def test_settings_may_come_from_a_pipe(call, data):
    """Guards `--config <(...)`, the shell's process substitution."""
    reader, writer = os.pipe()
    os.write(writer, b"hidden: 3\n")
    os.close(writer)
    result = call("train", data, "--config", f"/dev/fd/{reader}", "--print-config")
    os.close(reader)
    assert result.status == 0, result.err
    assert "\nhidden: 3\n" in result.out
