"""The real music, read once for all tests of frames."""

import json
from pathlib import Path

import pytest
from kept_files import song_at


@pytest.fixture(scope="session")
def listing(shared_data):
    """For each MIDI file its place in the published rolls and its transposition."""
    return json.loads((shared_data / "music/rolls/midi_to_roll.json").read_text())


@pytest.fixture(scope="session")
def music(shared_data, listing):
    """The bytes of all 1930 MIDI files, by their names in the listing."""
    return {name: (shared_data / "music" / name).read_bytes() for name in listing}


@pytest.fixture(scope="session")
def awkward(shared_data):
    """Paths of the odd and broken MIDI files."""
    paths = [path for path in (shared_data / "awkward/midi").rglob("*") if path.is_file()]
    return sorted(paths, key=Path.as_posix)


@pytest.fixture
def song(tmp_path):
    """The file of a band."""
    return song_at(tmp_path / "song.mid")
