"""What `eval` prints when all is well."""

import json
from pathlib import Path

import pytest
from calling import Call, call_ok

FIGURES = ("nats_per_frame", "nats_per_frame_skip_first", "piece_mean_nats_per_frame")


SCORES = ("accuracy", "precision", "recall")


def test_eval_prints_what_its_json_says(call: Call, data: Path, run: Path):
    """Guards against a table and a JSON that disagree; keys are those of the design."""
    values = json.loads(call("eval", run, "--json").out)
    counts = {"run", "data", "split", "epoch", "pieces", "frames"}
    assert set(values) == {*counts, *FIGURES, *SCORES, "baselines"}
    assert (values["run"], values["data"], values["split"]) == (str(run), str(data), "valid")
    figures = [values[name] for name in (*FIGURES, *SCORES)]
    table = call("eval", run)
    assert table.err == ""
    lines = table.out.splitlines()
    assert lines[0] == f"{run} (lstm, epoch 2) on valid of {data}: 3 pieces, 96 frames"
    assert [line.split()[-1] for line in lines[2:8]] == [f"{figure:.4f}" for figure in figures]
    assert lines[9] == "baselines, nats per frame"
    for line, (name, figure) in zip(lines[10:], values["baselines"].items(), strict=True):
        verdict = "" if values["nats_per_frame"] < figure else "  better than the run"
        assert line == f"  {name.replace('_', ' '):22} {figure:9.4f}{verdict}"
    assert "better than the run" in table.out  # two epochs are not enough


def test_eval_takes_the_newest_run_and_any_split(call: Call, data: Path):
    call_ok("train", data, "--hidden", 4, "--epochs", 1)
    call_ok("train", data, "--hidden", 4, "--epochs", 1, "--unit", "gru")
    values = json.loads(call("eval", "--split", "test", "--json").out)
    assert (values["run"], values["split"], values["frames"]) == ("runs/data-gru-1", "test", 64)


def test_eval_with_end_scores_the_end(call: Call, seconds_run: Path):
    values = json.loads(call("eval", seconds_run, "--json").out)
    assert (
        f"end, nats per piece      {values['end_nats_per_piece']:9.4f}"
        in call("eval", seconds_run).out
    )


def test_eval_on_frames_of_another_kind_warns(call: Call, data: Path, seconds_run: Path):
    """Guards against comparing figures per frame of different frames unawares."""
    warned = call("eval", seconds_run, "--data", data)
    assert warned.status == 0
    assert warned.err == (
        f"{data} was prepared differently from what the run was trained on (4 steps per beat, not "
        "0.1 s per step): its figures are no fair test\n"
    )
    assert call("eval", seconds_run, "--data", data, "-q").err == ""


@pytest.mark.parametrize(
    ("option", "difference"),
    [
        (("--restrike", "discard"), "restrike discard, not restrike close"),
        (("--drums", "keep"), "drums kept, not drums dropped"),
        (("--transpose-to-c",), "transposed to C, not in its own key"),
    ],
)
def test_eval_on_notes_prepared_otherwise_warns(
    call: Call, music: Path, run: Path, option: tuple[str, ...], difference: str
):
    """Guards differences that the size and name of a frame do not show."""
    assert call("prepare", music, "-o", "d", *option).status == 0
    warned = call("eval", run, "--data", "d")
    assert warned.status == 0
    assert warned.err == (
        f"d was prepared differently from what the run was trained on ({difference}): its figures "
        "are no fair test\n"
    )
