"""Reading by several processes: the same, in order, whatever happens to them."""

import multiprocessing
import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest

from seqmodel.data import prepare as reading
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.media.registry import MEDIA

SAMPLES = Path(__file__).parents[2] / "sample_data"


@pytest.fixture
def at_once(monkeypatch):
    """Other processes help from the second file on."""
    monkeypatch.setattr(reading, "ALONE", 0.0)
    monkeypatch.setattr(reading, "FEW", 0)


@pytest.mark.parametrize(("medium", "room"), [("music", "music"), ("audio", "speech")])
def test_the_number_of_processes_changes_no_byte(at_once, tmp_path, monkeypatch, medium, room):
    """Guards the order of pieces, what is counted of them, and why a file is skipped."""
    sources, folders = tmp_path / "in" / "train", []
    shutil.copytree(SAMPLES / room / "train", sources)
    first = min(sources.iterdir())
    (sources / f"damaged{first.suffix}").write_bytes(first.read_bytes()[:30])
    for processes in (1, 3):
        monkeypatch.setattr("seqmodel.data.prepare.cores", lambda n=processes: n)
        folders.append(tmp_path / f"by-{processes}")
        found = find_sources([str(sources)])
        manifest = prepare(found, folders[-1], MEDIA[medium].settings({}))
        assert len(manifest["skipped"]) == 1
        assert manifest["splits"]["train"]["pieces"] > 5
    one, other = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert one == other


def _numbered(path):
    """What the tests read of a file that is called by a number."""
    if path.name == "13":
        raise SourceError("brings bad luck")
    if path.name == "14":
        os._exit(1)
    if path.name == "15":
        raise MemoryError("of another process")
    return int(path.name)


def _at_length(path):
    """More than a pipe holds."""
    return bytes(2**20)


def _paths(*numbers):
    return [Path(str(number)) for number in numbers]


def test_errors_are_told_where_they_belong(at_once):
    """Guards an error that ends the reading of others, is told of another file, or as a kill."""
    *others, last = reading.read_all(_numbered, _paths(*range(14)), 3)
    assert others == [*range(13)]
    assert str(last) == "brings bad luck"
    with pytest.raises(MemoryError, match="of another process"):
        list(reading.read_all(_numbered, _paths(1, 2, 15), 2))


def test_a_killed_process_is_told(at_once):
    """Also as it sends. Guards a command that waits for ever, or goes on without some files."""
    with pytest.raises(SeqmodelError, match="killed"):
        list(reading.read_all(_numbered, _paths(*range(20)), 3))
    with closing(reading.read_all(_at_length, _paths(*range(9)), 2)) as going:
        next(going), next(going)
        time.sleep(0.2)  # both wait for room in their pipes by now
        for child in multiprocessing.active_children():
            child.kill()
        with pytest.raises(SeqmodelError, match="killed"):
            list(going)


def test_nothing_is_left_of_a_reading_that_ends_early(at_once):
    """Guards processes that outlive the command, as where the disk is full."""
    with closing(reading.read_all(_numbered, _paths(*range(100, 50_000)), 2)) as going:
        assert [next(going), next(going), next(going)] == [100, 101, 102]
        began = multiprocessing.active_children()
    assert len(began) == 2
    assert not any(process.is_alive() for process in began)
