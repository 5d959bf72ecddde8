"""Stopped anywhere, by a signal or for want of data, a run ends as if it never had been."""

import itertools
import json
import os
import shlex
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from onsets import marked
from outcomes import left
from refusals import refused

from seqmodel.data.dataset import LostError, open_dataset
from seqmodel.experiment.jobs import Worker
from seqmodel.experiment.plan import Plan, sources_of, variants_of
from seqmodel.experiment.studies import Studies, open_storage
from seqmodel.media.marks import Levels
from seqmodel.model.sequence import SequenceModel
from seqmodel.model.sound.predictors import predictors_at
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.runs.content import FACTS_HASH, Progress
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.training import loop, processes
from seqmodel.training.loop import Listener, Trainer, train_run
from seqmodel.training.state import CARRY, TrainingState
from seqmodel.training.stopping import InterruptError, StopRequest, stop_on_signals
from seqmodel.units import UNITS

FORMED = "\n".join((*UNITS["lstm"].statements, "Uf has rank 2", "Uc has 3 heads", "unit: formed"))
DRAWN = {"dropout": 0.3, "weight_noise": 0.075, "weight_dropout": 0.3, "zoneout": 0.3}
DRAWN |= {"average": 0.8, "truncate": 11, "epochs": 2}
EVERYTHING = {**DRAWN, "unit": FORMED, "layers": 2, "augment_keys": True, "end": True}
EVERYTHING |= {"optimizer": "rmsprop", "learning_rate": 0.003, "clip": 0.2}
TIED = {**DRAWN, "model": "tied", "echo": True, "clock": True, "bars": True, "augment_keys": True}
TIED |= {"unit": "gru", "hidden": 3, "note_unit": "lstm", "note_hidden": 2, "note_layers": 1}
TIED |= {"first_change": True, "end": True}
PLAYED = {**TIED, "ages": True, "input_noise": 0.9, "schedule": "cosine", "valid_every": "2"}
"""Of notes that have velocities, with looks within epochs."""
SAMPLES = {**DRAWN, "model": "sample-wise", "output": "auto", "unit": "gru", "hidden": 4}
SAMPLES |= {"layers": 2, "input_noise": 0.6, "carry_over": 0.75, "steering": 1.0, "truncate": 145}
SAMPLES |= {"weight_noise": 0.05, "weight_dropout": 0.1, "zoneout": 0.1}
BLOCKS = {"output": "logistic", "layers": 2, "dropout": 0.3, "average": 0.8, "truncate": 20}
MODULE = {"unit": "own_modules:LayerNormLSTM", "weight_dropout": 0.0, "zoneout": 0.0, "layers": 2}
"""A unit that is a torch module."""
MUSIC = {
    "all": EVERYTHING,
    "played": PLAYED,
    "module": {**TIED, **MODULE},
}
SOUND = {
    "samples": SAMPLES,
    "samples, no average": {**SAMPLES, "average": 0.0, "valid_every": "7"},
    "logistic": {**BLOCKS, "epochs": 2},
}
"""Each with whatever it has to save."""


@pytest.fixture(scope="module")
def played_dataset(tmp_path_factory, struck_dataset, write_dataset):
    random, found = np.random.default_rng(5), {}
    for name in struck_dataset.splits:
        pieces = [*struck_dataset[name]]
        loud = [random.integers(1, 128, (len(piece), 88)) * piece[:, :88] for piece in pieces]
        found[name] = [
            marked(piece, velocity=of_notes) for piece, of_notes in zip(pieces, loud, strict=True)
        ]
    levels = Levels((40, 80), (20.0, 60.0, 100.0))
    folder = tmp_path_factory.mktemp("data") / "played"
    return write_dataset(folder, found, onsets=True, marks={"velocity": levels})


