"""Checkpoints: read back exactly or refused, whatever byte has changed and whatever they claim."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from refusals import refused

from seqmodel.config import Config, to_yaml
from seqmodel.errors import SeqmodelError
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.runs.content import load_content, newest_run
from seqmodel.runs.folder import BEST, CONFIG, LAST, load_run

TENSORS = {
    "model.unit.W": torch.randn(8, 5, generator=torch.Generator().manual_seed(0)),
    "model.b": torch.tensor([1.5, float("inf"), -0.0]),
    "step": torch.tensor(7, dtype=torch.int64),
    "empty": torch.zeros(0, 3),
    "double": torch.full((2,), 1 / 3, dtype=torch.float64),
}
CONTENT = {"config": {"unit": "lstm", "rate": 1e-5}, "epoch": 3, "best": 7.25, "é": None}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / "best.safetensors", TENSORS, CONTENT)
    return tmp_path / "best.safetensors"


def assert_same(loaded):
    tensors, content = loaded
    assert content == CONTENT
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert tensors[name].numpy().tobytes() == tensor.numpy().tobytes()


def not_loaded(path, *parts):
    refused(lambda: load_checkpoint(path), path, *parts)


def test_the_layout_is_stable(path):
    """What safetensors alone reads from it; a new layout needs a new version."""
    assert_same(load_checkpoint(path))
    assert load_content(path) == CONTENT
    with safetensors.safe_open(path, framework="np") as file:
        (text,) = file.metadata().values()
    metadata = json.loads(text)
    assert set(metadata) == {"format", "version", "content", "sha256"}
    assert (metadata["format"], metadata["version"]) == ("seqmodel-checkpoint", 1)
    assert json.loads(metadata["content"]) == CONTENT
    for name, array in safetensors.numpy.load_file(path).items():
        assert array.tobytes() == TENSORS[name].numpy().tobytes()


def test_tensors_that_share_memory_are_saved_as_they_look(tmp_path):
    """safetensors refuses them, as where the user's module ties two weights, and transposes."""
    matrix = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    given = {"model.U": matrix, "model.V": matrix, "model.b": matrix[0], "t": matrix.T}
    save_checkpoint(tmp_path / "x", given, {})
    found, _ = load_checkpoint(tmp_path / "x")
    assert found.keys() == given.keys()
    assert all(found[name].equal(tensor) for name, tensor in given.items())


def test_content_that_is_not_json_is_not_written(tmp_path):
    """Other readers of our files would fail on NaN or Infinity."""
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            save_checkpoint(tmp_path / "x", TENSORS, {"best": wrong})
    assert list(tmp_path.iterdir()) == []


def test_a_run_from_before_audio_was_added_loads(run_folder, tmp_path, rolls):
    """Its checkpoint has no medium but the size of its frames, and its config no output."""
    tensors, content = load_checkpoint(run_folder / BEST)
    config = {k: v for k, v in content["config"].items() if k not in ("output", "components")}
    old = {k: v for k, v in content.items() if k != "media"}
    save_checkpoint(tmp_path / BEST, tensors, old | {"config": config, "frame_size": 88})
    roll = rolls["valid"][0]
    np.testing.assert_array_equal(load_run(tmp_path).nll(roll), load_run(run_folder).nll(roll))


def test_a_damaged_best_checkpoint_names_the_last_if_that_can_be_read(path):
    """Guards against advice that ends at another damaged file."""
    last = path.with_name(LAST)
    shutil.copy(path, last)
    os.truncate(path, 200)
    not_loaded(path, f"delete it to use {last}, or train again")
    os.truncate(last, 200)
    not_loaded(path, "use another checkpoint or train again")
    not_loaded(last, "use another checkpoint or train again")


def test_any_changed_byte_is_noticed(path):
    """A flipped bit in a weight, a shape, a setting: refused, or of no effect at all."""
    good = path.read_bytes()
    for place in range(len(good)):
        flip = (1, 32, 4, 128)[place % 4]
        path.write_bytes(good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :])
        with suppress(SeqmodelError):
            assert_same(load_checkpoint(path))


def test_a_file_cut_short_or_grown_is_refused(path):
    good = path.read_bytes()
    for keep in (0, 1, 7, 8, 9, 100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:keep])
        not_loaded(path)
        refused(lambda: load_content(path), "is damaged")
    path.write_bytes(good + b"\0")
    not_loaded(path)


