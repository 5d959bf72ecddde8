"""A dataset lost during training: reported at once, and no work is lost."""

import os
import shutil

import pytest
import torch

from seqmodel.data.dataset import LostError, open_dataset
from seqmodel.experiment.jobs import Worker
from seqmodel.experiment.plan import Plan, sources_of, variants_of
from seqmodel.experiment.studies import Studies, open_storage
from seqmodel.runs.checkpoint import load_checkpoint
from seqmodel.runs.folder import BEST, LAST, METRICS


def flip(shard):
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


HARM = {
    "cut short": lambda folder: os.truncate(folder / "train.npy", 140),
    "removed": shutil.rmtree,
    "valid removed": lambda folder: (folder / "valid.npy").unlink(),
    "changed": lambda folder: flip(folder / "train.npy"),
}


@pytest.mark.parametrize("harm", HARM)
def test_lost_data_ends_training_at_once_and_the_run_resumes(
    harm, dataset, make_config, train, tmp_path
):
    """Guards against bus errors from a truncated memory map, and hours of training on lost data.

    Also against losing work: the resumed run equals the undisturbed one.
    """
    config = make_config(epochs=2, truncate=10)
    whole = train(config, tmp_path / "whole")
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(dataset.folder, data)
    ticks = []

    def tick(tick):
        ticks.append(tick)
        if len(ticks) == 2:
            HARM[harm](data)

    with pytest.raises(LostError) as caught:
        train(config, run, data=open_dataset(data), tick=tick)
    message = str(caught.value)
    assert "\n" not in message
    assert str(data) in message
    assert f"continue with `seqmodel train --resume --run {run}`" in message
    assert {tick.epoch for tick in ticks} == {1}
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(dataset.folder, data)
    train(config, run, resume=True, data=open_dataset(data))
    for name in (BEST, LAST):
        ours, theirs = (load_checkpoint(folder / name)[0] for folder in (run, whole.folder))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items())
    assert len((run / METRICS).read_text().splitlines()) == 2


def test_an_experiment_that_lost_its_data_says_to_repeat_the_command(dataset, tmp_path):
    """`train --resume --run results/.../trial-0` would finish one run and leave the others."""
    data, folder = tmp_path / "data", tmp_path / "experiment"
    shutil.copytree(dataset.folder, data)
    settings = {"model": "frame-wise", "hidden": 4, "epochs": 3, "batch_size": 4}
    plan = Plan(sources_of([data]), variants_of(["gru"], []), settings, "none", 1, 1, {})
    studies = Studies.begin(open_storage(folder, None), "e", plan)

    def tell(event):
        if event.epoch == 1:
            (data / "train.npy").unlink(missing_ok=True)

    with pytest.raises(LostError, match=r"once the data is back, run the same command to resume$"):
        Worker(studies, folder, tell).work()
