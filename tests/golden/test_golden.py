"""Datasets and runs written before the redesign: they load, score, resume and sample as they did.

They stand for what users have on disk. README.md says how they were made, once.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import call_ok

from seqmodel.config import Config, read_config_file, resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.data.dataset import open_dataset
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.media.music.corpus import load_midi
from seqmodel.runs.checkpoint import load_checkpoint
from seqmodel.runs.folder import BEST, LAST, RUN_FOLDER, load_run, read_metrics
from seqmodel.training.loop import train_run

HERE = Path(__file__).resolve().parent
FIGURES = json.loads((HERE / "figures.json").read_text())
RUNS = [name for name in FIGURES if name != "stopped"]


@pytest.fixture(autouse=True)
def golden(tmp_path, monkeypatch):
    """A copy as the working folder: the runs name their datasets relative to it."""
    shutil.copytree(HERE, tmp_path / "golden", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    monkeypatch.chdir(tmp_path / "golden")


def evaluated(run):
    loaded = load_run(run)
    figures = evaluate(loaded, open_dataset(loaded.config.data), "valid")
    for later in ("flac", "lattice"):
        figures["baselines"].pop(later, None)
    return {name: value for name, value in figures.items() if name not in ("run", "data")}


def assert_same_figures(ours, theirs):
    assert ours.keys() >= theirs.keys()
    for name, figure in theirs.items():
        if isinstance(figure, dict):
            assert_same_figures(ours[name], figure)
        elif isinstance(figure, str):
            assert ours[name] == figure, name
        else:
            assert ours[name] == pytest.approx(figure, rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("name", ["music", "speech", "speech-6000"])
def test_datasets_open(name):
    dataset = open_dataset(name)
    dataset.check_content()
    assert [len(dataset[split]) for split in ("train", "valid", "test")] == [4, 2, 1]


@pytest.mark.parametrize("name", RUNS)
def test_runs_score_as_they_did(name):
    assert_same_figures(evaluated(name), FIGURES[name])


@pytest.mark.parametrize("name", ["lstm", "gru-end"])
def test_runs_sample_as_they_did(name):
    call_ok("sample", "drawn.mid", "--run", name, "--length", 64, "--seed", 4)
    # Written when all notes were of one velocity.
    expected = load_midi(Path(name, "expected.mid"), FRAMES).frames
    np.testing.assert_array_equal(load_midi(Path("drawn.mid"), FRAMES).frames, expected)


def test_a_stopped_run_ends_as_it_did():
    """Stopped in its second epoch, between two windows of a batch."""
    before = load_checkpoint(Path("stopped", LAST))[1]["place"]
    assert (before["epoch"], before["batch"]) == (1, 0)
    assert before["window"] > 0
    config = resolve({}, read_config_file(Path("stopped/config.yaml")))
    train_run(config, open_dataset(config.data), Path("stopped"), resume=True)
    names = (BEST, "expected.safetensors")
    ours, expected = (load_checkpoint(Path("stopped", name)) for name in names)
    assert ours[1] == expected[1]
    for name, tensor in expected[0].items():
        torch.testing.assert_close(ours[0][name], tensor, rtol=1e-4, atol=1e-6)
    assert_same_figures(evaluated("stopped"), FIGURES["stopped"])
    assert [line["epoch"] for line in read_metrics(Path("stopped"))] == [1, 2, 3]


@pytest.mark.parametrize("name", RUNS)
def test_configs_match_the_checkpoints(name):
    """--resume compares them, and they let --force replace the folder."""
    content = load_checkpoint(Path(name, BEST))[1]
    config = resolve({}, read_config_file(Path(name, "config.yaml")))
    assert Config.from_json(content["config"], Path(name, BEST)) == config
    assert config.to_json() == content["config"]
    Path(name, "expected.mid").unlink(missing_ok=True)
    RUN_FOLDER.check_target(Path(name), force=True)
