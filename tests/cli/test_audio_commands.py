"""Audio, of 16 bits and of 8-bit mu-law: what commands print and write, and one-line errors."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import call_ok, told

from seqmodel.config import Config
from seqmodel.data.dataset import open_dataset
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.medium import AUDIO
from seqmodel.runs.folder import load_run


@pytest.fixture(scope="module")
def audio(audio_dataset):
    return audio_dataset.folder


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
    names = ("data", "truncate", "batch_size", "learning_rate")
    assert [file[name] for name in names] == [str(audio), "50", "4", "0.003"]
    assert printed(call)["model"] == "tied"  # without data: music


# ---- eval ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "unit"),
    [("audio", "lstm"), ("logistic", "lstm"), ("sample_wise", "sample-wise lstm")],
)
def test_eval_states_what_figures_refer_to(call, audio, which, unit, request):
    run = request.getfixturevalue(f"{which}_run_folder")
    values = told("eval", run, "--data", audio)
    result = call("eval", run, "--batch-size", 1)
    assert (result.status, result.err) == (0, "")
    if which == "audio":
        mean, deviation = values["standardisation"].values()
        names = ["silence", "gaussian"]
        kind = f"  densities of (sample - {mean:.3g}) / {deviation:.3g}; add "
    else:
        names = ["silence", "gaussian", "flac", "lattice"]
        kind = f"bits per sample          {values['bits_per_sample']:9.4f}\n"
    assert list(values["baselines"]) == names
    heading = f"{run} ({unit}, epoch {values['epoch']}) on valid of {audio}: 2 pieces, 95 frames\n"
    assert result.out.startswith(heading)
    assert f"\nnats per sample          {values['nats_per_sample']:9.4f}\n" in result.out
    assert kind in result.out


def test_silent_training_data_is_reported():
    """Used to train on a silent corpus without a warning, and samples from it were noise."""
    for split in ("train", "valid"):
        Path("in", split).mkdir(parents=True)
        soundfile.write(f"in/{split}/a.wav", np.zeros(800), 8000)
    said = "train is silent (all of its samples are equal): there is nothing to learn, and samples"
    assert said in call_ok("prepare", "in", "-o", "d").err
    command = ("train", "d", "--hidden", 2, "--epochs", 1, "--output", "gaussian")
    assert call_ok(*command).err.startswith(said)
    Path("in/train").rename("in/test")
    assert said not in call_ok("prepare", "in", "-o", "e").err


# ---- mu-law -------------------------------------------------------------------------------------


def test_mu_law_is_stored_in_8_bits(call):
    """Guards against 16 bits on disk or for a run's files, and equal fingerprints of equal samples,
    with which --resume would go on with other data."""
    Path("in").mkdir()
    levels = np.random.default_rng(1).integers(-128, 128, 8000, np.int8)
    soundfile.write("in/a.wav", mu_law.decode(levels), 8000)
    result = call("prepare", "in", "-o", "d", "--levels", "mu-law")
    assert result.out.startswith("d: 8,000 Hz, frames of 10 samples, context 20, 8-bit mu-law\n")
    call("prepare", "in", "-o", "linear")
    ours, linear = open_dataset("d"), open_dataset("linear")
    stored = np.load("d/train.npy")
    assert stored.dtype == np.int8
    np.testing.assert_array_equal(stored, levels[:6400])
    heard = ours["train"][0].ravel()
    np.testing.assert_array_equal(heard, mu_law.decode(stored))
    np.testing.assert_array_equal(heard, linear["train"][0].ravel())
    assert ours.frame.deviation == pytest.approx(heard.astype(float).std(), rel=1e-6)
    assert ours.fingerprint() != linear.fingerprint()
    assert ours.frame.differences(linear.frame) == ["8-bit mu-law, not 16 bits"]
    settings = AUDIO.settings_like(ours.frame)
    assert (settings.levels, settings.rate) == ("mu-law", 8000)
    for name, there in (("d", True), ("linear", False)):
        shown = call("inspect", name).out
        assert ("8-bit mu-law" in shown, "stored as mu-law" in shown) == (there, there)


def test_from_recording_to_sample(call):
    """Guards the figures, and samples that are not levels or change level when heard again."""
    soundfile.write("a.wav", np.random.default_rng(1).uniform(-0.9, 0.9, 4000), 8000)
    call_ok("prepare", "a.wav", "-o", "d", "--levels", "mu-law")
    call_ok("train", "d", "--run", "r", "--hidden", 4, "--epochs", 1, "--input-noise", 0)
    nats = load_run("r").nll(open_dataset("d")["valid"][0]).mean() / 10
    values = told("eval", "r")
    assert values["bits_per_sample"] == pytest.approx(nats / math.log(2), rel=1e-6)
    assert values["bits_per_sample"] < 8.5
    assert list(values["baselines"]) == ["silence", "gaussian"]

    call_ok("sample", "o.wav", "--run", "r", "--seconds", 0.1, "--seed", 1)
    drawn = soundfile.read("o.wav", dtype="float32")[0]
    assert len(np.unique(drawn)) > 20
    np.testing.assert_array_equal(drawn, mu_law.decode(mu_law.encode(drawn)))
    prime = ("--prime", "o.wav", "--include-prime")
    call_ok("sample", "p.wav", "--run", "r", "--seconds", 0.1, *prime)
    both = soundfile.read("p.wav", dtype="float32")[0]
    np.testing.assert_array_equal(both[:800], drawn)
    np.testing.assert_array_equal(both, mu_law.decode(mu_law.encode(both)))
    assert "mu-law, not" not in call_ok("eval", "r", "--data", "a.wav").err
