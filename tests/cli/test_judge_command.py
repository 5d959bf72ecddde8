"""The judge of samples: what it tells apart, of recordings made here."""

import json

import numpy as np
import pytest
import soundfile
from calling import call_ok

from seqmodel.data.dataset import open_dataset

RATE = 8000


def whistle(random: np.random.Generator, *, rising: bool) -> np.ndarray:
    """A tone that rises or falls by two octaves, of any length and loudness, amid silence."""
    length = int(random.uniform(0.15, 0.4) * RATE)
    octaves = np.linspace(0, 2, length) + random.uniform(-0.3, 0.3)
    tone = np.sin(2 * np.pi * np.cumsum(500 * 2**octaves) / RATE) * random.uniform(0.05, 0.5)
    hiss = 0.001 * random.standard_normal(length)
    return np.pad((tone if rising else tone[::-1]) + hiss, random.integers(0, RATE // 4, 2))


@pytest.fixture(scope="module")
def whistles(tmp_path_factory: pytest.TempPathFactory):
    """A dataset of both, train with a few of noise without the label, and a run told which."""
    folder, random = tmp_path_factory.mktemp("whistles"), np.random.default_rng(0)
    for split, count in {"train": 20, "valid": 8}.items():
        (folder / "wav" / split).mkdir(parents=True)
        for k in range(count):
            for way in ("up", "down"):
                samples = whistle(random, rising=way == "up")
                soundfile.write(folder / "wav" / split / f"{way}_{k}.wav", samples, RATE)
            noise = 0.1 * random.standard_normal(RATE // 8)
            soundfile.write(folder / "wav" / split / f"noise{k}.wav", noise, RATE)
    call_ok("prepare", folder / "wav", "--labels", "{way}_*", "-q", "-o", folder / "data")
    quick = ("--unit", "gru", "--hidden", 2, "--components", 1, "--epochs", 1, "-q")
    call_ok("train", folder / "data", *quick, "--run", folder / "run")
    return folder


def test_the_order_of_sounds_is_told_not_only_which_there_are(call, whistles):
    """The spectra of both are the same; samples, of a model that has learned little, are noise."""
    options = ("--samples", 8, "--seconds", 0.2, "--judge", "way")
    judged = json.loads(call("eval", whistles / "run", *options, "--json").out)["samples"]["judge"]
    assert judged["label"] == "way"
    assert judged["split"] == 1.0
    assert 0 <= judged["drawn"] < 1
    shown = call("eval", whistles / "run", *options).out
    assert f"way, recognised: {judged['drawn']:.1%} of samples, 100.0% of valid" in shown


def test_guidance_is_for_samples_alone(call, whistles):
    """Guards against an option that is not handed on, and likelihoods of a guided model."""
    options = ("eval", whistles / "run", "--samples", 4, "--seconds", 0.2, "--json")
    free, held = (json.loads(call(*options, "--guidance", g).out) for g in (1, 50))
    assert held["nats_per_frame"] == free["nats_per_frame"]
    assert (free["samples"]["guidance"], held["samples"]["guidance"]) == (1, 50)
    assert held["samples"]["split"] == free["samples"]["split"]
    assert held["samples"]["drawn"] != free["samples"]["drawn"]
    drawn = [
        call(*("sample", "-", "--format", "wav", "--run", whistles / "run", "--seconds", 0.1),
             *("--label", "way=up", "--guidance", g)).raw
        for g in (1, 50, 50)
    ]  # fmt: skip
    assert drawn[0] != drawn[1] == drawn[2]


def test_noise_silence_and_clips_of_a_sample_have_some_value(whistles):
    from seqmodel.media.audio.evaluation import AudioComparison

    train = open_dataset(whistles / "data")["train"]
    values = train.labels(train.frame.known_labels)[:, 0]
    assert set(values) == {0, 1, 2}
    noise = np.random.default_rng(1).standard_normal((400, 10)).astype(np.float32).clip(-1, 0.9)
    odd = [noise, np.zeros((900, 10), np.float32), np.zeros((1, 1), np.float32)]
    assert {*AudioComparison().recogniser(train, values)(odd)} <= {1, 2}
