"""The sample speech: the output of its script, with nothing in it twice."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile

ROOM = Path(__file__).resolve().parent.parent / "sample_data"
SPLITS = {"train": (14, 63), "valid": (3, 13), "test": (3, 13)}  # pieces, seconds
RATE = 8000


@pytest.fixture(scope="module")
def speech():
    """Split -> pieces (N,) in [-1, 1)."""
    return {
        split: [soundfile.read(path)[0] for path in sorted((ROOM / "speech" / split).iterdir())]
        for split in SPLITS
    }


def test_the_script_writes_what_is_committed(tmp_path):
    """Guards against a script changed without its speech, and unseeded randomness.

    Only samples are compared: the bytes around them carry the encoder's version.
    """
    subprocess.run([sys.executable, ROOM / "make_speech.py", tmp_path], check=True)
    made, there = tmp_path / "speech", ROOM / "speech"
    names = sorted(path.relative_to(there) for path in there.rglob("*.flac"))
    assert names == sorted(path.relative_to(made) for path in made.rglob("*.flac"))
    for name in names:
        ours, theirs = (soundfile.read(room / name, dtype="int16") for room in (made, there))
        assert ours[1] == theirs[1]
        np.testing.assert_array_equal(ours[0], theirs[0])


def test_enough_speech_in_little_space(speech):
    """Guards against a lost split, a changed format, or a corpus too large for the wheel."""
    paths = list((ROOM / "speech").rglob("*.*"))
    assert sum(path.stat().st_size for path in paths) < 1_000_000
    for split, (pieces, seconds) in SPLITS.items():
        lengths = [len(samples) / RATE for samples in speech[split]]
        assert len(lengths) == pieces
        assert sum(lengths) == pytest.approx(seconds, rel=0.05)
        assert 3.5 <= min(lengths) <= max(lengths) <= 6
    assert len(paths) == sum(pieces for pieces, _ in SPLITS.values())
    for path in paths:
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.subtype) == (RATE, 1, "PCM_16")


def test_no_piece_twice(speech):
    """Guards against two names that draw the same babble: valid would not be unseen."""
    pieces = list(chain.from_iterable(speech.values()))
    assert len({samples.tobytes() for samples in pieces}) == len(pieces)