def labelled(dataset, folder):
    """The dataset in another folder, where two pieces of three have a label."""
    shutil.copytree(dataset.folder, folder)
    for index in folder.glob("*.jsonl"):
        lines = [json.loads(line) for line in index.read_text().splitlines()]
        told = [{"labels": {"who": "ab"[k % 3]}} if k % 3 < 2 else {} for k in range(len(lines))]
        both = zip(lines, told, strict=True)
        index.write_text("".join(f"{json.dumps(line | labels)}\n" for line, labels in both))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["frame"]["labels"] = {"who": ["a", "b"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return open_dataset(folder)


@pytest.fixture(scope="module")
def training(
    make_config, make_audio_config, train, dataset, played_dataset, audio_dataset, tmp_path_factory
):
    """A function that trains a run of a kind in a folder, or resumes it, as far as `stop_at`."""
    folder = tmp_path_factory.mktemp("labelled")
    played, tones = (labelled(d, folder / d.folder.name) for d in (played_dataset, audio_dataset))

    def training(kind, folder, **how):
        if kind in MUSIC:
            data = played if kind == "played" else dataset
            return train(make_config(**MUSIC[kind]), folder, data=data, **how)
        return train(make_audio_config(**SOUND[kind]), folder, data=tones, **how)

    return training


@pytest.fixture(scope="module")
def whole(tmp_path_factory, training):
    """A function that returns the outcome of an uninterrupted run of a kind."""

    @cache
    def whole(kind):
        folder = tmp_path_factory.mktemp("whole") / "run"
        training(kind, folder)
        return left(folder)

    return whole


@pytest.mark.parametrize("kind", ["all", "played", "module", "samples", "logistic"])
def test_a_run_stopped_again_and_again_ends_as_if_never_stopped(tmp_path, training, whole, kind):
    """Also between windows of a batch, where state, samples and noise are carried over."""
    carried, folder = [], tmp_path / "run"
    some = itertools.cycle((1, 3) if kind in MUSIC else (2, 5))
    while True:
        try:
            training(kind, folder, stop_at=nth_update(next(some)), resume=bool(carried))
        except InterruptError:
            torch.randn(7)  # a new process has other generator states
            names = load_checkpoint(folder / runs.LAST)[0]
            carried.append(any(name.startswith(CARRY) for name in names))
        else:
            break
    assert len(carried) > 5
    assert sum(carried) > len(carried) / 3
    assert left(folder) == whole(kind)


def test_a_run_of_sound_that_an_earlier_version_stopped_ends_likewise(tmp_path, training, whole):
    """It was amid an epoch, and had not remembered the level `initial`."""
    last = tmp_path / "run" / runs.LAST
    with pytest.raises(InterruptError):
        training("samples", tmp_path / "run", stop_at=nth_update(2))
    tensors, content = load_checkpoint(last)
    at = predictors_at(8000, 3).starts["initial"]
    (memory,) = (name for name, t in tensors.items() if name.startswith(CARRY) and t.shape[1] > 500)
    earlier = torch.cat([tensors[memory][:, :at], tensors[memory][:, at + 1 :]], 1)
    save_checkpoint(last, tensors | {memory: earlier}, content)
    training("samples", tmp_path / "run", resume=True)
    assert left(tmp_path / "run") == whole("samples")


@pytest.mark.parametrize("kind", ["all", "samples", "samples, no average"])
def test_a_run_stopped_while_valid_is_scored_ends_as_if_never_stopped(
    tmp_path, training, whole, kind
):
    """Guards against an encoder that is corrected twice by what an epoch's model draws."""
    with pytest.raises(InterruptError, match=r"--resume --run .*run`$") as caught:
        training(kind, tmp_path / "run", stop_at=lambda *now: not is_update(*now))
    assert caught.value.exit_status == 128 + 15
    assert read_metrics(tmp_path / "run") == []
    training(kind, tmp_path / "run", resume=True)
    assert left(tmp_path / "run") == whole(kind)


def test_a_run_stopped_while_it_runs_free_ends_as_if_never_stopped(
    tmp_path, training, whole, monkeypatch
):
    former, epochs = loop.run_free, []

    def run_free(model, data, seed, epoch, drawn):
        def stop():
            if len(epochs) == 1:
                raise InterruptError("stopped", 15)

        epochs.append(epoch)
        former(model, data, seed, epoch, lambda: (drawn(), stop()))

    monkeypatch.setattr(loop, "run_free", run_free)
    with pytest.raises(InterruptError):
        training("samples", tmp_path / "run")
    training("samples", tmp_path / "run", resume=True)
    assert epochs == [0, 0, 1]
    assert left(tmp_path / "run") == whole("samples")


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path, training, whole, monkeypatch):
    """kill -9 and power cuts leave no time to save: what was saved along the way must do."""
    expected = whole("all")
    monkeypatch.setattr(processes, "SAVE_EVERY", 0.0)

    def killed(tick):
        if tick.epoch == 2 and tick.done > tick.total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training("all", tmp_path / "run", tick=killed)
    _, content = load_checkpoint(tmp_path / "run/last.safetensors")
    assert (content["epoch"], content["place"]["frames"] > 0) == (1, True)  # amid the second
    # Large data take minutes to pass over.
    monkeypatch.setattr(SequenceModel, "start_at", lambda *_: pytest.fail("train was read"))
    training("all", tmp_path / "run", resume=True)
    assert left(tmp_path / "run") == expected


def test_a_run_killed_before_a_save_was_due_resumes(tmp_path, make_config, dataset, run_folder):
    """Also one started from other weights, which are not given again on --resume."""
    config, start = make_config(end=True, hidden=7, epochs=1), load_run(run_folder)
    arguments, killed = (config, dataset, tmp_path / "run"), Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train_run(*arguments, listener=Listener(tick=killed), init_from=start)
    train_run(*arguments, resume=True)
    train_run(config, dataset, tmp_path / "whole", init_from=start)
    assert left(tmp_path / "run") == left(tmp_path / "whole")


@pytest.mark.parametrize("tick", [2, 3, 4])
def test_the_seconds_of_an_epoch_include_those_before_a_stop(
    tmp_path, make_config, train, monkeypatch, tick
):
    """Stopped amid the first epoch, at its last update, and within valid; a tick per update."""
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", clock)
        with pytest.raises(InterruptError):
            train(make_config(epochs=2), tmp_path / "run", stop_at=tick_number(tick))
        train(make_config(epochs=2), tmp_path / "run", resume=True)
    lines = read_metrics(tmp_path / "run")
    assert [line["seconds"] for line in lines] == [3.0, 3.0]
    assert [line["frames_per_second"] for line in lines] == [48, 48]  # of 145 frames


def test_lines_written_after_the_last_checkpoint_are_dropped(tmp_path, make_config, train, dataset):
    """A run killed between writing two files must not list an epoch twice."""
    config = make_config()
    with pytest.raises(InterruptError):
        train(config, tmp_path / "run", stop_at=tick_number(6))
    file = tmp_path / "run" / runs.METRICS
    file.write_text(file.read_text() + '{"epoch": 2, "valid_nats_per_frame": 0}\n')
    Trainer(config, dataset, tmp_path / "run").resume()
    assert [line["epoch"] for line in read_metrics(tmp_path / "run")] == [1]


CHANGES = [
    ({"hidden": 6}, "trained with hidden 5, not 6"),
    ({"learning_rate": 0.1}, "trained with learning_rate 0.01, not 0.1"),
    ({"backend": "reference"}, "trained with backend auto, not reference"),
    ({"epochs": 5}, "--epochs cannot change on --resume with --schedule cosine"),
    ({}, "not the dataset that"),
]


def test_what_differs_from_the_checkpoint_is_refused(
    tmp_path, make_config, train, dataset, rolls, write_dataset
):
    """A hand-edited config.yaml used to turn a run into a different one half way, silently."""
    run = tmp_path / "run"
    with pytest.raises(InterruptError):
        train(make_config(), run, stop_at=tick_number(6))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    other = write_dataset(tmp_path / "other", rolls | {"valid": rolls["valid"][1:]})
    for change, words in CHANGES:
        again = partial(train, make_config(**change), run, resume=True)
        refused(lambda again=again, data=dataset if change else other: again(data=data), words)
        assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_other_metres_are_refused_where_the_model_reads_them(tmp_path, make_config, train, dataset):
    """Metres are no part of the fingerprint. Without them only the content counts, not the path."""
    for options, name in ((TIED, "run"), ({}, "without")):
        with pytest.raises(InterruptError):
            train(make_config(**options), tmp_path / name, stop_at=tick_number(6))
    index = Path(shutil.copytree(dataset.folder, tmp_path / "data")) / "train.jsonl"
    index.write_text(index.read_text().replace("}\n", ', "metre": [[0, 3, 4]]}\n'))
    data = open_dataset(tmp_path / "data")
    assert data.fingerprint() == dataset.fingerprint()
    resumed = partial(train, make_config(**TIED), tmp_path / "run", resume=True, data=data)
    refused(resumed, "not the dataset that", "run was trained on")
    moved = make_config(data=str(data.folder))
    assert train(moved, tmp_path / "without", resume=True, data=data).state.progress.epoch == 3
    tensors, values = load_checkpoint(tmp_path / "run" / runs.LAST)
    del values[FACTS_HASH]  # as older versions saved it
    save_checkpoint(tmp_path / "run" / runs.LAST, tensors, values)
    resumed()


def tick_number(number):
    return lambda seen, tick: seen == number


def is_update(seen, tick):
    return tick.nats_per_frame is not None


def nth_update(n):
    updates = itertools.count(1)
    return lambda seen, tick: is_update(seen, tick) and next(updates) == n


@pytest.mark.parametrize("kind", ["run_folder", "logistic_run_folder"])
def test_init_from_takes_weights_and_nothing_else(tmp_path, dataset, audio_dataset, request, kind):
    """With logistics the weights include the linear predictor, though no gradient moves it."""
    run = load_run(request.getfixturevalue(kind))
    config = replace(run.config, learning_rate=0.0, epochs=1, average=0.9)
    data = dataset if kind == "run_folder" else audio_dataset
    trainer = Trainer(config, data, tmp_path / "run")
    if kind == "logistic_run_folder":
        run.model.output.predictor[3] += 1
    trainer.init_from(run)
    assert trainer.state.progress == Progress()
    assert not trainer.state.optimizer.state
    trainer.run(Listener(), StopRequest())
    for name, weight in load_run(tmp_path / "run").model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name]), name
    if kind == "run_folder":
        (line,) = read_metrics(tmp_path / "run")
        best = read_metrics(run.folder)[run.epoch - 1]
        assert line["valid_nats_per_frame"] == best["valid_nats_per_frame"]


