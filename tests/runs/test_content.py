"""Checkpoints from strangers: false claims give one-line errors and allocate no memory."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from refusals import refused

from seqmodel.config import Config, to_yaml
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.runs.folder import BEST, LAST, load_run, newest_run


@pytest.fixture
def forge(run_folder, tmp_path):
    """A function that copies the run and changes one of its checkpoints, with a valid checksum."""

    def forge(name, change):
        folder = Path(shutil.copytree(run_folder, tmp_path / "forged", dirs_exist_ok=True))
        tensors, content = load_checkpoint(folder / name)
        change(tensors, content)
        save_checkpoint(folder / name, tensors, content)
        return folder

    return forge


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("epoch", ..., " is damaged: epoch is missing"),
        ("longest_piece", 0, " is damaged: longest_piece must be a whole number from 1 to "),
        ("frame", {}, " is damaged: holds frames that are not valid music frames: frame."),
        ("media", "smell", " is damaged: holds frames of an unknown medium: 'smell'"),
        ("config", 5, " is damaged: config must be an object, not 5"),
    ],
)
def test_an_invalid_field_is_named(forge, key, value, says):
    def change(tensors, content):
        content[key] = value
        if value is ...:
            del content[key]

    folder = forge(BEST, change)
    assert refused(lambda: load_run(folder)).startswith(f"{folder / BEST}{says}")


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("hidden", 1_000_000, "the checkpoint's weights do not fit the model: "),
        ("hidden", None, "its settings leave sizes open"),
        ("hidden", "7", "hidden must be a whole number or nothing, not '7'"),
        ("unit", "gnu", "there is no unit 'gnu'; choose one of "),
        ("output", "smell", "--output must be one of "),
    ],
)
@pytest.mark.parametrize("name", [BEST, LAST])
def test_a_size_is_trusted_only_if_the_weights_have_it(forge, train, name, setting, value, says):
    """hidden 1,000,000 used to take all memory before it was compared with the weights."""
    folder = forge(name, lambda tensors, content: content["config"].update({setting: value}))
    content = load_checkpoint(folder / name)[1]
    if name == BEST:
        message = refused(lambda: load_run(folder))
    else:
        config = Config(**{**Config().to_json(), **content["config"]})
        message = refused(lambda: train(config, folder, resume=True))
    assert message.startswith(f"{folder / name}: {says}")
    fits = "do not fit" not in message
    assert fits or message.endswith("; it may be from another version of seqmodel: train again")


def test_weights_that_are_not_finite_are_refused(forge):
    """They used to score nan with exit status 0, and to sample silence."""

    def change(tensors, content):
        next(tensor for name, tensor in tensors.items() if tensor.numel() > 1)[0] = torch.nan

    folder = forge(BEST, change)
    message = refused(lambda: load_run(folder))
    assert message.startswith(f"{folder / BEST} has weights that are not finite (")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors, content: content.pop("place"), "place must be an object, not null"),
        (lambda tensors, content: content.update(place=[]), "place must be an object, not a list"),
        (
            lambda tensors, content: content["place"].update(batch=1),
            "place has batches of no frame",
        ),
        (lambda tensors, content: content["place"].update(metrics=[3]), "place.metrics[0] must be"),
        (lambda tensors, content: tensors.update(_slots(tensors)), "optimizer."),
    ],
)
def test_an_invalid_place_is_named(forge, run, train, change, says):
    folder = forge(LAST, change)
    message = refused(lambda: train(run.config, folder, resume=True))
    assert message.startswith(f"{folder / LAST} is damaged: {says}")


def test_a_newer_versions_place_hinders_only_resuming(forge, run, train):
    """Otherwise every command that is not told a run would fail by the one newest."""
    folder = forge(LAST, lambda tensors, content: content["place"].update(mood=1))
    refused(lambda: train(run.config, folder, resume=True), "the unknown setting 'mood'")
    shutil.copytree(folder, folder.parent / "older")
    os.utime(folder.parent / "older" / BEST, (1000, 1000))
    assert newest_run(folder.parent) == (folder, "")
    (folder / BEST).unlink()
    assert "no best weights yet" in load_run(folder).remark
    forge(LAST, lambda tensors, content: content.update(frame={"kind": "later"}))
    assert newest_run(folder.parent) == (folder, "")


def _slots(tensors):
    return {name: torch.zeros(3, 2, 1) for name in tensors if name.startswith("optimizer.")}


def test_a_config_that_grew_is_refused_before_its_model_is_built(forge, run, train):
    """Even if config.yaml alone claims the new size."""
    from dataclasses import replace

    folder = forge(LAST, lambda tensors, content: None)
    grown = replace(run.config, hidden=1_000_000)
    (folder / "config.yaml").write_text(to_yaml(grown))
    refused(lambda: train(grown, folder, resume=True), "was trained with hidden 7, not 1000000")
