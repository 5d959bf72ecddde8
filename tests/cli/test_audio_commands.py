"""`train` and `eval` on audio: what they print and write, and one-line errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import call_ok

from seqmodel.config import Config
from seqmodel.runs.folder import load_run, read_metrics


@pytest.fixture(scope="module")
def audio(audio_dataset):
    return audio_dataset.folder


# ---- train --------------------------------------------------------------------------------------


def test_train_writes_a_run_and_its_figures(call, audio):
    options = ("--unit", "gru", "--hidden", 6, "--components", 2, "--epochs", 1)
    result = call("train", audio, *options, "--output", "logistic")
    assert result.status == 0
    assert result.err.startswith(f"runs/tones-gru-1: gru of 6 units on {audio}\nepoch 1/1  train ")
    (best,) = read_metrics(Path("runs/tones-gru-1"))
    assert "valid_bits_per_sample" in best
    run = load_run("runs/tones-gru-1")
    assert (run.config.model, run.config.output) == ("sample-wise", "logistic")
    assert (run.config.components, run.config.data) == (2, str(audio))
    gaussian = ("--hidden", 2, "--epochs", 1, "--output", "gaussian")
    again = call("train", audio, *gaussian, "--json", "-q")
    assert again.err == ""
    told = json.loads(again.out)
    assert list(told) == ["run", "epochs", "best"]
    assert {"valid_nats_per_sample", "valid_floor_share"} < set(told["best"])
    assert not any("accuracy" in name for name in told["best"])


def printed(call, *arguments):
    result = call("train", *arguments, "--print-config")
    assert (result.status, result.err) == (0, "")
    pairs = dict(line.split(": ", 1) for line in result.out.splitlines())
    assert list(pairs) == list(Config.__dataclass_fields__)
    return pairs


def test_defaults_depend_on_the_medium(call, audio, data):
    """Guards against unrolling whole recordings, or training speech at music's learning rate."""
    ours = printed(call, audio)
    musics = printed(call, data, "--model", "frame-wise", "--no-end")
    frames = printed(call, audio, "--model", "frame-wise")
    for name, expected in (
        ("model", ["sample-wise", "frame-wise", "frame-wise"]),
        ("learning_rate", ["0.003", "0.004", musics["learning_rate"]]),
        ("truncate", ["200", "200", "0"]),
        ("epochs", ["7", musics["epochs"], musics["epochs"]]),
    ):
        assert [values[name] for values in (ours, frames, musics)] == expected
    assert frames["learning_rate"] != musics["learning_rate"]
    Path("c.yaml").write_text(f"data: {audio}\ntruncate: 50\nbatch_size: 3\n")
    file = printed(call, "--config", "c.yaml", "--batch-size", 4)
    assert (file["data"], file["truncate"], file["batch_size"]) == (str(audio), "50", "4")
    assert file["learning_rate"] == "0.003"
    assert printed(call)["model"] == "tied"  # without data: music


# ---- eval ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "unit"),
    [("audio", "lstm"), ("logistic", "lstm"), ("sample_wise", "sample-wise lstm")],
)
def test_eval_states_what_figures_refer_to(call, audio, which, unit, request):
    run = request.getfixturevalue(f"{which}_run_folder")
    told = json.loads(call_ok("eval", run, "--data", audio, "--json").out)
    result = call("eval", run, "--batch-size", 1)
    assert (result.status, result.err) == (0, "")
    if which == "audio":
        mean, deviation = told["standardisation"].values()
        names = ["silence", "gaussian"]
        kind = f"  densities of (sample - {mean:.3g}) / {deviation:.3g}; add "
    else:
        assert told["bits_per_sample"] == pytest.approx(told["nats_per_sample"] / np.log(2))
        names = ["silence", "gaussian", "flac", "lattice"]
        kind = f"bits per sample          {told['bits_per_sample']:9.4f}\n"
    assert list(told["baselines"]) == names
    heading = f"{run} ({unit}, epoch {told['epoch']}) on valid of {audio}: 2 pieces, 95 frames\n"
    assert result.out.startswith(heading)
    assert f"\nnats per sample          {told['nats_per_sample']:9.4f}\n" in result.out
    assert kind in result.out


def test_silent_training_data_is_reported(call):
    """Used to train on a silent corpus without a warning, and samples from it were noise."""
    for split in ("train", "valid"):
        Path("in", split).mkdir(parents=True)
        soundfile.write(f"in/{split}/a.wav", np.zeros(800), 8000)
    said = (
        "train is silent (all of its samples are equal): there is nothing to learn, and samples "
        "will be noise\n"
    )
    assert said in call("prepare", "in", "-o", "d").err
    result = call("train", "d", "--hidden", 2, "--epochs", 1, "--output", "gaussian")
    assert result.status == 0
    assert result.err.startswith(said)
    Path("in/train").rename("in/test")
    assert said not in call("prepare", "in", "-o", "e").err
