"""`train --track`: TensorBoard's curves over a kill, trackers of other packages, and mistakes."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from calling import ENVIRONMENT, call_ok, call_refused
from forking import outcome
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqmodel.runs.folder import read_metrics
from seqmodel.training import loop

README = Path(__file__).parents[2] / "seqmodel" / "training" / "README.md"
SMALL = ("--hidden", 4, "--epochs", 2, "--model", "frame-wise", "--no-end")


def plug_in(folder, code, entry="mine = mine:track"):
    """What installing a package with a tracker would leave in `folder`."""
    name, _, target = entry.partition(" = ")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[seqmodel.trackers]\n{entry}\n")
    (folder / f"{target.partition(':')[0]}.py").write_text(code)


@pytest.fixture
def installed(here, monkeypatch):
    """A function that installs a tracker called mine, of this code."""

    def install(code):
        plug_in(here / "site", code)
        monkeypatch.syspath_prepend(here / "site")
        monkeypatch.delitem(sys.modules, "mine", raising=False)

    return install


def steps_of(run, tag="valid/nats_per_frame"):
    events = EventAccumulator(run, size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars(tag)]


def test_tracking_changes_no_bit_of_the_run(call, data, run):
    """And --force may replace a run that was tracked."""
    call_ok("train", data, *SMALL, "--run", "r", "--track", "tensorboard", "-q")
    assert steps_of("r") == [1, 2]
    for name in ("best.safetensors", "config.yaml"):
        assert Path("r", name).read_bytes() == Path(run, name).read_bytes()
    Path("r/trackers").mkdir()
    Path("r/trackers/mlflow").write_text("the id of a run")
    call_ok("train", data, *SMALL, "--run", "r", "--force", "-q")
    assert not [*Path("r").glob("events*"), *Path("r").glob("trackers")]


STAND_IN = """
import json
def told(*call):
    with open("told", "a") as file: print(json.dumps(call), file=file)
def start_run(run_name): told("start_run", run_name)
def log_params(params): told("log_params", params["unit"])
def log_metrics(metrics, step): told("log_metrics", metrics, step)
def end_run(status): told("end_run", status)
"""


def test_the_tracker_of_the_readme_is_found_and_told(here, data, monkeypatch):
    """The README's example, installed from outside. Of several processes only one tells it."""
    example = re.search(r"```python\n(import mlflow\n.*?)```", README.read_text(), re.DOTALL)
    group, line = re.search(
        r'^\[project\.entry-points\."(.*)"\]\n(.*)$', README.read_text(), re.MULTILINE
    ).groups()
    assert group == "seqmodel.trackers"
    plug_in(here / "site", example[1], line.replace('"', ""))
    (here / "site/mlflow.py").write_text(STAND_IN)
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
        "runpy.run_module('seqmodel', run_name='__main__', alter_sys=True)"
    )
    train = ["train", data, *SMALL, "--processes", 2, "--track", "mlflow", "--run", "r"]
    assert outcome("-c", code, here / "site", *train, env=ENVIRONMENT)[0] == 0
    monkeypatch.syspath_prepend(here / "site")
    for name in ("mlflow", "mytracker"):  # what the test imports must not outlive it
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    call_ok("train", "--resume", "--run", "r", "--track", "mlflow")
    lines = read_metrics(Path("r"))
    begun = [["start_run", "r"], ["log_params", "lstm"]]
    ended = [["end_run", "FINISHED"]]
    epochs = [["log_metrics", line, line["updates"]] for line in lines]
    told = [json.loads(line) for line in Path("told").read_text().splitlines()]
    assert told == [*begun, *epochs, *ended] * 2
    assert len(lines) == 2


def test_a_missing_tensorboard_is_told_what_to_install(data, monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "tensorboard":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "seqmodel.training.tensorboard", raising=False)
    says = "--track tensorboard cannot be loaded: ...; pip install 'seqmodel[track]'"
    call_refused("train", data, "--track", "tensorboard", says=says)
    assert not Path("runs").exists()


RAISES = """
from seqmodel.training.trackers import Listener
def track(config, folder):
    def epoch(line, is_best):
        raise ConnectionError("the server is gone")
    return Listener(epoch=epoch)
"""


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("wandb", "", ": there is no such tracker; choose from mine, tensorboard"),
        ("mine", "1 / 0", " cannot be loaded: ZeroDivisionError: division by zero"),
        ("mine", "def track(config, folder): pass", " returns NoneType, not a Listener"),
        (
            "mine",
            "def track(config, folder): raise OSError('no\\nserver')",
            " failed: OSError: no server; continue the saved run with --resume",
        ),
        (
            "mine",
            RAISES,
            " failed: ConnectionError: the server is gone; continue the saved run with --resume",
        ),
    ],
)
def test_a_tracker_that_fails_is_one_line(call, data, run, installed, name, code, told):
    """What it has trained by then is saved, and ends as if it had never been tracked."""
    installed(code)
    result = call("train", data, *SMALL, "--run", "r", "--track", name)
    assert (result.status, result.out) == (2 if name == "wandb" else 1, "")
    before = 2 if code == RAISES else result.err.startswith("r: lstm")  # title, first epoch
    assert result.err.splitlines()[before:] == [f"seqmodel: --track {name}{told}"]
    if "continue" in told:
        call_ok("train", "--resume", "--run", "r", "-q")
        assert Path("r/best.safetensors").read_bytes() == Path(run, "best.safetensors").read_bytes()
    assert name == "mine" or not Path("r").exists()


def test_what_continues_a_tracked_run_is_told_with_its_tracker(call, data, monkeypatch):
    def stopped(*given, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return likelihood(*given, **more)

    likelihood = loop.likelihood
    monkeypatch.setattr(loop, "likelihood", stopped)
    result = call("train", data, *SMALL, "--track", "tensorboard", "--run", "r", "-q")
    assert result.status == 143
    assert result.err.endswith("`seqmodel train --resume --run r --track tensorboard`\n")
