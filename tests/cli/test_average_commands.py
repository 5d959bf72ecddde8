"""`eval` and `sample` with several runs: their average."""

import json
import shutil
from pathlib import Path

import pytest
from calling import call_ok


@pytest.fixture(scope="module")
def other(shared, data):
    """The tied model on the data of `run`, as a zip."""
    options = ("--hidden", 4, "--epochs", 1, "--no-end")
    call_ok("train", data, *options, "--run", shared / "other")
    call_ok("export", shared / "other", shared / "other.zip")
    return shared / "other.zip"


def test_eval_of_several_runs_shows_their_average_and_each(call, run, other, data):
    values = json.loads(call("eval", run, other, "--data", data, "--json").out)
    alone = [json.loads(call("eval", one, "--data", data, "--json").out) for one in (run, other)]
    assert [one["run"] for one in values["runs"]] == [str(run), str(other)]
    assert "run" not in values
    assert "accuracy" not in values
    table = call("eval", run, other, "--data", data).out.splitlines()
    assert table[0] == f"the average of 2 runs on valid of {data}: 3 pieces, 96 frames"
    assert table[2].split()[-1] == f"{values['nats_per_frame']:.4f}"
    start = table.index("each run by itself, nats per frame") + 1
    for line, one, by_itself in zip(table[start:], values["runs"], alone, strict=False):
        assert line.split() == [one["run"], f"{by_itself['nats_per_frame']:.4f}"]
        assert one["nats_per_frame"] == by_itself["nats_per_frame"]
    better = sum(nats < values["nats_per_frame"] for nats in values["baselines"].values())
    assert sum(line.endswith("better than the average") for line in table) == better


def test_runs_that_cannot_be_averaged_are_refused(call, run, other, data, seconds_run, music):
    """In one line that names the run and the reason, before anything is scored."""
    shutil.copytree(music, "fewer")
    Path("fewer/train/0.mid").unlink()
    call_ok("prepare", "fewer", "--no-onsets", "--out", "d")
    call_ok("train", "d", "--hidden", 4, "--epochs", 1, "--no-end", "--run", "r")
    for names, why in (
        ((run, seconds_run), f"{seconds_run} differs from {run} (0.1 s per step, not "),
        ((run, "none"), "there is no run none"),
        ((run, "r"), f"{run} was trained on {data}, but r was not: name the data to score "),
        ((run, other, "--samples", 2), "several runs and --samples exclude each other"),
    ):
        refused = call("eval", *names)
        assert (refused.status > 0, refused.out) == (True, "")
        assert why in refused.err
        assert refused.err.count("\n") == 1
    assert "differs from" not in call("eval", run, "r", "--data", data).err


def test_sample_draws_from_the_average(call, run, other):
    """The same for the same seed, and not what one of the runs draws alone."""
    both = ("--run", run, "--run", other)
    told = call("sample", "a.mid", *both, "--length", 24).err
    assert told.startswith("a.mid: 24 frames from the average of 2 runs")
    values = json.loads(call("sample", "b.mid", *both, "--length", 24, "--json").out)
    assert values["runs"] == [str(run), str(other)]
    assert values["pieces"] == [{"path": "b.mid", "frames": 24, "ended_by": "limit"}]
    for k, one in enumerate((run, other)):
        call_ok("sample", f"{k}.mid", "--run", one, "--length", 24)
    drawn = [Path(f"{name}.mid").read_bytes() for name in ("a", "b", "0", "1")]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    for option in (("--best-of", 2), ("--fill", "a.mid")):
        refused = call("sample", "c.mid", *both, *option)
        assert (refused.status, refused.out) == (2, "")
        assert f"several runs and {option[0]} exclude each other" in refused.err
