"""Fixtures for all tests: the real music, and datasets and runs small enough for every test."""

import gc
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from forking import fork_servers
from hypothesis import settings

settings.register_profile("quick", max_examples=40, deadline=None, database=None)
settings.load_profile("quick")
REPOSITORY = Path(__file__).resolve().parent.parent
# Tests run in parallel; torch's threads, waiting for each other, would take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# If a test asks for two threads, they do not spin while waiting: other workers need the processor.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Kernels are compiled once for all workers and commands, outside the user's own cache.
os.environ.setdefault("SEQMODEL_CACHE", str(REPOSITORY / ".pytest_cache" / "kernels"))
# So is Python, whatever the environment says: otherwise each process would compile everything anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Servers of processes would load torch anew for each comparison.
fork_servers()

SHARED_DATA = Path(os.environ.get("SEQMODEL_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


def pytest_collection_modifyitems(items):
    """The longest test first: started last, it would keep one worker busy and the other waiting."""
    items.sort(key=lambda item: not item.name.startswith("test_commands_of_a_guide"))


def pytest_collection_finish():
    """What is loaded stays: to look for garbage among it would take a twentieth of the time."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cheap_runs():
    """To draw its curve takes as long as a small training; and no test survives a power cut.

    In this process a curve is a file of the figures that it would show, and nothing is flushed.
    """
    from seqmodel.files import write_file
    from seqmodel.training import loop

    def sketch(path, metrics):
        names = ("epoch", "train_nats_per_frame", "valid_nats_per_frame")
        write_file(path, json.dumps([[line[name] for name in names] for line in metrics]).encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "plot_learning_curve", sketch)
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session")
def plain_target():
    """This processor, as a target whose kernels no other test has."""
    from seqmodel.kernels.code import emit

    return emit.Target(emit.HOST.vector_bytes, emit.HOST.registers)


@pytest.fixture
def unoptimised(plain_target, monkeypatch):
    """Kernels compiled without LLVM's optimisation, which takes five sixths of the time.

    For tests of what we emit, which is as right or wrong without it.
    """
    from llvmlite import binding

    from seqmodel.kernels.code import emit, jit, wasm

    create, compiler = binding.Target.create_target_machine, (*jit.COMPILER, "unoptimised")

    def machine(target, *of, **options):
        return create(target, *of, **options | {"opt": 0})

    monkeypatch.setattr(binding.Target, "create_target_machine", machine)
    for module in (jit, wasm):
        monkeypatch.setattr(module, "COMPILER", compiler)
        monkeypatch.setattr(module, "optimised", lambda parsed, by: bytes(by.emit_object(parsed)))
    with emit.emitting_for(plain_target):
        yield


@pytest.fixture
def no_pages(monkeypatch):
    """To draw a comparison's curves and samples takes longer than to train."""
    monkeypatch.setattr("seqmodel.experiment.output.plot_curves", lambda *_: None)
    monkeypatch.setattr("seqmodel.experiment.output.comparison_page", lambda *_: None)
    monkeypatch.setattr("seqmodel.experiment.output.render", lambda _: "")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A browser with an empty profile; it takes as long to start as a page to test."""
    from chrome import Chrome

    started = Chrome(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def chrome(browser):
    """The browser, which shows no page when the module ends."""
    yield browser
    browser.visit("about:blank")


@pytest.fixture
def silent_console(chrome):
    """Fails if the test leaves an error or a warning in the console."""
    yield
    assert chrome.messages() == []


@pytest.fixture
def two_threads():
    """Two torch threads, whatever the environment says."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real music; tests that need it are skipped if it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real data at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def rolls():
    """Split -> piano-rolls (T, 88) of very different lengths: chords that climb and fall back."""
    random = np.random.default_rng(7)
    lengths = {"train": [9, 1, 24, 17, 30, 9, 12, 5, 21, 14, 3], "valid": [13, 2, 26, 7, 19]}
    lengths["test"] = [11, 1, 6]
    return {split: [_tune(random, length) for length in some] for split, some in lengths.items()}


def _tune(random, length):
    roll = np.zeros((length, 88), np.uint8)
    start = random.integers(6)
    for t in range(length):
        place = 30 + (start + t // 2) % 6
        roll[t, [place, place + 4, place + 7]] = random.random(3) < 0.9
    return roll


@pytest.fixture(scope="session")
def write_dataset():
    """A function that writes {split: rolls} as a prepared dataset and opens it.

    Pieces are rolls (T, 88), or with onsets (T, 176), or with `marks`, their levels, more.
    """
    from seqmodel.data.dataset import DatasetWriter, open_dataset
    from seqmodel.media.music.frames import PianoRollFrames
    from seqmodel.media.music.grid import Grid

    def write(folder, rolls, *, onsets=False, marks=None):
        frame = PianoRollFrames(Grid.of_beats(4), onsets=onsets, marks=marks or {})
        folder.mkdir(parents=True, exist_ok=True)
        with DatasetWriter(folder, frame) as writer:
            for split, pieces in rolls.items():
                for k, roll in enumerate(pieces):
                    writer.add(split, f"{split}/{k}.mid", [frame.encode(roll)], {"transposed": 0})
            writer.finish(frame, {"skipped": []})
        return open_dataset(folder)

    return write


@pytest.fixture(scope="session")
def dataset(tmp_path_factory, rolls, write_dataset):
    """The `rolls` as a prepared dataset."""
    return write_dataset(tmp_path_factory.mktemp("data") / "tiny", rolls)


@pytest.fixture(scope="session")
def struck_dataset(tmp_path_factory, rolls, write_dataset):
    """The `rolls` with onsets: held notes are struck again at random, low ones often."""
    from seqmodel.media.music.frames import with_onsets

    random, found = np.random.default_rng(3), {}
    for split, pieces in rolls.items():
        found[split] = [with_onsets(roll) for roll in pieces]
        for frames in found[split]:
            again = random.random((len(frames), 88)) < np.linspace(1, 0, 88)
            frames[:, 88:] |= frames[:, :88] & again
    return write_dataset(tmp_path_factory.mktemp("data") / "struck", found, onsets=True)


@pytest.fixture(scope="session")
def make_config(dataset):
    """A function that resolves a config for a quick run on `dataset`."""
    from seqmodel.config import resolve

    quick = {"data": str(dataset.folder), "hidden": 5, "batch_size": 4, "epochs": 3, "seed": 3}
    # Explicit, since the defaults are whatever predicts best.
    plain = {"dropout": 0.0, "weight_noise": 0.0, "average": 0.0, "clip": 1.0}
    quick |= plain | {"optimizer": "adam", "learning_rate": 0.01, "schedule": "cosine"}
    return lambda **options: resolve(quick | options)


@pytest.fixture(scope="session")
def train(dataset):
    """A function that trains and returns the Trainer.

    Training runs to the end, or stops as after a signal once `stop_at(number of ticks, tick)`.
    """
    from seqmodel.training.loop import Listener, Trainer
    from seqmodel.training.stopping import StopRequest

    def train(
        config, folder, *, stop_at=lambda seen, tick: False, resume=False, data=dataset, **hears
    ):
        stop = StopRequest()
        seen = 0

        def tick(tick):
            nonlocal seen
            seen += 1
            if stop_at(seen, tick):
                stop.signal = 15

        trainer = Trainer(config, data, folder)
        if resume:
            trainer.resume()
        trainer.run(Listener(**({"tick": tick} | hears)), stop)
        return trainer

    return train


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory, make_config, train):
    """A trained run folder: an lstm that also predicts when pieces end."""
    folder = tmp_path_factory.mktemp("runs") / "tiny-lstm-1"
    options = {"learning_rate": 0.05, "epochs": 30, "patience": 30}
    train(make_config(end=True, hidden=7, **options), folder)
    return folder


@pytest.fixture(scope="session")
def run(run_folder):
    """The run in `run_folder`, loaded."""
    from seqmodel.runs.folder import load_run

    return load_run(run_folder)


@pytest.fixture(scope="session")
def recordings():
    """Split -> int16 samples (N,) at 8 kHz: tones that decay into a little noise, whole frames."""
    random = np.random.default_rng(11)
    lengths = {"train": [300, 900, 460, 710, 520], "valid": [640, 310], "test": [450, 330]}
    return {split: [_tone(random, length) for length in some] for split, some in lengths.items()}


def _tone(random, length):
    t = np.arange(length)
    sound = 9000 * np.exp(-t / 400) * np.sin(2 * np.pi * random.uniform(150, 900) * t / 8000)
    return (sound + random.normal(0, 150, length)).astype(np.int16)


@pytest.fixture(scope="session")
def audio_dataset(tmp_path_factory, recordings):
    """The `recordings` as a prepared dataset: frames of 10 samples, context 20."""
    from seqmodel.data.dataset import DatasetWriter, open_dataset
    from seqmodel.media.audio.frames import AudioFrames

    folder = tmp_path_factory.mktemp("data") / "tones"
    folder.mkdir()
    train = np.concatenate(recordings["train"]) / 32768
    moments = {"mean": float(train.mean()), "deviation": float(train.std())}
    frame = AudioFrames(8000, 10, 20, "int16", **moments)
    with DatasetWriter(folder, frame) as writer:
        for split, pieces in recordings.items():
            for k, samples in enumerate(pieces):
                writer.add(split, f"{split}/{k}.wav", [samples])
        writer.finish(frame, {"clip_seconds": None, "skipped": []})
    return open_dataset(folder)


@pytest.fixture(scope="session")
def make_audio_config(audio_dataset):
    """A function that resolves a config for a quick run on `audio_dataset`."""
    from seqmodel.config import resolve
    from seqmodel.media.audio.medium import AUDIO

    quick = {"data": str(audio_dataset.folder), "hidden": 6, "components": 3, "batch_size": 2}
    quick |= {"model": "frame-wise"}
    quick |= {"epochs": 3, "truncate": 20, "learning_rate": 0.01, "average": 0.0, "seed": 3}
    return lambda **options: resolve(quick | options, presets=AUDIO.presets)


@pytest.fixture(scope="session")
def audio_run_folder(tmp_path_factory, make_audio_config, train, audio_dataset):
    """A trained run folder: an lstm with a mixture of Gaussians over blocks of samples."""
    folder = tmp_path_factory.mktemp("runs") / "tones-lstm-1"
    train(make_audio_config(output="gaussian"), folder, data=audio_dataset)
    return folder


@pytest.fixture(scope="session")
def logistic_run_folder(tmp_path_factory, make_audio_config, train, audio_dataset):
    """A trained run folder: an lstm with discretised logistics over 16-bit samples."""
    folder = tmp_path_factory.mktemp("runs") / "tones-lstm-2"
    train(make_audio_config(output="logistic"), folder, data=audio_dataset)
    return folder


@pytest.fixture(scope="session")
def sample_wise_run_folder(tmp_path_factory, make_audio_config, train, audio_dataset):
    """A trained run folder: the model that audio has by default, with an lstm."""
    folder = tmp_path_factory.mktemp("runs") / "tones-lstm-3"
    train(make_audio_config(model="sample-wise", truncate=200), folder, data=audio_dataset)
    return folder
