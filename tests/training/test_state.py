"""The training state: a stable format, strict JSON, clear errors where it cannot be read."""

import json
from pathlib import Path

import pytest
import torch

from seqmodel.errors import SeqmodelError
from seqmodel.runs.checkpoint import Progress, load_checkpoint
from seqmodel.runs.folder import LAST
from seqmodel.training.state import DivergedError, TrainingState

ORIGIN = Path("runs/x/last.safetensors")
FIELDS = ["epoch", "batch", "window", "update", "nats", "frames", "seconds", "learning_rate"]
FIELDS += ["best_nats", "best_epoch", "metrics"]


def test_the_names_in_a_checkpoint_are_stable(run_folder):
    """Version 1 wrote these; renaming one would make every run on disk impossible to resume."""
    content = load_checkpoint(run_folder / LAST)[1]
    assert list(content["place"]) == FIELDS


def test_a_run_without_an_epoch_is_json_that_older_versions_read():
    """Infinity is not valid JSON, so it is left out; older versions use it as the default too."""
    values = json.loads(json.dumps(Progress(update=3).to_json(), allow_nan=False))
    assert list(values) == [name for name in FIELDS if name != "best_nats"]
    assert Progress.from_json(values, ORIGIN) == Progress(update=3)
    old = {**values, "best_nats": float("inf")}
    assert Progress.from_json(old, ORIGIN) == Progress(update=3)


def test_progress_of_a_newer_version_is_refused_by_name():
    with pytest.raises(SeqmodelError, match=f"{ORIGIN} has the unknown setting 'tempo': .* newer"):
        Progress.from_json({**Progress().to_json(), "tempo": 3}, ORIGIN)


def test_a_run_whose_valid_figure_was_nan_is_not_resumed(make_config, dataset):
    """Older versions continued; its metrics.jsonl would again not be valid JSON."""
    line = {"epoch": 2, "valid_nats_per_frame": float("nan"), "learning_rate": 0.01}
    state = TrainingState(make_config(), dataset["train"], torch.device("cpu"))
    with pytest.raises(DivergedError, match=r"valid split scores nan .* after epoch 2"):
        state.load(state.tensors(), {"epoch": 2, "metrics": [line]}, ORIGIN)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_all_tensors_are_restored(make_config, dataset, optimizer):
    """The optimizer's state, the average, and the carry of a batch."""
    config = make_config(optimizer=optimizer, average=0.9, layers=2, unit="lstm")
    train, cpu = dataset["train"], torch.device("cpu")
    state, other = (TrainingState(config, train, cpu) for _ in range(2))
    for _ in range(3):
        for weight in state.model.parameters():
            weight.grad = torch.randn_like(weight)
        state.optimizer.step(0.01)
        state.average.update()
    carry = state.model.start(7)
    state.carries[0] = carry.like([torch.randn_like(tensor) for tensor in carry.tensors()])
    other.load(state.tensors(), state.progress.to_json(), ORIGIN)
    ours, theirs = state.tensors(), other.tensors()
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype
        assert torch.equal(tensor, theirs[name]), name
        assert tensor.data_ptr() != theirs[name].data_ptr(), name
    for weight, same in zip(state.model.parameters(), other.model.parameters(), strict=True):
        weight.grad = same.grad = torch.ones_like(weight)
    for some in (state, other):
        some.optimizer.step(0.01)
    for name, tensor in state.tensors().items():
        assert torch.equal(tensor, other.tensors()[name]), name
