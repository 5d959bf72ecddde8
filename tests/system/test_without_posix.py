"""The main job where POSIX's names are missing and open files cannot be replaced, as on Windows."""

import json
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from calling import call_ok
from forking import Forked, outcome
from safetensors.numpy import load_file

SCRIPT = Path(__file__).parent.parent / "without_posix.py"
MUSIC = Path(__file__).parents[2] / "sample_data" / "music"
SETTINGS = {"model": "frame-wise", "hidden": 5, "dropout": 0, "epochs": 3, "batch_size": 2}
SETTINGS |= {"truncate": 16, "weight_noise": 0.1, "end": "false"}
TRAIN = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
TRAIN[-1] = "--no-end"
COMPARE = ("compare", "data", "--units", "lstm", "--search", "none", "--seeds", 1, "--jobs", 1)
COMPARE += tuple(f"--set={name}={value}" for name, value in SETTINGS.items())
SEVERAL = """
import gc, json, sys
sys.path.insert(0, sys.argv[1])
import without_posix
from seqmodel.cli.main import main
for words in json.loads(sys.argv[2]):
    sys.argv = ["seqmodel", *words]
    try:
        main()
    except SystemExit as end:
        assert (end.code or 0) == 2 * ("--processes" in words), words
    gc.collect()  # nothing that this command has mapped stays open
"""
"""Runs commands one after another in a process without POSIX."""
REFUSED = re.compile(r'[<>:"\\|?*\0-\x1f]|[ .]$|(?i:^(con|prn|aux|nul|com\d|lpt\d)(\.|$))')
"""In names that Windows refuses."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it takes Linux's names away")


@pytest.fixture
def less(tmp_path, monkeypatch):
    """Run commands in a process without POSIX, one as for Linux alone; what they print and say."""
    monkeypatch.chdir(tmp_path)
    for split in ("train", "valid", "test"):
        (tmp_path / "music" / split).mkdir(parents=True)
        for path in sorted((MUSIC / split).iterdir())[:3]:
            (tmp_path / "music" / split / path.name).write_bytes(path.read_bytes())

    def run(*commands):
        words = json.dumps([[*map(str, command)] for command in commands])
        status, out, err = outcome("-c", SEVERAL, SCRIPT.parent, words)
        assert status == 0, err
        return out, err

    return run


def command(*arguments):
    """As a user of this system runs it."""
    return call_ok(*arguments).out


@pytest.mark.usefixtures("no_pages")  # of the comparison with POSIX
def test_the_main_job_gives_the_same_without_posix(less, tmp_path):
    """Guards names that only POSIX has, and files renamed, replaced or removed while they are open.

    The training is killed on its way, and resumed.
    """
    prepare = ("prepare", "music", "--out", "data", "-q")
    less(prepare, (*prepare, "--force"))
    with Forked([str(SCRIPT), "train", "data", *TRAIN, "--run", "a", "-q"], text=True) as process:
        while process.poll() is None and not Path("a/best.safetensors").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    command("train", "data", *TRAIN, "--run", "b", "-q")
    shutil.copytree("b", "c")
    sample = ("sample", "--run", "b", "--length", 16, "--seed", 3)
    told, err = less(
        ("train", "--resume", "--run", "a", "-q"),
        ("train", "data", *TRAIN, "--run", "c", "--force", "-q"),
        (*sample, "a.mid"),
        ("eval", "b", "--json"),
        ("train", "data", "--processes", 2, "--run", "d"),
    )
    _, refusal = err.splitlines()  # the first says what was sampled
    assert "no process groups" in refusal
    for name in ("best", "last"):
        one, other, third = (load_file(f"{run}/{name}.safetensors") for run in "abc")
        assert one.keys() == other.keys() == third.keys()
        assert all((one[key] == other[key]).all() for key in one)
        assert all((one[key] == third[key]).all() for key in one)
    assert json.loads(told[told.index("{") :]) == json.loads(command("eval", "b", "--json"))
    command(*sample, "b.mid")
    assert Path("a.mid").read_bytes() == Path("b.mid").read_bytes()
    interrupted = False
    while not interrupted:  # unless all was done before this process had its turn
        shutil.rmtree("e", ignore_errors=True)
        with Forked([str(SCRIPT), *map(str, COMPARE), "--out", "e", "-q"], text=True) as process:
            while process.poll() is None and not [*Path().glob("e/runs/*/*/*/last.safetensors")]:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)  # which its processes do not get
        interrupted = process.returncode == 128 + signal.SIGINT
        assert interrupted or process.returncode == 0
    status, told, err = outcome(SCRIPT, *COMPARE, "--out", "e", "--json", "-q")
    assert status == 0, err
    assert told == command(*COMPARE, "--out", "f", "--json")
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert len({name.casefold() for name in names}) == len(names)
    assert not [n for n in names if any(map(REFUSED.search, n.split("/")))]
    left = [n for n in names if "seqmodel-" in n]
    assert len(left) < 2
    assert all(n.startswith("a/.") for n in left)  # what was written when it was killed
