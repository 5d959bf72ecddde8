"""Checkpoints: read back exactly or refused, whatever byte has changed."""

import json
from contextlib import suppress

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from refusals import refused

from seqmodel.errors import SeqmodelError
from seqmodel.runs.checkpoint import load_checkpoint, load_content, save_checkpoint
from seqmodel.runs.folder import load_run

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


def test_what_is_saved_is_read_back(path):
    assert_same(load_checkpoint(path))


def test_the_content_is_read_without_the_tensors(path):
    assert load_content(path) == CONTENT
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SeqmodelError, match="is damaged"):
        load_content(path)


def test_views_and_parameters_are_saved_as_they_look(tmp_path):
    """safetensors refuses views that share memory, and a transpose is not contiguous."""
    matrix = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    save_checkpoint(tmp_path / "x", {"t": matrix.T, "rows": matrix[:1]}, {})
    tensors, _ = load_checkpoint(tmp_path / "x")
    np.testing.assert_array_equal(tensors["t"], np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(tensors["rows"], [[0, 1, 2]])


def test_the_layout_is_stable(path):
    """Golden: what safetensors alone reads from it; a new layout needs a new version."""
    with safetensors.safe_open(path, framework="np") as file:
        (text,) = file.metadata().values()
    metadata = json.loads(text)
    assert set(metadata) == {"format", "version", "content", "sha256"}
    assert (metadata["format"], metadata["version"]) == ("seqmodel-checkpoint", 1)
    assert json.loads(metadata["content"]) == CONTENT
    arrays = safetensors.numpy.load_file(path)
    assert {k: v.tobytes() for k, v in arrays.items()} == {
        k: v.numpy().tobytes() for k, v in TENSORS.items()
    }


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_content_that_is_not_json_is_not_written(tmp_path, wrong):
    """Other readers of our files would fail on NaN or Infinity."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_checkpoint(tmp_path / "x", TENSORS, {"best": wrong})
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_a_newer_version_is_refused_for_its_unknown_setting(run_folder, tmp_path):
    """Used to be a TypeError: the next new setting would have broken every older version."""
    tensors, content = load_checkpoint(run_folder / "best.safetensors")
    content["config"]["tiers"] = 2
    save_checkpoint(tmp_path / "best.safetensors", tensors, content)
    with pytest.raises(
        SeqmodelError,
        match=r"best\.safetensors has the unknown setting 'tiers': .* newer version",
    ):
        load_run(tmp_path)


def test_equal_checkpoints_have_equal_bytes(tmp_path):
    """Guards against several metadata keys, which safetensors writes in random order."""
    written = set()
    for k in range(8):
        save_checkpoint(tmp_path / str(k), TENSORS, CONTENT)
        written.add((tmp_path / str(k)).read_bytes())
    assert len(written) == 1


def test_the_layout_of_runs_is_stable(run_folder):
    names = {"unit.W": [28, 88], "unit.U": [28, 7], "unit.V": [3, 7], "unit.b": [28]}
    names |= {"output.linear.weight": [89, 7], "output.linear.bias": [89]}
    tensors, content = load_checkpoint(run_folder / "best.safetensors")
    assert {k: list(v.shape) for k, v in tensors.items()} == {
        f"model.{k}": v for k, v in names.items()
    }
    assert set(content) == {"config", "media", "frame", "epoch", "longest_piece"}
    tensors, content = load_checkpoint(run_folder / "last.safetensors")
    slots = {f"optimizer.{k}:{s}" for k in names for s in ("step", "exp_avg", "exp_avg_sq")}
    assert set(tensors) == {f"model.{k}" for k in names} | slots
    assert {"place", "data_sha256"} < set(content)


def test_a_run_from_before_audio_was_added_loads(run_folder, tmp_path, rolls):
    """Its checkpoint has no medium but the size of its frames, and its config no output."""
    tensors, content = load_checkpoint(run_folder / "best.safetensors")
    config = {k: v for k, v in content["config"].items() if k not in ("output", "components")}
    old = {k: v for k, v in content.items() if k != "media"}
    old |= {"config": config, "frame_size": 88}
    save_checkpoint(tmp_path / "best.safetensors", tensors, old)
    roll = rolls["valid"][0]
    np.testing.assert_array_equal(load_run(tmp_path).nll(roll), load_run(run_folder).nll(roll))


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


def test_tensors_changed_under_an_old_checksum_are_refused(path):
    """Also if only a name has changed, or a tensor without bytes is missing."""
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    swapped = TENSORS | {"model.b": TENSORS["model.b"].flip(0)}
    for tensors in (swapped, {k: v for k, v in TENSORS.items() if k != "empty"}):
        safetensors.torch.save_file(tensors, path, metadata)
        not_loaded(path, "damaged")
    renamed = {("x" if k == "step" else k): v for k, v in TENSORS.items()}
    safetensors.torch.save_file(renamed, path, metadata)
    not_loaded(path, "damaged")
