"""TensorBoard's tracker, read back with TensorBoard's own reader, and trackers in general."""

import io
import shutil
import wave
from unittest.mock import Mock

import numpy as np
import pytest
from calling import call_ok
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError
from seqmodel.experiment.search import search
from seqmodel.runs.folder import RUN_FOLDER, load_run, read_metrics
from seqmodel.sampling.sampler import Freeze, Pause
from seqmodel.training import tensorboard as module
from seqmodel.training.loop import Listener, train_run
from seqmodel.training.tensorboard import tensorboard
from seqmodel.training.trackers import with_trackers

TRACKERS = {"tensorboard": tensorboard}


def read(folder):
    """All that TensorBoard knows of a run."""
    sizes = {"scalars": 0, "images": 0, "audio": 0, "tensors": 0}
    events = EventAccumulator(str(folder), size_guidance=sizes)
    events.Reload()
    return events


def check_curves(events, folder):
    """Each figure of metrics.jsonl is there once, at its epoch."""
    lines = read_metrics(folder)
    assert {"train/nats_per_frame", "valid/nats_per_frame"} < {*events.Tags()["scalars"]}
    assert {tag.replace("/", "_") for tag in events.Tags()["scalars"]} == {*lines[0]} - {"epoch"}
    for tag in events.Tags()["scalars"]:
        shown = [(event.step, event.value) for event in events.Scalars(tag)]
        figures = [(line["epoch"], line[tag.replace("/", "_")]) for line in lines]
        assert shown == [(step, float(np.float32(value))) for step, value in figures], tag


def written(folder):
    """The event files that have something in them."""
    return [path for path in folder.glob("events*") if path.stat().st_size]


def tracked(config, dataset, folder, **options):
    heard = with_trackers(Listener(), TRACKERS, config, folder)
    return train_run(config, dataset, folder, listener=heard, **options)


@pytest.fixture(scope="module")
def drawn(run):
    """A sample as TensorBoard stores it."""
    return module._sample(run)


@pytest.fixture
def one_sample(monkeypatch, drawn):
    """The same sample for all runs: to draw one takes longer than to train."""
    monkeypatch.setattr(module, "_sample", lambda run: drawn)


def improvements(folder):
    best, found = np.inf, []
    for line in read_metrics(folder):
        if line["valid_nats_per_frame"] < best:
            best = line["valid_nats_per_frame"]
            found.append(line["epoch"])
    return found


@pytest.mark.usefixtures("one_sample")
def test_figures_settings_and_samples_are_in_the_event_file(dataset, make_config, tmp_path):
    # Steps too small for float32: no epoch after the first improves, on any processor.
    config = make_config(epochs=3, learning_rate=1e-30, average=0.0, schedule="constant")
    tracked(config, dataset, tmp_path)
    events = read(tmp_path)
    check_curves(events, tmp_path)
    steps = improvements(tmp_path)
    assert steps == [1]  # epochs that do not improve have no sample
    assert [event.step for event in events.Images("sample/picture")] == steps
    assert [event.step for event in events.Audio("sample/sound")] == steps
    settings = HParamsPluginData.FromString(
        events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    ).session_start_info.hparams
    assert settings["learning_rate"].number_value == 1e-30
    assert settings["unit"].string_value == "lstm"
    moments = [event.wall_time for event in events.Scalars("seconds")]
    assert moments == sorted(moments)


@pytest.mark.parametrize(
    ("folder", "limit"), [("run_folder", Freeze(1, 3)), ("sample_wise_run_folder", Pause(1.0, 29))]
)
def test_a_finished_run_can_be_tracked_later(folder, limit, request, tmp_path, monkeypatch):
    """Its sample is the piece that `seqmodel sample` draws, in a picture and in sound."""
    monkeypatch.setattr(Freeze, "of", lambda run: limit)
    shutil.copytree(request.getfixturevalue(folder), tmp_path / "run")
    run = load_run(tmp_path / "run")
    tensorboard(run.config, run.folder).resumed(read_metrics(run.folder))
    events = read(run.folder)
    check_curves(events, run.folder)
    (picture,), (sound,) = events.Images("sample/picture"), events.Audio("sample/sound")
    assert picture.step == sound.step == run.epoch
    call_ok("sample", "--run", run.folder, "--seconds", 10, "-q", tmp_path / "out.wav")
    assert sound.encoded_audio_string == (tmp_path / "out.wav").read_bytes()
    with wave.open(io.BytesIO(sound.encoded_audio_string)) as wav:
        assert (wav.getframerate(), wav.getnframes()) == (sound.sample_rate, sound.length_frames)
        assert wav.getnframes() > 100
    assert picture.encoded_image_string.startswith(b"\x89PNG")
    assert picture.width > picture.height > 100
    ends = [event.wall_time for event in events.Scalars("seconds")]
    seconds = [line["seconds"] for line in read_metrics(run.folder)]
    assert np.allclose(np.diff(ends), seconds[1:], atol=1e-4)


