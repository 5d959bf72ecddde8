"""Resuming: a run stopped anywhere ends bit for bit like one that was never stopped."""

import itertools
import json
import shutil
from types import SimpleNamespace

import pytest
import torch

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.experiment.search import search
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.training import loop, processes
from seqmodel.training.loop import Listener, Trainer, train_run
from seqmodel.training.state import Progress
from seqmodel.training.stopping import InterruptError, StopRequest

PLAIN = {"unit": "gru"}
TRUNCATED = {"truncate": 7, "end": True}
EVERYTHING = {
    "layers": 2,
    "dropout": 0.3,
    "weight_noise": 0.075,
    "weight_dropout": 0.3,
    "average": 0.8,
    "augment_keys": True,
    "end": True,
    "truncate": 11,
    "optimizer": "rmsprop",
    "learning_rate": 0.003,
    "clip": 0.2,
}
TIED = {
    "model": "tied",
    "echo": True,
    "clock": True,
    "metre": True,
    "unit": "gru",
    "hidden": 3,
    "note_unit": "lstm",
    "note_hidden": 2,
    "note_layers": 1,
    "dropout": 0.2,
    "weight_noise": 0.05,
    "weight_dropout": 0.2,
    "average": 0.8,
    "augment_keys": True,
    "end": True,
    "truncate": 11,
}


def without_times(metrics):
    return [{k: v for k, v in m.items() if "second" not in k} for m in metrics]


def outcome(folder):
    """The metrics, checkpoints and config of a run, without times."""
    left = {"metrics": without_times(read_metrics(folder))}
    for name in (runs.BEST, runs.LAST):
        tensors, content = load_checkpoint(folder / name)
        if "place" in content:
            content["place"]["metrics"] = without_times(content["place"]["metrics"])
        left[name] = content, {k: (str(v.dtype), v.numpy().tobytes()) for k, v in tensors.items()}
    left["config"] = (folder / runs.CONFIG).read_text()
    return left


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make_config, train):
    """A function that returns the outcome of an uninterrupted run, and the ticks it can stop at."""
    done = {}

    def whole(options):
        key = json.dumps(options)
        if key not in done:
            folder, ticks = tmp_path_factory.mktemp("whole") / "run", []
            train(make_config(**options), folder, tick=ticks.append)
            done[key] = outcome(folder), ticks
        return done[key]

    return whole


