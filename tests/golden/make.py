"""Makes the golden datasets and runs, with seqmodel as it was before the redesign.

They stand for what users already have on disk, so never regenerate them with newer code. From the
root of the repository, with a checkout of commit 7c90286 in OLD:

    PYTHONPATH=OLD OMP_NUM_THREADS=1 python tests/golden/make.py

Datasets are named relative to this folder, which is therefore the working folder here; that of
test_golden.py is a copy of it.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import soundfile
from seqmodel.dataset import open_dataset

from seqmodel.config import resolve
from seqmodel.training.loop import Listener, Trainer
from seqmodel.training.stopping import InterruptError, StopRequest

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parents[1] / "sample_data"
PIECES = {"train": range(1, 5), "valid": range(1, 3), "test": range(1, 2)}
SPEECH_SAMPLES = 2400  # 0.3 s

MUSIC = {"data": "music", "epochs": 15, "learning_rate": 0.05, "batch_size": 2, "seed": 5}
AUDIO = {"epochs": 4, "batch_size": 2, "truncate": 100, "components": 3, "seed": 5}
RUNS = {
    "lstm": {**MUSIC, "unit": "lstm", "hidden": 6},
    "gru-end": {**MUSIC, "unit": "gru", "hidden": 5, "end": True, "augment_keys": True},
    "stack": {**MUSIC, "unit": "mgu", "hidden": 4, "layers": 2, "optimizer": "rmsprop"},
    "gaussian": {**AUDIO, "data": "speech", "unit": "gru", "hidden": 6},
    "logistic": {**AUDIO, "data": "speech", "unit": "lstm", "hidden": 6, "output": "logistic"},
    "resampled": {**AUDIO, "data": "speech-6000", "unit": "tanh", "hidden": 6},
}
STOPPED = {**MUSIC, "unit": "gru", "hidden": 5, "truncate": 30, "epochs": 3}
STOP_AFTER = 16
"""Updates: in the second epoch, between two windows of a batch."""
SAMPLED = {"lstm": 64, "gru-end": 64}
"""Frames drawn from each run."""


def seqmodel(*arguments: object) -> str:
    """What the command line prints."""
    command = [sys.executable, "-m", "seqmodel", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def make_datasets() -> None:
    for split, numbers in PIECES.items():
        for number in numbers:
            source = SAMPLES / "music" / split / f"{number:03}.mid"
            target = Path("in", "music", split, source.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
            source = SAMPLES / "speech" / split / f"{number:03}.flac"
            target = Path("in", "speech", split, f"{number:03}.wav")
            target.parent.mkdir(parents=True, exist_ok=True)
            samples, rate = soundfile.read(source, SPEECH_SAMPLES, dtype="int16")
            soundfile.write(target, samples, rate)
    seqmodel("prepare", "in/music", "--out", "music")
    seqmodel("prepare", "in/speech", "--out", "speech")
    seqmodel("prepare", "in/speech", "--out", "speech-6000", "--rate", 6000)
    shutil.rmtree("in")


def train(name: str, options: dict, stop_after: int | None = None, *, resume: bool = False) -> None:
    dataset, stop, updates = open_dataset(options["data"]), StopRequest(), []

    def tick(event: object) -> None:
        updates.append(event)
        if len(updates) == stop_after:
            stop.signal = 15

    config = resolve(options, media=dataset.frame.media)
    trainer = Trainer(config, dataset, Path(name))
    if resume:
        trainer.resume()
    with contextlib.suppress(InterruptError):
        trainer.run(Listener(tick=tick), stop)


def evaluated(run: str) -> dict:
    """The figures of a run that do not depend on its location."""
    report = json.loads(seqmodel("eval", run, "--json", "-q"))
    return {name: value for name, value in report.items() if name not in ("run", "data")}


def main() -> None:
    os.chdir(HERE)
    for old in [path for path in Path().iterdir() if path.is_dir()]:
        shutil.rmtree(old)
    make_datasets()
    figures = {}
    for name, options in RUNS.items():
        train(name, options)
        figures[name] = evaluated(name)
        Path(name, "last.safetensors").unlink()  # nothing reads it, and it is the largest file
    for name, length in SAMPLED.items():
        seqmodel("sample", f"{name}/expected.mid", "--run", name, "--length", length, "--seed", 4)
    train("stopped", STOPPED, STOP_AFTER)
    shutil.copytree("stopped", "whole")
    train("whole", STOPPED, resume=True)
    figures["stopped"] = evaluated("whole")
    Path("whole", "best.safetensors").rename("stopped/expected.safetensors")
    shutil.rmtree("whole")
    for picture in Path().glob("*/*.png"):
        picture.unlink()
    Path("figures.json").write_text(json.dumps(figures, indent=1) + "\n")


main()
