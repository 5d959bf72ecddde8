"""`train` and `eval` on audio: what they print and write, and one-line errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import Call, call_ok

from seqmodel.config import Config
from seqmodel.data.dataset import Dataset
from seqmodel.runs.folder import load_run, read_metrics


@pytest.fixture(scope="module")
def audio(audio_dataset: Dataset) -> Path:
    return audio_dataset.folder


# ---- train --------------------------------------------------------------------------------------


def test_train_writes_a_run_and_its_figures(call: Call, audio: Path):
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


def printed(call: Call, *arguments: object) -> dict[str, str]:
    result = call("train", *arguments, "--print-config")
    assert (result.status, result.err) == (0, "")
    pairs = dict(line.split(": ", 1) for line in result.out.splitlines())
    assert list(pairs) == list(Config.__dataclass_fields__)
    return pairs


def test_defaults_depend_on_the_medium(call: Call, audio: Path, data: Path):
    """Guards against unrolling whole recordings, or training speech at music's learning rate."""
    ours = printed(call, audio)
    musics = printed(call, data, "--model", "frame-wise", "--no-end")
    told = {name: value for name, value in ours.items() if value != musics[name]}
    assert told == {
        "data": str(audio),
        "model": "sample-wise",
        "hidden": "128",
        "components": "5",
        "dropout": "0.0",
        "learning_rate": "0.003",
        "schedule": "cosine",
        "weight_noise": "0.0",
        "input_noise": "0.6",
        "steering": "1.0",
        "carry_over": "0.75",
        "batch_size": "16",
        "average": "0.0",
        "truncate": "200",
        "epochs": "7",
    }
    frames = printed(call, audio, "--model", "frame-wise")
    told = {name: value for name, value in frames.items() if value != musics[name]}
    assert told == {
        "data": str(audio),
        "dropout": "0.0",
        "learning_rate": "0.004",
        "weight_noise": "0.0",
        "batch_size": "8",
        "truncate": "200",
    }
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
def test_eval_states_what_figures_refer_to(
    call: Call, audio: Path, which: str, unit: str, request: pytest.FixtureRequest
):
    run = request.getfixturevalue(f"{which}_run_folder")
    told = json.loads(call_ok("eval", run, "--data", audio, "--json").out)
    result = call("eval", run, "--batch-size", 1)
    assert (result.status, result.err) == (0, "")
    if which == "audio":
        mean, deviation = told["standardisation"].values()
        names = ["silence", "gaussian"]
        kind = [
            f"samples at the floor     {told['floor_share']:9.4f}",
            f"  densities of (sample - {mean:.3g}) / {deviation:.3g}; add {np.log(deviation):.4f} "
            "nats",
            "  per sample for those of samples in [-1, 1)",
        ]
    else:
        assert told["bits_per_sample"] == pytest.approx(told["nats_per_sample"] / np.log(2))
        names = ["silence", "gaussian", "flac", "lattice"]
        kind = [
            f"bits per sample          {told['bits_per_sample']:9.4f}",
            "  of 16-bit levels, so figures compare whatever the scaling",
        ]
    assert list(told["baselines"]) == names
    assert result.out.splitlines() == [
        f"{run} ({unit}, epoch {told['epoch']}) on valid of {audio}: 2 pieces, 95 frames",
        "",
        f"nats per frame           {told['nats_per_frame']:9.4f}",
        f"  first frames left out  {told['nats_per_frame_skip_first']:9.4f}",
        f"  mean over pieces       {told['piece_mean_nats_per_frame']:9.4f}",
        f"nats per sample          {told['nats_per_sample']:9.4f}",
        *(*kind, "", "baselines, nats per frame"),
        *(
            f"  {name:22} {figure:9.4f}"
            + ("" if told["nats_per_frame"] < figure else "  better than the run")
            for name, figure in told["baselines"].items()
        ),
    ]


def test_eval_compares_samples_with_the_data(
    call: Call, sample_wise_run_folder: Path, recordings: dict[str, list[np.ndarray]]
):
    """Checks some lines of the table against its JSON, and figures of the data directly."""
    plain = call("eval", sample_wise_run_folder).out
    options = (sample_wise_run_folder, "--samples", 2, "--seconds", 0.1, "--seed", 4)
    values = json.loads(call_ok("eval", *options, "--json").out)["samples"]
    header = {"pieces": 2, "frames": 160, "seed": 4, "temperature": 1.0, "lengths": "0.1 s each"}
    assert values | header == values
    for name, key in (("train", "train"), ("split", "valid")):
        lengths = sorted(len(piece) / 8000 for piece in recordings[key])
        shown = [values[name][at] for at in ("shortest", "length", "longest")]
        assert shown == [lengths[0], np.median(lengths), lengths[-1]]
        assert values[name]["voiced_share"] == 1  # tones
    result = call("eval", *options)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"{plain}\n2 samples, 160 frames, seed 4, 0.1 s each\n\n")
    columns = [values[name] for name in ("drawn", "split", "train")]
    for label, key, form in (
        ("piece length, seconds", "length", ".2f"),
        ("frames above -45 dB", "audible_share", ".4f"),
        ("samples clipped", "clipped_share", ".4f"),
    ):
        cells = "".join(f"{column[key]:>10{form}}" for column in columns)
        assert f"{label:27}{cells}\n" in result.out
    spectrum = "".join(f"{column['distances']['spectrum']:>10.2f}" for column in columns[:2])
    assert "distance from training\n  level" in result.out
    assert f"{'  spectrum, dB':27}{spectrum}\n" in result.out


def test_another_rate_is_scored_with_a_warning(call: Call, odd: Path, audio_run_folder: Path):
    """The data can be read, but a model trained at 8 kHz has never seen 4 kHz."""
    result = call("eval", audio_run_folder, "--data", odd / "rate")
    assert result.status == 0
    assert result.err == (
        f"{odd}/rate was prepared differently from what the run was trained on (4,000 Hz, not "
        "8,000 Hz): the figures are not a fair test\n"
    )
    assert "nats per sample" in result.out
    assert call("eval", audio_run_folder, "--data", odd / "rate", "-q").err == ""


def test_silent_training_data_is_reported(call: Call):
    """Used to train on a silent corpus without a warning, and samples from it were noise."""
    for split in ("train", "valid"):
        Path("in", split).mkdir(parents=True)
        soundfile.write(f"in/{split}/a.wav", np.zeros(800), 8000)
    said = (
        "train is silent (all of its samples are equal): there is nothing to learn, and what is "
        "sampled will be noise\n"
    )
    assert said in call("prepare", "in", "-o", "d").err
    result = call("train", "d", "--hidden", 2, "--epochs", 1, "--output", "gaussian")
    assert result.status == 0
    assert result.err.startswith(said)
    Path("in/train").rename("in/test")
    assert said not in call("prepare", "in", "-o", "e").err