def stops(options, whole):
    """Ticks at which to stop: the first, a middle one, the last of an epoch, one within valid."""
    ticks = whole(options)[1]
    training = [k for k, tick in enumerate(ticks, 1) if tick.nats_per_frame is not None]
    scoring = [k for k, tick in enumerate(ticks, 1) if tick.nats_per_frame is None]
    last = next(k for k in training if k + 1 in scoring)
    return {"first": 1, "middle": training[len(training) // 2], "last": last, "valid": scoring[1]}


@pytest.mark.parametrize(
    "options", [PLAIN, TRUNCATED, EVERYTHING, TIED], ids=["plain", "cut", "all", "tied"]
)
@pytest.mark.parametrize("where", ["first", "middle", "last", "valid"])
def test_a_stopped_run_ends_as_if_never_stopped(
    tmp_path, make_config, train, whole, options, where
):
    config = make_config(**options)
    with pytest.raises(InterruptError, match=r"--resume --run .*run`$") as caught:
        train(config, tmp_path / "run", stop_at=tick_number(stops(options, whole)[where]))
    assert caught.value.exit_status == 128 + 15
    torch.randn(7)  # a new process has other generator states
    train(config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == whole(options)[0]


def test_a_run_stopped_at_every_update_ends_as_if_never_stopped(
    tmp_path, make_config, train, whole
):
    options = TRUNCATED
    config, resume = make_config(**options), False
    for _ in range(1000):
        try:
            train(config, tmp_path / "run", stop_at=after_an_update, resume=resume)
        except InterruptError:
            resume = True
        else:
            break
    ours, theirs = outcome(tmp_path / "run"), whole(options)[0]
    assert ours == theirs


def test_a_killed_run_resumes_from_its_last_checkpoint(
    tmp_path, make_config, train, whole, monkeypatch
):
    """kill -9 and power cuts leave no time to save: what was saved along the way must do."""
    monkeypatch.setattr(processes, "SAVE_EVERY", 0.0)
    config = make_config(**EVERYTHING)

    def killed(tick):
        if tick.epoch == 2 and tick.done > tick.total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", tick=killed)
    _, content = load_checkpoint(tmp_path / "run/last.safetensors")
    assert (content["epoch"], content["place"]["frames"] > 0) == (1, True)  # amid the second
    train(config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == whole(EVERYTHING)[0]


@pytest.mark.parametrize("options", [{}, {"learning_rate_draws": 2}])
def test_a_run_killed_before_a_save_was_due_resumes(
    tmp_path, make_config, dataset, run_folder, options
):
    """Also one started from other weights, which are not given again on --resume."""
    config, start = make_config(end=True, hidden=7, epochs=1, **options), load_run(run_folder)

    def killed(tick):
        raise KeyboardInterrupt

    train, arguments = search if options else train_run, (config, dataset, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(*arguments, listener=Listener(tick=killed), init_from=start)
    train(*arguments, resume=True)
    train(config, dataset, tmp_path / "whole", init_from=start)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("where", ["middle", "last", "valid"])
def test_the_seconds_of_an_epoch_include_those_before_a_stop(
    tmp_path, make_config, train, whole, monkeypatch, where
):
    """By a clock that ticks once per update; they used to be 0.0 after a stop at the last one."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
    config = make_config(**PLAIN)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", clock)
        with pytest.raises(InterruptError):
            train(config, tmp_path / "run", stop_at=tick_number(stops(PLAIN, whole)[where]))
        train(config, tmp_path / "run", resume=True)
    lines = read_metrics(tmp_path / "run")
    assert [line["seconds"] for line in lines] == [3.0, 3.0, 3.0]
    assert [line["frames_per_second"] for line in lines] == [48, 48, 48]  # of 145 frames


def test_a_checkpoint_of_a_version_that_saved_no_seconds_resumes(
    tmp_path, make_config, train, whole
):
    config = make_config(**PLAIN)
    with pytest.raises(InterruptError):
        train(config, tmp_path / "run", stop_at=tick_number(stops(PLAIN, whole)["last"]))
    tensors, content = load_checkpoint(tmp_path / "run" / runs.LAST)
    assert content["place"].pop("seconds") > 0
    save_checkpoint(tmp_path / "run" / runs.LAST, tensors, content)
    train(config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == whole(PLAIN)[0]


def test_the_truncated_run_has_several_windows_per_batch(whole):
    """Validates the tests above: a stop within a batch must have a carry to save."""
    assert len([t for t in whole(TRUNCATED)[1] if t.nats_per_frame is not None]) > 12


def test_lines_written_after_the_last_checkpoint_are_dropped(tmp_path, make_config, train, dataset):
    """A run killed between writing two files must not list an epoch twice."""
    config = make_config()
    with pytest.raises(InterruptError):
        train(config, tmp_path / "run", stop_at=tick_number(6))
    file = tmp_path / "run" / runs.METRICS
    file.write_text(file.read_text() + '{"epoch": 2, "valid_nats_per_frame": 0}\n')
    Trainer(config, dataset, tmp_path / "run").resume()
    assert [line["epoch"] for line in read_metrics(tmp_path / "run")] == [1]


def test_epochs_can_be_added_on_resume(tmp_path, make_config, train):
    options = {"schedule": "constant"}
    train(make_config(epochs=2, **options), tmp_path / "short")
    train(make_config(epochs=4, **options), tmp_path / "short", resume=True)
    train(make_config(epochs=4, **options), tmp_path / "long")
    assert outcome(tmp_path / "short") == outcome(tmp_path / "long")


@pytest.mark.parametrize("epochs", [2, 5])
def test_epochs_cannot_change_under_a_cosine_schedule(tmp_path, make_config, train, epochs):
    """The rate depends on the number of epochs: it used to jump up or down silently."""
    with pytest.raises(InterruptError):
        train(make_config(), tmp_path / "run", stop_at=tick_number(6))
    before = outcome_of_files(tmp_path / "run")
    message = r"--epochs cannot change on --resume with --schedule cosine, .* the 3 epochs of "
    with pytest.raises(SeqmodelError, match=message) as caught:
        train(make_config(epochs=epochs), tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)
    assert outcome_of_files(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": 6}, "hidden 5, not 6"),
        ({"learning_rate": 0.1}, "learning_rate 0.01, not 0.1"),
        ({"seed": 4}, "seed 3, not 4"),
        ({"backend": "reference"}, "backend auto, not reference"),
        ({"batch_size": 3}, "batch_size 4, not 3"),
    ],
)
def test_settings_that_differ_from_the_checkpoint_are_refused(
    tmp_path, make_config, train, change, words
):
    """A hand-edited config.yaml used to turn a run into a different one half way, silently."""
    with pytest.raises(InterruptError):
        train(make_config(), tmp_path / "run", stop_at=tick_number(6))
    before = outcome_of_files(tmp_path / "run")
    with pytest.raises(SeqmodelError, match=f"run was trained with {words}: ") as caught:
        train(make_config(**change), tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)
    assert outcome_of_files(tmp_path / "run") == before


def test_a_dataset_may_have_moved(tmp_path, make_config, train, dataset, whole):
    """Only its content counts, so a run can resume with the data at another path."""
    with pytest.raises(InterruptError):
        train(make_config(**PLAIN), tmp_path / "run", stop_at=tick_number(6))
    shutil.copytree(dataset.folder, tmp_path / "moved")
    moved = open_dataset(tmp_path / "moved")
    train(make_config(**PLAIN, data=str(moved.folder)), tmp_path / "run", resume=True, data=moved)
    assert without_times(read_metrics(tmp_path / "run")) == whole(PLAIN)[0]["metrics"]


def test_changed_data_are_refused(tmp_path, make_config, train, rolls, write_dataset):
    with pytest.raises(InterruptError):
        train(make_config(), tmp_path / "run", stop_at=tick_number(2))
    before = outcome_of_files(tmp_path / "run")
    other = write_dataset(tmp_path / "other", rolls | {"valid": rolls["valid"][1:]})
    with pytest.raises(SeqmodelError, match=r"not the dataset that .*run was trained on"):
        train(make_config(), tmp_path / "run", resume=True, data=other)
    assert outcome_of_files(tmp_path / "run") == before


def tick_number(number):
    return lambda seen, tick: seen == number


def after_an_update(seen, tick):
    return tick.nats_per_frame is not None


def outcome_of_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path, make_config, train, run_folder):
    shutil.copytree(run_folder, tmp_path / "run")
    file = tmp_path / "run" / runs.LAST
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SeqmodelError, match=str(file)):
        train(make_config(end=True, hidden=7), tmp_path / "run", resume=True)
    file.unlink()
    with pytest.raises(SeqmodelError, match=str(file)) as caught:
        train(make_config(end=True, hidden=7), tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)


def test_init_from_takes_weights_and_nothing_else(tmp_path, make_config, dataset, run_folder):
    run = load_run(run_folder)
    config = make_config(end=True, hidden=7, learning_rate=0.0, epochs=1)
    trainer = Trainer(config, dataset, tmp_path / "run")
    trainer.init_from(run)
    assert trainer.state.progress == Progress()
    assert not trainer.state.optimizer.state
    trainer.run(Listener(), StopRequest())
    (line,) = read_metrics(tmp_path / "run")
    best = read_metrics(run_folder)[run.epoch - 1]
    assert line["valid_nats_per_frame"] == best["valid_nats_per_frame"]
    for name, weight in load_run(tmp_path / "run").model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name])