def test_other_files_are_refused_with_the_reason(tmp_path):
    path = tmp_path / "x.safetensors"
    not_loaded(path, "cannot read", "no such file")
    (tmp_path / "folder").mkdir()
    not_loaded(tmp_path / "folder", "cannot read")
    path.write_bytes(b"\x80\x04K\x01.")  # a pickle
    not_loaded(path, "damaged")
    for metadata in (None, {"format": "pt"}):  # as other programs write them
        safetensors.torch.save_file(TENSORS, path, metadata)
        not_loaded(path, "is not a seqmodel checkpoint")
    newer = json.dumps({"format": "seqmodel-checkpoint", "version": 2})
    safetensors.torch.save_file(TENSORS, path, {"seqmodel": newer})
    not_loaded(path, "version 2", "reads version 1")


# ---- checkpoints from strangers: false claims allocate no memory ---------------------------------


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


def states(**values):
    return lambda tensors, content: content.update(values)


def sets(**values):
    return lambda tensors, content: content["config"].update(values)


def places(**values):
    return lambda tensors, content: content["place"].update(values)


def not_finite(tensors, content):
    next(tensor for tensor in tensors.values() if tensor.numel() > 1)[0] = torch.nan


def other_slots(tensors, content):
    tensors.update({name: torch.zeros(3, 2, 1) for name in tensors if name.startswith("optim")})


SIZES = [
    (sets(hidden=1_000_000), ": the checkpoint's weights do not fit the model: "),
    (sets(hidden=None), ": its settings leave sizes open"),
    (sets(hidden="7"), ": hidden must be a whole number or nothing, not '7'"),
    (sets(unit="gnu"), ": there is no unit 'gnu'; choose one of "),
    (sets(output="smell"), ": --output must be one of "),
    (sets(tiers=2), " has the unknown setting 'tiers': "),
]


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        *((name, *row) for row in SIZES for name in (BEST, LAST)),
        (BEST, lambda _, content: content.pop("epoch"), " is damaged: epoch is missing"),
        (BEST, states(longest_piece=0), " is damaged: longest_piece must be a whole number from 1"),
        (BEST, states(frame={}), " is damaged: holds frames that are not valid music frames: "),
        (BEST, states(media="smell"), " is damaged: holds frames of an unknown medium: 'smell'"),
        (BEST, states(config=5), " is damaged: config must be an object, not 5"),
        (BEST, not_finite, " has weights that are not finite ("),
        (LAST, lambda _, content: content.pop("place"), " is damaged: place must be an object, no"),
        (LAST, states(place=[]), " is damaged: place must be an object, not a list"),
        (LAST, places(batch=1), " is damaged: place has batches of no frame"),
        (LAST, places(metrics=[3]), " is damaged: place.metrics[0] must be"),
        (LAST, other_slots, " is damaged: optimizer."),
    ],
)
def test_what_does_not_fit_is_named_before_a_model_is_built(forge, train, run, name, change, says):
    """hidden 1,000,000 used to take all memory; nan used to score nan with exit status 0."""
    folder = forge(name, change)
    if name == BEST:
        message = refused(lambda: load_run(folder))
    else:
        claimed = load_checkpoint(folder / name)[1]["config"]
        known = {k: v for k, v in claimed.items() if hasattr(run.config, k)}
        config = Config(**Config().to_json() | known)
        message = refused(lambda: train(config, folder, resume=True))
    assert message.startswith(f"{folder / name}{says}")
    if "do not fit" in says:
        assert message.endswith("; it may be from another version of seqmodel: train again")


def test_a_newer_versions_place_hinders_only_resuming(forge, run, train):
    """Otherwise every command that is not told a run would fail by the one newest."""
    folder = forge(LAST, places(mood=1))
    refused(lambda: train(run.config, folder, resume=True), "the unknown setting 'mood'")
    shutil.copytree(folder, folder.parent / "older")
    os.utime(folder.parent / "older" / BEST, (1000, 1000))
    assert newest_run(folder.parent) == (folder, "")
    (folder / BEST).unlink()
    assert f"{folder} lacks its best weights, {BEST}: using those" in load_run(folder).remark
    forge(LAST, states(frame={"kind": "later"}))
    assert newest_run(folder.parent) == (folder, "")


def test_a_config_that_grew_is_refused_before_its_model_is_built(forge, run, train):
    """Even if config.yaml alone claims the new size."""
    folder = forge(LAST, states())
    grown = replace(run.config, hidden=1_000_000)
    (folder / CONFIG).write_text(to_yaml(grown))
    refused(lambda: train(grown, folder, resume=True), "was trained with hidden 7, not 1000000")
