"""What `train` prints and writes when all is well."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import ENVIRONMENT, call_ok, same_tensors, told
from forking import outcome

from seqmodel.cli import job
from seqmodel.runs.folder import read_metrics

EPOCH = r"epoch {}/2  train +\d+\.\d{{4}}  valid +\d+\.\d{{4}}\*  +[\d,]+ frames/s"


def test_train_prints_plain_lines_without_a_terminal(call, data, run):
    """Guards the log of a job: one line per epoch, no control characters, the result on stdout."""
    result = call("train", data, "--hidden", 4, "--epochs", 2)
    lines = result.err.splitlines()
    assert lines[0] == f"runs/data-lstm-1: lstm of 4 units, lstm of 2 along pitch, on {data}"
    assert re.fullmatch(EPOCH.format(1), lines[1])
    assert re.fullmatch(EPOCH.format(2), lines[2])
    # Two epochs are not enough.
    assert re.match("a trivial model predicts valid at least as well", lines[3])
    assert len(lines) == 4
    assert result.err.replace("\n", "").isprintable()
    nats = read_metrics(Path("runs/data-lstm-1"))[1]["valid_nats_per_frame"]
    out = f"runs/data-lstm-1  best valid {nats:.4f} nats per frame, epoch 2 of 2\n"
    assert result.out == out
    files = {"best.safetensors", "config.yaml", "last.safetensors", "learning-curve.png"}
    assert {f.name for f in Path("runs/data-lstm-1").iterdir()} == files | {"metrics.jsonl"}
    quiet = call("train", data, "--hidden", 4, "--epochs", 1, "--json", "-q")
    values = json.loads(quiet.out)
    assert (quiet.err, set(values), values["best"]["epoch"]) == ("", {"run", "epochs", "best"}, 1)
    assert values["run"] == "runs/data-lstm-2"  # without a name it takes the next number
    assert call_ok("train", "--resume").err.startswith(
        "resuming runs/data-lstm-2, the newest run\n"
    )
    assert told("train", "--resume", "runs/data-lstm-1")["run"] == "runs/data-lstm-1"


@pytest.mark.parametrize(
    ("which", "options", "worse"),
    [
        ("dataset", [], True),
        # It starts better than a single Gaussian.
        ("audio_dataset", ["--model", "frame-wise", "--output", "gaussian"], False),
    ],
)
def test_train_warns_only_when_a_trivial_model_is_better(call, request, which, options, worse):
    """Guards against taking a run that learned nothing for a success; the figures are eval's."""
    train = ["train", request.getfixturevalue(which).folder, "--hidden", 4, "--lr", 1e-9]
    result = call_ok(*train, "--epochs", 1, *options, "--run", "r")
    scores = told("eval", "r")
    baseline, figure = min(scores["baselines"].items(), key=lambda item: item[1])
    assert (figure < scores["nats_per_frame"]) == worse
    line = (
        f"a trivial model predicts valid at least as well ({baseline.replace('_', ' ')}, "
        f"{figure:.4f}): train longer, or with another --learning-rate; `seqmodel eval r` "
        "shows all figures"
    )
    said = [words for words in result.err.splitlines() if words.startswith("a trivial model")]
    assert said == [line] * worse


@pytest.mark.parametrize("options", [[], ["--lr", 0], ["--trials", 2]])
def test_a_run_that_replaces_another_equals_one_in_a_new_folder(call, data, run, options):
    """Guards against remains of the old run, and losing --config, or --init-from at a rate of 0."""
    shutil.copytree(run, "old")
    Path("old/draws/7").mkdir(parents=True)
    Path("link").symlink_to("old")  # which stays a link
    train = ["train", data, "--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end"]
    Path("c.yaml").write_text(call_ok(*train, *options, "--print-config").out)
    new = call_ok(*train, *options, "--init-from", run, "--run", "new")
    replace = ("--config", "c.yaml", "--init-from", run, "--run", "link", "--force")
    assert call_ok("train", *replace).out == new.out.replace("new", "link")
    assert Path("link").is_symlink()
    names = [{str(p.relative_to(old)) for p in old.rglob("*")} for old in map(Path, ("old", "new"))]
    assert names[0] == names[1]
    for name in ("best.safetensors", "config.yaml"):
        assert Path("old", name).read_bytes() == Path("new", name).read_bytes()
    assert {path.name for path in Path().iterdir()} == {"c.yaml", "link", "new", "old"}
    kept = same_tensors("new/best.safetensors", run / "best.safetensors")
    assert kept == ("--lr" in options)
    searched = {"learning rate 1 of 2", "learning rate 2 of 2"} if "--trials" in options else set()
    assert set(re.findall("^learning rate . of .", new.err, re.MULTILINE)) == searched


DIES = """
import os, sys
from pathlib import Path
from seqmodel.cli.main import main
import seqmodel.experiment.search  # once, not in every child
def dying(path, target, rename=Path.replace):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return rename(path, target)
for left in map(int, sys.argv.pop(1).split()):
    if not os.fork():
        sys.argv += ["--run", f"r{left}"]
        Path.replace = lambda path, target: dying(path, target)
        main()
    os.wait()
"""


@pytest.mark.parametrize(
    ("options", "points"),
    [([], range(1, 9)), (["--trials", 2, "--init-from", True], range(1, 9, 2))],
)
def test_a_run_killed_at_its_start_can_be_restarted_or_resumed(call, data, run, options, points):
    """Killed at each of the first writes; a checkpoint without config.yaml used to be neither."""
    options = [run if option is True else option for option in options]
    train = ["train", data, "--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end"]
    train += [*options, "-q"]
    call_ok(*train, "--run", "whole")
    assert outcome("-c", DIES, " ".join(map(str, points)), *train, env=ENVIRONMENT)[0] == 0
    resumed = [Path(f"r{point}").exists() for point in points]
    assert len(set(resumed)) == 2  # the points are well chosen
    for point, there in zip(points, resumed, strict=True):
        again = ["train", "--resume", "-q"] if there else train
        call_ok(*again, "--run", f"r{point}")
        for name in ("best.safetensors", "config.yaml"):
            assert Path(f"r{point}", name).read_bytes() == Path("whole", name).read_bytes()


def test_train_says_when_samples_are_odd(call, write_dataset, tmp_path, monkeypatch):
    """As `sample` does of the same pieces; not after seconds of training, which are a trial."""
    nearly_silent = np.zeros((400, 88), np.uint8)
    nearly_silent[0, 40] = 1
    splits = {"train": [nearly_silent] * 4, "valid": [nearly_silent]}
    data = write_dataset(tmp_path / "nearly-silent", splits).folder
    train = ["train", data, "--hidden", 4, "--epochs", 1, "--lr", 1e-9, "--no-end"]
    assert "disappoint" not in call(*train, "--run", "short").err
    monkeypatch.setattr(job, "LONG_ENOUGH", 0)
    told = call(*train, "--run", "long").err.splitlines()[-1]
    said = call("sample", "x.mid", "--run", "long", "-n", job.SAMPLES, "--seconds", 30).err
    hints = [line.split("long; ")[1] for line in said.splitlines() if "try " in line]
    assert told == f"{len(hints)} of 4 samples may disappoint: {hints[0]}"