@pytest.mark.usefixtures("one_sample")
def test_events_of_epochs_that_were_lost_are_not_shown(dataset, make_config, tmp_path):
    """As if killed before epochs 2 and 3 were on disk, but not their events; also if watched."""
    folder, config = tmp_path / "run", make_config(epochs=3, learning_rate=0.3)
    heard = Listener(epoch=lambda line, is_best: line["epoch"] == 1)
    train_run(config, dataset, folder, listener=heard)
    shutil.copytree(folder, tmp_path / "saved")
    tracked(config, dataset, folder, resume=True)
    (events,) = folder.glob("events*")
    watching = read(folder)
    check_curves(watching, folder)
    shutil.copytree(tmp_path / "saved", folder, dirs_exist_ok=True)
    events.write_bytes(events.read_bytes()[:-100])  # it was being written
    tracked(config, dataset, folder, resume=True)
    check_curves(read(folder), folder)
    watching.Reload()
    check_curves(watching, folder)
    steps = [event.step for event in read(folder).Images("sample/picture")]
    assert steps == improvements(folder)
    assert [path.name for path in written(folder)] == ["events.out.tfevents.000002.seqmodel"]


@pytest.mark.usefixtures("one_sample")
def test_each_run_of_a_search_has_a_curve_of_its_own(dataset, make_config, tmp_path):
    """Also where it is resumed."""
    config = make_config(bracket_trials=2, epochs=1, unit="gru")
    for _ in range(2):  # as if it were resumed
        search(config, dataset, tmp_path, trackers=TRACKERS)
    draws = sorted((tmp_path / "draws").iterdir())
    assert len(draws) == 2
    for draw in draws:
        check_curves(read(draw), draw)
        assert len(written(draw)) == 1
    RUN_FOLDER.check_target(tmp_path, force=True)  # --force may replace it


def test_trackers_watch_and_only_the_listener_ends_the_run(dataset, make_config, tmp_path):
    """Guards against functions that happen to return something true, as loggers' do."""
    told, config = [], make_config(epochs=4)

    def tell(name):
        copied = list if name == "resumed" else lambda value: value  # which grows as it trains
        return lambda value, *others: told.append((name, copied(value))) or True

    def stops(line, is_best):
        if line["epoch"] == 3:
            raise KeyboardInterrupt
        return line["epoch"] == 2

    events = {name: tell(name) for name in ("tick", "epoch", "resumed", "ended")}

    def follow(config, folder):
        (folder / "trackers").mkdir(exist_ok=True)  # of a run that has not begun
        return Listener(**events)

    trackers = {"one": follow}
    options = {"listener": Listener(epoch=stops), "trackers": trackers}
    train_run(config, dataset, tmp_path / "run", **options)
    with pytest.raises(KeyboardInterrupt) as raised:
        train_run(config, dataset, tmp_path / "run", resume=True, **options)
    first, second, _ = read_metrics(tmp_path / "run")
    assert [event for event in told if event[0] != "tick"] == [
        *(("epoch", first), ("epoch", second), ("ended", None)),
        *(("resumed", [first, second]), ("ended", raised.value)),
    ]


def test_what_a_tracker_says_in_our_words_stays(tmp_path):
    """Guards the error of a full disk against being told as a fault of the tracker."""
    full = Mock(side_effect=SeqmodelError("cannot write a: no space left on device"))
    trackers = {"mine": lambda config, folder: Listener(epoch=full)}
    listener = with_trackers(Listener(), trackers, Config(), tmp_path)
    with pytest.raises(SeqmodelError, match=r"^cannot write a: no space left on device$"):
        listener.epoch({}, False)
