"""What `eval` prints when all is well, also of several runs, whose average `sample` draws from."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import call_ok, call_refused, told

from seqmodel.data.dataset import Split, open_dataset

FIGURES = ("nats_per_frame", "nats_per_frame_skip_first", "piece_mean_nats_per_frame")
SCORES = ("accuracy", "precision", "recall")


def test_eval_prints_what_its_json_says(call, data, run):
    """Guards against a table and JSON that disagree; the keys are those of the design."""
    values = told("eval", run)
    counts = {"run", "data", "split", "epoch", "pieces", "frames"}
    assert set(values) == {*counts, *FIGURES, *SCORES, "baselines", "copies"}
    assert (values["run"], values["data"], values["split"]) == (str(run), str(data), "valid")
    figures = [values[name] for name in (*FIGURES, *SCORES)]
    table = call("eval", run)
    assert table.err == ""
    lines = table.out.splitlines()
    assert lines[0] == f"{run} (lstm, epoch 2) on valid of {data}: 3 pieces, 96 frames"
    assert [line.split()[-1] for line in lines[2:8]] == [f"{figure:.4f}" for figure in figures]
    assert lines[9] == "baselines, nats per frame"
    for line, (name, figure) in zip(lines[10:13], values["baselines"].items(), strict=True):
        verdict = "" if values["nats_per_frame"] < figure else "  better than the run"
        assert line == f"  {name.replace('_', ' '):22} {figure:9.4f}{verdict}"
    assert "better than the run" in table.out  # two epochs are not enough
    assert lines[13:] == [
        *("", "share of frames that are in train too, in any key"),
        *(f"  in windows of {n:>2} frames   {share:9.4f}" for n, share in values["copies"].items()),
    ]


def test_copies_are_reported(call, music, monkeypatch):
    """Guards what `prepare`, `inspect` and `eval` say of a passage of train in another key."""
    for split, name in (("train", "a"), ("valid", "b")):
        Path("m", split).mkdir(parents=True)
        np.save(f"m/{split}/{name}.npy", np.eye(48, 88, 3 * (name == "b"), np.uint8))
    shares = {"8": 1.0, "16": 1.0, "32": 1.0}
    said = "100.0% of valid repeats 8 or more frames of train, in any key; "
    said += "100.0% 16 or more, 100.0% 32 or more"
    assert said in call("prepare", "m", "-o", "d").err
    assert json.loads(Path("d/manifest.json").read_text())["copies"] == {"valid": shares}
    assert f"  {said}" in call("inspect", "d").out.splitlines()
    call_ok("train", "d", "--hidden", 4, "--epochs", 1)
    assert told("eval")["copies"] == shares
    assert told("eval", "--data", music / "valid")["copies"] == dict.fromkeys(shares, 0.0)
    assert "copies" not in told("eval", "--split", "train")
    np.save("m/valid/c.npy", np.eye(48, 88, dtype=np.uint8)[::-1])  # down
    for frames, share in ((96, 0.5), (40, 1.0)):  # of all, or of as many as are enough
        monkeypatch.setattr(Split.subsample, "__defaults__", (frames,))
        found = told("prepare", "m", "-o", "d", "--force")["copies"]["valid"]
        assert found == dict.fromkeys(shares, share)


def test_eval_with_voices(call, data):
    """Guards figures that do not add up, and voices asked for where nobody knows them."""
    chorale = [[72, 67, 64, 48], [72, 67, 64, 48], [71, 67, 62, 43], [-1, 67, 67, 43]] * 8
    Path("a.json").write_text(json.dumps({"train": [chorale] * 3, "valid": [chorale, chorale[4:]]}))
    call_ok("prepare", "a.json", "-o", "d")
    call_ok("train", "d", "--hidden", 4, "--epochs", 1, "--run", "r")
    values = told("eval", "r", "--voices")
    voices = values["voices"]
    assert voices["notes"] == 4 * values["frames"] == 4 * (32 + 28)
    total = values["nats_per_frame"] + voices["assignment_nats_per_frame"]
    assert math.isclose(voices["nats_per_frame"], total)
    assert math.isclose(voices["nats_per_note"], total / 4)
    assert 0 < voices["assignment_nats_per_frame"] < 0.2
    table = call("eval", "r", "--voices").out
    assert f"\nwith voices              {total:9.4f}\n  which voice sings what " in table
    assert f"\n  per note, rests too    {total / 4:9.4f}\n" in table
    files = told("eval", "r", "--data", "a.json", "--voices")
    assert files["voices"]["notes"] == 4 * (4 * 32 + 28)
    says = "...--voices needs pieces that state which voice sings what"
    call_refused("eval", "r", "--data", data, "--voices", says=says)
    call_refused("eval", "r", "--voices", "--per-frame", says="...exclude each other", status=2)


def test_eval_compares_samples_with_the_data(call, data, run):
    """Checks some lines of the table against its JSON, and figures of the data directly."""
    plain = call("eval", run).out
    values = told("eval", run, "--samples", 4)["samples"]
    header = {"pieces": 4, "frames": 128, "seed": 1, "lengths": "as long as pieces of valid"}
    assert values | header == values
    train = open_dataset(data)["train"]
    assert values["train"]["notes_per_frame"] == train.totals().sum() / train.frames
    assert values["train"]["voices_share"] == 1
    assert values["split"]["long_note_share"] < 1
    result = call("eval", run, "--samples", 4)
    assert result.err == ""
    assert result.out.startswith(
        f"{plain}\n4 samples, 128 frames, seed 1, as long as pieces of valid\n\n"
        f"{'':27}{'samples':>10}{'valid':>10}{'training':>10}\n"
    )
    columns = [values[name] for name in ("drawn", "split", "train")]
    for label, key in (
        ("notes per frame", "notes_per_frame"),
        ("frames of 2 notes", "voices_share"),
        ("  pieces with a chord drone", "long_chord_share"),
        ("  share of the piece", "copied_share"),
    ):
        cells = (f"{column[key]:>10.4f}" if key in column else "" for column in columns)
        assert f"{label:27}{''.join(cells)}\n" in result.out
    for name, distance in columns[0]["distances"].items():
        cells = f"{distance:>10.4f}{columns[1]['distances'][name]:>10.4f}"
        assert f"{'  ' + name.replace('_', ' '):27}{cells}\n" in result.out


def test_eval_on_frames_of_another_kind_warns(call, music, data, run, seconds_run):
    """Guards against unknowingly comparing figures of different frames, or of other notes."""
    said = f"{data} was prepared differently from the run's training data (4 steps per beat, not "
    said += "0.1 s per step): the figures are not a fair test\n"
    assert call_ok("eval", seconds_run, "--data", data).err == said
    assert call("eval", seconds_run, "--data", data, "-q").err == ""
    call_ok("prepare", music, "--no-onsets", "-o", "d", "--restrike=discard", "--drums=keep")
    said = "(restrike discard, not restrike close; drums kept, not drums dropped)"
    assert said in call_ok("eval", run, "--data", "d").err


# ---- several runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(shared, data):
    """The tied model on the data of `run`, as a zip."""
    options = ("--hidden", 4, "--epochs", 1, "--no-end")
    call_ok("train", data, *options, "--run", shared / "other")
    call_ok("export", shared / "other", shared / "other.zip")
    return shared / "other.zip"


def test_eval_of_several_runs_shows_their_average_and_each(call, run, other, data):
    values = told("eval", run, other, "--data", data)
    assert [one["run"] for one in values["runs"]] == [str(run), str(other)]
    table = call("eval", run, other, "--data", data).out.splitlines()
    assert table[0] == f"the average of 2 runs on valid of {data}: 3 pieces, 96 frames"
    assert table[2].split()[-1] == f"{values['nats_per_frame']:.4f}"
    start = table.index("each run by itself, nats per frame") + 1
    for line, one in zip(table[start:], values["runs"], strict=False):
        assert line.split() == [one["run"], f"{one['nats_per_frame']:.4f}"]
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
        call_refused("eval", *names, says=f"...{why}", status=1 if "none" in names else 2)
    assert "differs from" not in call("eval", run, "r", "--data", data).err


def test_sample_draws_from_the_average(call, run, other):
    """The same for the same seed, and not what one of the runs draws alone."""
    both = ("--run", run, "--run", other)
    said = call("sample", "a.mid", *both, "--length", 24).err
    assert said.startswith("a.mid: 24 frames from the average of 2 runs")
    values = told("sample", "b.mid", *both, "--length", 24)
    assert values["runs"] == [str(run), str(other)]
    assert values["pieces"] == [{"path": "b.mid", "frames": 24, "ended_by": "limit"}]
    for k, one in enumerate((run, other)):
        call_ok("sample", f"{k}.mid", "--run", one, "--length", 24)
    drawn = [Path(f"{name}.mid").read_bytes() for name in ("a", "b", "0", "1")]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    for option in (("--best-of", 2), ("--fill", "a.mid")):
        says = f"several runs and {option[0]} exclude each other"
        call_refused("sample", "c.mid", *both, *option, says=says, status=2)