# ---- what is saved -------------------------------------------------------------------------------

ORIGIN = Path("runs/x/last.safetensors")
FIELDS = ["epoch", "batch", "window", "update", "nats", "frames", "seconds", "learning_rate"]
FIELDS += ["best_nats", "best_epoch", "metrics"]


def test_the_names_in_a_checkpoint_are_stable(run_folder):
    """Version 1 wrote these; renaming one would make every run on disk impossible to resume."""
    content = load_checkpoint(run_folder / runs.LAST)[1]
    assert list(content["place"]) == FIELDS


def test_a_run_without_an_epoch_is_json_that_older_versions_read():
    """Infinity is not valid JSON, so it is left out; older versions use it as the default too."""
    values = json.loads(json.dumps(Progress(update=3).to_json(), allow_nan=False))
    assert list(values) == [name for name in FIELDS if name != "best_nats"]
    assert Progress.from_json(values, ORIGIN) == Progress(update=3)
    old = {**values, "best_nats": float("inf")}
    assert Progress.from_json(old, ORIGIN) == Progress(update=3)
    newer = {**values, "tempo": 3}
    says = f"{ORIGIN} has the unknown setting 'tempo': "
    refused(lambda: Progress.from_json(newer, ORIGIN), says, "newer version")


def test_a_run_whose_valid_figure_was_nan_is_not_resumed(make_config, dataset):
    """Older versions continued; its metrics.jsonl would again not be valid JSON."""
    line = {"epoch": 2, "valid_nats_per_frame": float("nan"), "learning_rate": 0.01}
    state = TrainingState(make_config(), dataset["train"], torch.device("cpu"))
    place = {"epoch": 2, "metrics": [line]}
    loaded = partial(state.load, state.tensors(), place, ORIGIN)
    refused(loaded, "valid split scores nan ", " after epoch 2")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_recorded_and_a_second_one_would_end_the_process(number):
    """Whoever presses Ctrl-C twice does not want to wait. Errors leave handlers as they were."""
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert stop.signal is None
        os.kill(os.getpid(), number)
        assert stop.signal == number
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(number) is before
    with pytest.raises(ZeroDivisionError), stop_on_signals():
        raise ZeroDivisionError
    assert signal.getsignal(number) is before


def test_the_end_of_a_terminal_stops_once_and_never_if_ignored():
    """It sends several signals, of which the second would end the process before it has saved."""
    before = signal.getsignal(signal.SIGHUP)
    with stop_on_signals() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is before
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal is None
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


def test_other_threads_can_train_too():
    """Python allows handlers in the main thread only; a notebook's worker must not crash."""
    seen = []

    def work():
        with stop_on_signals() as stop:
            seen.append(stop.signal)

    with ThreadPoolExecutor(1) as team:
        team.submit(work).result()
    assert seen == [None]


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
