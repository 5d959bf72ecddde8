"""The sample music and speech: the output of their scripts, with nothing in it twice."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import mido
import numpy as np
import pytest
import soundfile

ROOM = Path(__file__).resolve().parent.parent / "sample_data"
EIGHTH = 240  # ticks
RATE = 8000
SPLITS = {"music": (100, 20, 20), "speech": (14, 3, 3)}
"""Pieces in train, valid and test."""
MOST = {"music": 400_000, "speech": 1_000_000}
"""Bytes."""


def notes(path):
    """A set of (voice, start and end in eighths, pitch less the first one's of all)."""
    found = []
    for voice, track in enumerate(mido.MidiFile(path).tracks[1:]):
        now, begun = 0, 0
        for message in track:
            now += message.time
            if message.type == "note_on" and message.velocity:
                begun = now
            elif message.type == "note_on":
                found.append((voice, begun // EIGHTH, now // EIGHTH, message.note))
    return frozenset((v, begin, end, pitch - found[0][3]) for v, begin, end, pitch in found)


def samples(path):
    """The bytes around them carry the encoder's version."""
    info = soundfile.info(path)
    assert (info.samplerate, info.channels, info.subtype) == (RATE, 1, "PCM_16")
    return soundfile.read(path, dtype="int16")[0].tobytes()


READ = {"music": notes, "speech": samples}


@pytest.fixture(scope="module", params=SPLITS)
def sample(request):
    """Its name, and path within it -> piece."""
    kind = request.param
    paths = [path for path in (ROOM / kind).rglob("*.*") if path.is_file()]
    return kind, {path.relative_to(ROOM / kind): READ[kind](path) for path in paths}


def test_the_script_writes_what_is_committed(sample, tmp_path):
    """Guards against a script changed without its sample, and unseeded randomness."""
    kind, pieces = sample
    subprocess.run([sys.executable, ROOM / f"make_{kind}.py", tmp_path], check=True)
    made = {
        path.relative_to(tmp_path / kind): path
        for path in (tmp_path / kind).rglob("*")
        if path.is_file()
    }
    assert made.keys() == pieces.keys()
    for name, path in made.items():
        if kind == "music":
            assert path.read_bytes() == (ROOM / kind / name).read_bytes()
        else:
            assert samples(path) == pieces[name]


def test_enough_pieces_in_little_space_and_none_twice(sample):
    """Guards against a lost split, a corpus too large for the wheel, and names that draw the same
    music, even transposed, or babble: valid would not be unseen."""
    kind, pieces = sample
    assert sum((ROOM / kind / name).stat().st_size for name in pieces) < MOST[kind]
    counts = [sum(name.parent.name == s for name in pieces) for s in ("train", "valid", "test")]
    assert (tuple(counts), sum(counts)) == (SPLITS[kind], len(pieces))
    assert len({*pieces.values()}) == len(pieces)
    if kind == "speech":
        seconds = [len(piece) / 2 / RATE for piece in pieces.values()]
        assert 3.5 <= min(seconds) <= max(seconds) <= 6
        assert np.sum(seconds) == pytest.approx(89, rel=0.05)


def test_the_pretrained_run_has_seen_nothing_of_valid_or_test(tmp_path, monkeypatch):
    """In any key. Guards its figures, which are of valid; sample_data/README.md has the command.

    Every 25th of its pieces tells, since each is drawn by its name alone.
    """
    (count,) = re.findall(r"make_music\.py more (\S+) ", (ROOM / "README.md").read_text())
    monkeypatch.syspath_prepend(ROOM)
    make_music, train = importlib.import_module("make_music"), set()
    for number in range(1, int(count) + 1, 25):
        make_music.compose(f"train/{number:03}").save(path := tmp_path / f"{number:03}.mid")
        train.add(notes(path))
    assert len(train) == 40
    others = [ROOM / "music" / split for split in ("valid", "test")]
    assert not train & {notes(path) for folder in others for path in folder.iterdir()}
