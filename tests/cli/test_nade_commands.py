"""A run whose notes depend on each other, from the bundled music to a sampled piece."""

import json
from pathlib import Path

import pytest
from calling import Call, call_ok

from seqmodel.runs.folder import read_metrics

TRAIN = ("train", "--output", "nade", "--nade-hidden", 9, "--hidden", 6, "--end", "--seed", 2)


@pytest.fixture(scope="module")
def bundled_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs on the bundled music."""
    folder = tmp_path_factory.mktemp("bundled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call_ok(*TRAIN, "--epochs", 2, "--run", "run", "-q")
    return folder / "run"


def test_eval_scores_it_alongside_the_trivial_models(call: Call, bundled_run: Path):
    values = json.loads(call("eval", bundled_run, "--json").out)
    best = min(read_metrics(bundled_run), key=lambda line: line["valid_nats_per_frame"])
    for name in ("nats_per_frame", "accuracy", "precision", "recall", "end_nats_per_piece"):
        assert values[name] == pytest.approx(best[f"valid_{name}"], rel=1e-5)
    assert values["nats_per_frame"] < values["baselines"]["marginal"]
    shown = call("eval", bundled_run)
    assert (shown.status, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert [line.split()[-1] for line in lines[2:10]] == [
        f"{values[name]:.4f}"
        for name in (
            *("nats_per_frame", "nats_per_frame_skip_first", "piece_mean_nats_per_frame"),
            *("onset_nats_per_frame", "end_nats_per_piece", "accuracy", "precision", "recall"),
        )
    ]


def test_a_run_trained_further_equals_the_longer_run(call: Call, bundled_run: Path):
    """Guards against losing the output's own weights, or its size, on resume."""
    call_ok(*TRAIN, "--epochs", 1, "--run", "short", "-q")
    call_ok("train", "--resume", "--run", "short", "--epochs", 2, "-q")
    call_ok("sample", "ours.npy", "--run", "short", "-q", "--length", 40)
    call_ok("sample", "theirs.npy", "--run", bundled_run, "-q", "--length", 40)
    assert Path("ours.npy").read_bytes() == Path("theirs.npy").read_bytes()
    ours, theirs = (read_metrics(run)[-1] for run in (Path("short"), bundled_run))
    for name in ("train_nats_per_frame", "valid_nats_per_frame"):
        assert ours[name] == theirs[name]
    changed = call("train", "--resume", "--run", "short", "--nade-hidden", 8)
    assert (changed.status, changed.err) == (
        2,
        "seqmodel: --nade-hidden cannot change on --resume; start a new run with --init-from "
        "short --config short/config.yaml\n",
    )


def test_inspect_shows_the_output(call: Call, bundled_run: Path):
    best = json.loads(call("inspect", bundled_run, "--json").out)["best"]
    assert call("inspect", bundled_run).out == (
        f"{bundled_run}: run of 2 epochs\n"
        "  lstm, 6 hidden, 1 layer\n"
        "  nade output, 9 hidden units\n"
        # The layer (176 + 9 + 1) (6 + 1), V and U 2 * 176 * 9.
        "  4,410 parameters, 8,880 with the output\n"
        f"  trained on {bundled_run.parent / 'runs' / 'sample-music'}, 88 notes struck or held, "
        "4 steps per beat\n"
        f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame, epoch 2; "
        f"accuracy {best['valid_accuracy']:.4f}\n"
    )
