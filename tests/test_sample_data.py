"""The sample music: the output of its script, with nothing in it twice."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import mido
import pytest

ROOM = Path(__file__).resolve().parent.parent / "sample_data"
SPLITS = {"train": 100, "valid": 20, "test": 20}
EIGHTH = 240  # ticks
Piece = frozenset[tuple[int, int, int, int]]
"""Its notes: voice, start and end in eighths, and pitch less the first one's of all."""


def read(path):
    notes = list[tuple[int, int, int, int]]()
    for voice, track in enumerate(mido.MidiFile(path).tracks[1:]):
        now, begun = 0, 0
        for message in track:
            now += message.time
            if message.type == "note_on" and message.velocity:
                begun = now
            elif message.type == "note_on":
                notes.append((voice, begun // EIGHTH, now // EIGHTH, message.note))
    return frozenset((v, begin, end, pitch - notes[0][3]) for v, begin, end, pitch in notes)


@pytest.fixture(scope="module")
def pieces():
    """Path within the sample -> piece."""
    return {str(path.relative_to(ROOM)): read(path) for path in (ROOM / "music").rglob("*.mid")}


def test_the_script_writes_what_is_committed(tmp_path):
    """Guards against a script changed without its music, and unseeded randomness."""
    subprocess.run([sys.executable, ROOM / "make_music.py", tmp_path], check=True)

    def contents(folder):
        paths = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    assert contents(tmp_path / "music") == contents(ROOM / "music")


def test_enough_pieces_in_little_space():
    """Guards against a lost split, and a corpus too large for the wheel."""
    paths = list((ROOM / "music").rglob("*.mid"))
    assert {s: sum(path.parent.name == s for path in paths) for s in SPLITS} == SPLITS
    assert len(paths) == sum(SPLITS.values())
    assert sum(path.stat().st_size for path in paths) < 400_000


def test_no_piece_twice(pieces):
    """Guards against names that draw the same music, even transposed: valid would not be unseen."""
    assert len({*pieces.values()}) == len(pieces)


def test_the_pretrained_run_has_seen_nothing_of_valid_or_test(pieces, tmp_path, monkeypatch):
    """In any key. Guards its figures, which are of valid; sample_data/README.md has the command.

    Every tenth of its pieces tells, since each is drawn by its name alone.
    """
    (count,) = re.findall(r"make_music\.py more (\S+) ", (ROOM / "README.md").read_text())
    monkeypatch.syspath_prepend(ROOM)
    make_music, train = importlib.import_module("make_music"), set[Piece]()
    for number in range(1, int(count) + 1, 10):
        make_music.compose(f"train/{number:03}").save(path := tmp_path / f"{number:03}.mid")
        train.add(read(path))
    assert len(train) == 100
    assert not train & {piece for path, piece in pieces.items() if "/train/" not in path}
