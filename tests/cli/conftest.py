"""One tiny corpus, dataset and run for all tests of the command line."""

import numpy as np
import pytest
import torch
from calling import call_main, call_ok, write_piece
from onsets import as_frames, random_states

from seqmodel.cli import progress
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes

PIECES = {"train": 10, "valid": 3, "test": 2}


@pytest.fixture
def call():
    return call_main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _no_word_of_time(monkeypatch):
    """On a busy machine commands would print lines of their progress, which no test expects."""
    monkeypatch.setattr(progress, "monotonic", lambda: 0.0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """The folder of shared files: music/, data/, run/ and whatever else a fixture creates."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def music(shared):
    """15 MIDI files in train, valid and test."""
    for number, (split, count) in enumerate(PIECES.items()):
        for k in range(count):
            write_piece(shared / "music" / split / f"{k}.mid", 100 * number + k)
    return shared / "music"


@pytest.fixture(scope="session")
def data(shared, music):
    """A dataset of rolls; that of `struck_data` has onsets."""
    call_ok("prepare", music, "--no-onsets", "--out", shared / "data")
    return shared / "data"


@pytest.fixture(scope="session")
def run(shared, data):
    """A two-epoch run of the frame-wise model; its pieces never end."""
    options = ("--hidden", 4, "--epochs", 2, "--model", "frame-wise", "--no-end")
    call_ok("train", data, *options, "--run", shared / "run")
    return shared / "run"


@pytest.fixture(scope="session")
def seconds_run(shared, music):
    """A run on rolls of frames of 0.1 s that models when pieces end."""
    call_ok("prepare", music, "-o", shared / "seconds", "--step-seconds", "0.1", "--no-onsets")
    call_ok(
        *("train", shared / "seconds", "--unit", "gru", "--hidden", 4, "--epochs", 1, "--end"),
        *("--run", shared / "seconds-run", "-q"),
    )
    return shared / "seconds-run"


@pytest.fixture(scope="session")
def struck(shared):
    """MIDI files of chords whose notes are struck and held at random."""
    for number, (split, count) in enumerate({"train": 8, "valid": 3, "test": 2}.items()):
        (shared / "struck" / split).mkdir(parents=True)
        for k in range(count):
            states = np.zeros((40, 88), np.uint8)
            states[:, 40:46] = random_states(10 * number + k, 40, 6, density=0.7)
            data = midi_bytes(as_frames(states), Grid.of_beats(4))
            (shared / "struck" / split / f"{k}.mid").write_bytes(data)
    return shared / "struck"


@pytest.fixture(scope="session")
def struck_data(shared, struck):
    call_ok("prepare", struck, "--out", shared / "struck-data")
    return shared / "struck-data"


@pytest.fixture(scope="session")
def struck_run(shared, struck_data):
    options = ("--hidden", 4, "--epochs", 2, "--augment-keys", "--learning-rate", 0.05)
    options = (*options, "--model", "frame-wise", "--no-end")
    call_ok("train", struck_data, *options, "--run", shared / "struck-run")
    return shared / "struck-run"
