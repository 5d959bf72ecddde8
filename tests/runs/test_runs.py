"""Run folders: found and loaded, or a one-line error."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused

from seqmodel.data.bundled import FRAMES
from seqmodel.model.build import build_model
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import load_model, model_tensors
from seqmodel.runs.folder import (
    RUN_FOLDER,
    load_run,
    new_run_folder,
    newest_resumable_run,
    newest_run,
    read_metrics,
)


def test_a_run_is_ready_to_predict(run, run_folder, dataset):
    assert run.folder == run_folder
    assert (run.config.unit, run.config.hidden, run.config.end) == ("lstm", 7, True)
    assert run.config.data == str(dataset.folder)
    assert run.frame == dataset.frame
    assert run.longest_piece == 30
    assert not run.model.training  # dropout off


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.float64])
def test_nll_takes_any_zeros_and_ones(run, rolls, dtype):
    nats = run.nll(rolls["valid"][2].astype(dtype))
    assert nats.shape == (26,)
    assert nats.dtype == np.float64
    np.testing.assert_array_equal(nats, run.nll(rolls["valid"][2]))
    assert run.nll(rolls["valid"][2][:1]) == pytest.approx(nats[:1], rel=1e-6)


def test_a_folder_without_checkpoint_says_what_to_do(tmp_path, run_folder):
    refused(lambda: load_run(tmp_path / "nowhere"), "there is no run", str(tmp_path / "nowhere"))
    refused(lambda: load_run(tmp_path), str(tmp_path), "no checkpoint", "seqmodel train")
    (tmp_path / runs.BEST).write_bytes(b"")
    refused(lambda: load_run(tmp_path), str(tmp_path / runs.BEST), "damaged")


@pytest.mark.parametrize("other", [{"hidden": 6}, {"unit": "gru"}, {"end": False}, {"layers": 2}])
def test_weights_of_another_build_are_refused_in_one_line(run, make_config, other):
    """torch's own error has as many lines as there are weights."""
    model = build_model(make_config(**({"end": True, "hidden": 7} | other)), FRAMES)
    before = model.output.linear.weight.clone()
    tensors = model_tensors(run.model)
    refused(lambda: load_model(model, tensors), "do not fit the model")
    assert torch.equal(model.output.linear.weight, before)


GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def test_a_run_that_still_trains_is_taken_only_if_no_other_has_finished(tmp_path, run_folder):
    """A sample once came from the second epoch of a run that another process was training."""
    stopped = GOLDEN / "stopped"
    for k, (name, folder) in enumerate(
        {"older": run_folder, "a": run_folder, "b": stopped}.items()
    ):
        shutil.copytree(folder, tmp_path / name)
        shutil.copy(run_folder / runs.BEST, tmp_path / name)
        os.utime(tmp_path / name / runs.BEST, (1000 + k, 1000 + k))
    a, b = tmp_path / "a", tmp_path / "b"
    unfinished = f"{b} has not finished training"
    assert newest_run(tmp_path) == (a, f"{unfinished}: using {a}")
    assert newest_run(tmp_path, {"music"}) == (a, f"{unfinished}: using {a}")
    os.utime(a / runs.BEST, (2000, 2000))
    assert newest_run(tmp_path) == (a, "")
    for name in ("older", "a"):
        shutil.copy(stopped / runs.LAST, tmp_path / name)
    assert newest_run(tmp_path) == (a, f"{a} has not finished training")
    shutil.rmtree(tmp_path / "older")
    shutil.rmtree(b)
    assert newest_run(tmp_path) == (a, "")


def test_the_newest_run_of_a_medium_is_found_behind_newer_ones(
    tmp_path, run_folder, audio_run_folder
):
    """Guards against a MIDI file refused because the last thing trained was speech."""
    assert newest_run(tmp_path / "runs") is None
    (tmp_path / "begun").mkdir()  # without a model yet
    folders = {"old": run_folder, "music": run_folder, "audio": audio_run_folder}
    for k, (name, folder) in enumerate(folders.items()):
        (tmp_path / name).mkdir()
        shutil.copy(folder / runs.BEST, tmp_path / name)
        os.utime(tmp_path / name / runs.BEST, (1000 + k, 1000 + k))
    assert newest_run(tmp_path)[0].name == "audio"
    assert newest_run(tmp_path, {"audio"})[0].name == "audio"
    assert newest_run(tmp_path, {"audio", "music"})[0].name == "audio"
    assert newest_run(tmp_path, {"music"})[0].name == "music"
    shutil.rmtree(tmp_path / "audio")
    assert newest_run(tmp_path, {"audio"}) is None
    (tmp_path / "music" / runs.BEST).write_bytes(b"x")
    refused(lambda: newest_run(tmp_path, {"music"}), "music/best.safetensors is damaged")


