"""Datasets of 8-bit mu-law on the command line, and the models that fit them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

import seqmodel
from seqmodel.data.dataset import open_dataset
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.medium import AUDIO


def record(path, count):
    """Write noise and return its samples as they are read again."""
    Path(path).parent.mkdir(exist_ok=True)
    soundfile.write(path, np.random.default_rng(1).uniform(-0.9, 0.9, count), 8000)
    return soundfile.read(path, dtype="float32")[0]


def test_prepare_inspect_and_eval_files_alike(call):
    """Guards against 16 bits on disk, equal fingerprints, and files read as 16 bits for a run."""
    samples = record("in/a.wav", 8000)
    result = call("prepare", "in", "-o", "d", "--levels", "mu-law")
    assert result.out == (
        "d: 8,000 Hz, frames of 10 samples, context 20, 8-bit mu-law\n"
        "  train  1 piece  640 frames  longest 640  0.8 s\n"
        "  valid  1 piece   72 frames   longest 72  0.1 s\n"
        "  test   1 piece   72 frames   longest 72  0.1 s\n"
    )
    call("prepare", "in", "-o", "linear")
    ours, linear = open_dataset("d"), open_dataset("linear")
    stored = np.load("d/train.npy")
    assert stored.dtype == np.int8
    np.testing.assert_array_equal(stored, mu_law.encode(samples[:6400]))
    heard = ours["train"][0].ravel()
    np.testing.assert_array_equal(heard, mu_law.decode(stored))
    assert ours.frame.deviation == pytest.approx(heard.astype(float).std(), rel=1e-6)
    assert ours.fingerprint() != linear.fingerprint()
    assert ours.frame.differences(linear.frame) == ["8-bit mu-law, not 16 bits"]
    settings = AUDIO.settings_like(ours.frame)
    assert (settings.levels, settings.rate) == ("mu-law", 8000)
    told = call("inspect", "d").out
    assert "8-bit mu-law" in told
    assert "stored as mu-law" in told
    assert call("inspect", "linear").out.count("mu-law") == 0
    assert json.loads(Path("d/manifest.json").read_text())["frame"]["dtype"] == "mu-law"


def test_levels_that_already_fit_do_not_share_a_fingerprint_with_16_bits(call):
    """Guards --resume on other data: such samples are equal, and so are their hashes."""
    Path("in").mkdir()
    levels = np.arange(-128, 128).repeat(40).astype(np.int8)
    soundfile.write("in/a.wav", mu_law.decode(levels), 8000, subtype="PCM_16")
    call("prepare", "in", "-o", "d", "--levels", "mu-law")
    call("prepare", "in", "-o", "e")
    np.testing.assert_array_equal(open_dataset("d")["train"][0], open_dataset("e")["train"][0])
    assert open_dataset("d").fingerprint() != open_dataset("e").fingerprint()


def test_from_recording_to_sample(call):
    """Guards the figures, and samples that are not levels or change level when heard again."""
    record("a.wav", 4000)
    call("prepare", "a.wav", "-o", "d", "--levels", "mu-law")
    result = call("train", "d", "--run", "r", "--hidden", 4, "--epochs", 1, "--input-noise", 0)
    assert (result.status, result.err.splitlines()[0]) == (0, "r: lstm of 4 units on d")
    told = call("eval", "r").out.splitlines()
    assert [line[:24].rstrip() for line in told[6:8]] == ["bits per sample", "  silent samples"]
    nats = seqmodel.load_run("r").nll(open_dataset("d")["valid"][0]).mean() / 10
    values = json.loads(call("eval", "r", "--json").out)
    assert values["bits_per_sample"] == pytest.approx(nats / math.log(2), rel=1e-6)
    assert values["bits_per_sample"] < 8.5
    assert list(values["baselines"]) == ["silence", "gaussian"]

    call("sample", "o.wav", "--run", "r", "--seconds", 0.1, "--seed", 1)
    drawn = soundfile.read("o.wav", dtype="float32")[0]
    assert len(np.unique(drawn)) > 20
    np.testing.assert_array_equal(drawn, mu_law.decode(mu_law.encode(drawn)))
    arguments = ("--run", "r", "--seconds", 0.1, "--prime", "o.wav", "--include-prime")
    assert call("sample", "p.wav", *arguments).status == 0
    both = soundfile.read("p.wav", dtype="float32")[0]
    np.testing.assert_array_equal(both[:800], drawn)
    np.testing.assert_array_equal(both, mu_law.decode(mu_law.encode(both)))
    result = call("eval", "r", "--data", "a.wav")
    assert (result.status, "bits per sample" in result.out) == (0, True)
    assert "mu-law, not" not in result.err
