"""A dataset lost during training: reported at once, and no work is lost."""

import os
import shlex
import shutil
from functools import partial

import pytest
from outcomes import left
from refusals import refused

from seqmodel.data.dataset import LostError, open_dataset
from seqmodel.experiment.jobs import Worker
from seqmodel.experiment.plan import Plan, sources_of, variants_of
from seqmodel.experiment.studies import Studies, open_storage


def flip(shard):
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


HARM = {
    "cut short": lambda folder: os.truncate(folder / "train.npy", 140),
    "removed": shutil.rmtree,
    "valid removed": lambda folder: (folder / "valid.npy").unlink(),
    "changed": lambda folder: flip(folder / "train.npy"),
}


def test_lost_data_ends_training_at_once_and_the_run_resumes(dataset, make_config, train, tmp_path):
    """Guards against bus errors from a truncated memory map, and hours of training on lost data."""
    config, data = make_config(epochs=2, truncate=10), tmp_path / "data"
    train(config, tmp_path / "whole")
    for name, harm in HARM.items():
        shutil.copytree(dataset.folder, data)
        run, ticks = tmp_path / name, []

        def tick(tick, ticks=ticks, harm=harm):
            ticks.append(tick)
            if len(ticks) == 2:
                harm(data)

        again = f"continue with `seqmodel train --resume --run {shlex.quote(str(run))}`"
        training = partial(train, config, run, data=open_dataset(data), tick=tick)
        refused(training, data, again)
        assert {tick.epoch for tick in ticks} == {1}
        shutil.rmtree(data, ignore_errors=True)
        train(config, run, resume=True)
        assert left(run) == left(tmp_path / "whole")


def test_a_run_whose_folder_is_removed_ends_and_leaves_none(make_config, train, tmp_path):
    """It came back without its settings, and so could not be resumed."""

    def tick(tick):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    training = partial(train, make_config(epochs=2), tmp_path / "run", tick=tick)
    refused(training, tmp_path / "run" / "config.yaml", "has gone")
    assert not (tmp_path / "run").exists()


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