def begun(folder, second, *names, config="learning_rate_draws: 0"):
    """A folder as training leaves it, last written to at `second`."""
    for name in (runs.CONFIG, *names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(config)
        os.utime(folder / name, (second, second))


def test_the_newest_run_to_resume_may_have_no_best_epoch_yet(tmp_path):
    """A run stopped in its first epoch used to be passed over for one finished days ago."""
    refused(lambda: newest_resumable_run(tmp_path), "no run in", "seqmodel train")
    begun(tmp_path / "finished", 1000, runs.LAST, runs.BEST)
    begun(tmp_path / "stopped", 2000, runs.LAST)
    begun(tmp_path / "nothing-saved", 3000)
    begun(tmp_path / "not-ours", 3000, config="{")
    assert newest_resumable_run(tmp_path).name == "stopped"
    assert newest_run(tmp_path)[0].name == "finished"
    begun(tmp_path / "search", 2500, "draws/3/last.safetensors")  # where it saves everything
    os.utime(tmp_path / "search" / runs.CONFIG, (900, 900))
    assert newest_resumable_run(tmp_path).name == "search"
    begun(tmp_path / "just-begun", 3000, config="learning_rate_draws: 10")
    assert newest_resumable_run(tmp_path).name == "just-begun"


def test_the_newest_run_of_a_dataset_is_resumed(tmp_path):
    """`train DATA --resume` used to take the newest run of any dataset."""
    for second, name, data in ((1000, "old", "a"), (2000, "new", "a"), (3000, "other", "b")):
        begun(tmp_path / name, second, runs.LAST, config=f"data: {tmp_path / data}")
    assert newest_resumable_run(tmp_path, tmp_path / "a").name == "new"
    assert newest_resumable_run(tmp_path).name == "other"
    refused(lambda: newest_resumable_run(tmp_path, tmp_path / "c"), "no run on", "--run")


# ---- what --force may replace -------------------------------------------------------------------


def test_a_run_folder_is_recognised_by_what_training_wrote(tmp_path, run_folder):
    for name, kept in (
        ("whole", None),
        ("last", {runs.LAST}),
        ("best", {runs.BEST, runs.METRICS}),
        ("config", {runs.CONFIG}),  # a search killed before its first checkpoint
    ):
        shutil.copytree(run_folder, tmp_path / name)
        for path in (tmp_path / name).iterdir():
            if kept is not None and path.name not in kept:
                path.unlink()
        RUN_FOLDER.check_target(tmp_path / name, force=True)
    shutil.copytree(run_folder, tmp_path / "whole" / "draws" / "0")
    RUN_FOLDER.check_target(tmp_path / "whole", force=True)


@pytest.mark.parametrize(
    "config", ["", "unit: gru\nhidden: 30\n", "logging: {level: debug}\n", "\x00", "- a\n"]
)
def test_a_config_that_training_did_not_write_makes_no_run_folder(tmp_path, config):
    """Half of all programs have a config.yaml, and one written by hand is work to keep, too."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / runs.CONFIG).write_text(config)
    (tmp_path / "d" / runs.BEST).write_bytes(b"weights of another program")
    refused(lambda: RUN_FOLDER.check_target(tmp_path / "d", force=True), "is not a run folder")


@pytest.mark.parametrize("name", ["thesis.tex", "draws/thesis.tex", "draws/0/draws.jsonl", "0"])
def test_a_foreign_file_in_a_run_folder_is_named(tmp_path, run_folder, name):
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "run" / name).touch()
    call = lambda: RUN_FOLDER.check_target(tmp_path / "run", force=True)  # noqa: E731
    refused(call, f"run holds {name}, which is not part of a run folder", "move it elsewhere")


def test_new_run_folders_never_clash(tmp_path):
    names = [new_run_folder("data", "lstm", tmp_path / "runs").name for _ in range(3)]
    assert names == ["data-lstm-1", "data-lstm-2", "data-lstm-3"]
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "runs"
    refused(lambda: new_run_folder("data", "lstm", below), str(below), "run folder")


def test_metrics_are_read_or_reported_as_damaged(run_folder, tmp_path):
    assert [line["epoch"] for line in read_metrics(run_folder)] == list(range(1, 31))
    assert read_metrics(tmp_path) == []
    (tmp_path / runs.METRICS).write_text('{"epoch": 1}\n{"epo')
    says = f"{tmp_path / runs.METRICS} is damaged: line 1: valid_nats_per_frame is missing; delete"
    refused(lambda: read_metrics(tmp_path), says, f"`seqmodel train --resume --run {tmp_path}`")
    good = (run_folder / runs.METRICS).read_text().splitlines()
    for wrong in ("[" * 9999, "3", good[1].replace(": 2,", ": " + "1" * 5001 + ","), good[1][:-1]):
        (tmp_path / runs.METRICS).write_text(f"{good[0]}\n{wrong}\n")
        refused(lambda: read_metrics(tmp_path), "is damaged: line 2: ")
    for figure in ("valid_accuracy", "updates", "seconds", "valid_nats_per_frame"):
        for value in ("null", '"text"', "NaN", "Infinity", "1" + "0" * 400, "true"):
            wrong = re.sub(f'("{figure}": )[^,}}]*', rf"\g<1>{value}", good[1])
            (tmp_path / runs.METRICS).write_text(f"{good[0]}\n{wrong}\n")
            refused(lambda: read_metrics(tmp_path), "is damaged: line 2: ")


def test_damaged_metrics_are_restored_as_the_error_says(run_folder, tmp_path, make_config, train):
    """The last checkpoint holds all lines, so deleting the file loses nothing."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / runs.METRICS).unlink()
    options = {"learning_rate": 0.05, "epochs": 30, "patience": 30}
    train(make_config(end=True, hidden=7, **options), folder, resume=True)
    assert read_metrics(folder) == read_metrics(run_folder)


def test_loading_runs_no_code(run_folder, monkeypatch):
    """A run from a stranger must be safe to open: nothing may be unpickled."""
    import pickle

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *a, **k: pytest.fail("unpickled"))
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("torch.load"))
    load_run(run_folder)


@pytest.mark.parametrize("shape", [(5, 50), (0, 88), (88,)])
def test_nll_refuses_frames_of_another_shape(run, shape):
    """Guards against torch's own error, from deep inside, for a roll of the wrong width."""
    with pytest.raises(ValueError, match="frames must be"):
        run.nll(np.zeros(shape))
