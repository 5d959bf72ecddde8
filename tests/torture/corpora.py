"""Small music and audio to prepare, train on and mutate, and command lines for runs on them."""

from contextlib import chdir
from pathlib import Path

import numpy as np
import soundfile
from calling import call_ok, write_piece

PIECES = {"train": 4, "valid": 2, "test": 1}
SMALL = ("--hidden", 4, "--epochs", 2, "--batch-size", 2)
FRAME_WISE = ("--model", "frame-wise")
LOGISTIC = ("--output", "logistic", "--components", 3)

# Every unit, output, medium and kind of randomness, and both CPU backends.
TRAININGS: dict[str, tuple[object, ...]] = {
    "tied lstm": ("music", *SMALL, "--truncate", 8),
    "tied gru of two layers, bernoulli": (
        *("music", *SMALL, "--unit", "gru", "--layers", 2, "--output", "bernoulli"),
        *("--weight-dropout", 0.2),
    ),
    "tied onsets": ("struck", *SMALL, "--note-unit", "gru", "--end"),
    "nade lstm": ("music", *SMALL, "--output", "nade", "--nade-hidden", 5, "--dropout", 0.3),
    "tanh, noise": ("music", *SMALL, *FRAME_WISE, "--unit", "tanh", "--weight-noise", 0.1),
    "gru, keys": ("music", *SMALL, *FRAME_WISE, "--unit", "gru", "--augment-keys"),
    "gru1, windows": ("music", *SMALL, *FRAME_WISE, "--unit", "gru1", "--truncate", 5),
    "gru2, dropout": ("music", *SMALL, *FRAME_WISE, "--unit", "gru2", "--dropout", 0.5),
    "gru3, rmsprop": ("music", *SMALL, *FRAME_WISE, "--unit", "gru3", "--optimizer", "rmsprop"),
    "mgu, no mean": ("music", *SMALL, *FRAME_WISE, "--unit", "mgu", "--average", 0),
    "lstm without peepholes": ("music", *SMALL, *FRAME_WISE, "--unit", "lstm-nopeephole"),
    "gru-reset-after, everything": (
        *("music", *SMALL, *FRAME_WISE, "--unit", "gru-reset-after", "--truncate", 7),
        *("--dropout", 0.2, "--weight-noise", 0.05, "--weight-dropout", 0.1, "--augment-keys"),
    ),
    "reference": ("music", *SMALL, *FRAME_WISE, "--unit", "gru", "--backend", "reference"),
    "search": ("music", *SMALL, *FRAME_WISE, "--unit", "tanh", "--trials", 5),
    "the paper's search": ("music", *SMALL, *FRAME_WISE, "--preset", "paper", "--trials", 2),
    "gaussian gru": ("audio", *SMALL, "--unit", "gru", "--output", "gaussian", "--components", 3),
    "logistic lstm, windows": ("audio", *SMALL, *FRAME_WISE, *LOGISTIC, "--truncate", 20),
    "logistic by reference": ("audio", *SMALL, *FRAME_WISE, *LOGISTIC, "--backend", "reference"),
    "sample-wise": ("audio", *SMALL, *LOGISTIC, "--truncate", 120),
    "sample-wise gru, ends": ("audio", *SMALL, "--unit", "gru", "--dropout", 0.2, "--end"),
    "sample-wise by reference": ("audio", *SMALL, *LOGISTIC, "--backend", "reference"),
}


def write_sources(folder):
    """Music in mid/ and speech-like noise in wav/, in folders for the splits."""
    random = np.random.default_rng(1)
    for number, (split, count) in enumerate(PIECES.items()):
        for k in range(count):
            write_piece(folder / "mid" / split / f"{k}.mid", 10 * number + k, 24)
            path = folder / "wav" / split / f"{k}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples = np.convolve(random.normal(0, 0.1, 500), np.ones(5) / 5, "same")
            soundfile.write(path, samples, 8000, subtype="PCM_16")


def write_datasets(folder):
    """The datasets music, struck and audio, of `write_sources`."""
    write_sources(folder)
    here("prepare", folder / "mid", "-o", folder / "music", "-q", "--no-onsets")
    here("prepare", folder / "mid", "-o", folder / "struck", "-q")
    here("prepare", folder / "wav", "-o", folder / "audio", "-q")


def training(folder, name, run):
    """The command line of a training of `TRAININGS` on the datasets in `folder`."""
    data, *options = TRAININGS[name]
    return ("train", folder / str(data), *options, "--run", run, "-q")


def going_on(run, begin):
    """The command line that resumes a run, or restarts it if nothing was saved."""
    saved = [*run.glob("last.safetensors"), *run.glob("draws/*/last.safetensors")]
    if saved and (run / "config.yaml").exists():
        return ("train", "--resume", "--run", run, "-q")
    return (*begin, "--force")


def here(*arguments, place=Path()):
    """Run a command line in this process, which keeps what it imported and compiled."""
    with chdir(place):
        call_ok(*arguments)
