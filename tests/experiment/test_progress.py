"""The progress of an experiment: the time left, and events passed between processes."""

from pathlib import Path

import pytest

from seqmodel.experiment.progress import (
    AtHand,
    Event,
    read_event,
    seconds_left,
    write_event,
)


def test_waiting_runs_take_as_long_as_others_of_their_cell():
    """Guards against assuming that an lstm takes as long as a tanh."""
    at_hand = [AtHand("a", 20.0, 40.0), AtHand("b", 10.0, None)]
    waiting, took = {"a": 2, "b": 1, "c": 3}, {"a": [90.0], "b": [30.0]}
    a, b = (90 + 60) / 2, 30.0  # c is unknown: the mean of those two
    expected = (40 + (b - 10) + 2 * a + b + 3 * (a + b) / 2) / 2
    assert seconds_left(at_hand, waiting, took, 2) == pytest.approx(expected)


def test_more_processes_than_runs_do_not_shorten_the_longest():
    assert seconds_left([AtHand("a", 1.0, 50.0), AtHand("a", 1.0, 2.0)], {}, {}, 8) == 50


def test_a_run_that_takes_longer_than_all_others_is_about_to_end():
    assert seconds_left([AtHand("a", 70.0, None)], {"a": 0}, {"a": [50.0]}, 1) == 0


def test_without_known_times_there_is_no_estimate():
    assert seconds_left([AtHand("a", 3.0, None)], {"a": 4}, {"a": []}, 1) is None


def test_the_last_event_is_read_from_the_file(tmp_path: Path):
    """Guards against the tail of a longer event left after a shorter one."""
    path = tmp_path / "lock"
    path.touch()
    assert read_event(path) is None
    long = Event("音楽/gru/trial-10", 10, 100, 10.123456789012345, None, 0.123456, 12345.678)
    short = Event("a/b/seed-1", 0, 1, None)
    for event in (long, short, long):
        write_event(path, event)
        assert read_event(path) == event
    path.write_bytes(path.read_bytes()[:40])
    assert read_event(path) is None


def test_an_event_that_cannot_be_written_is_ignored(tmp_path: Path):
    """Guards against training that fails because somebody cleared the folder of locks."""
    write_event(tmp_path / "gone" / "lock", Event("a/b/trial-0", 0, 1, None))
    assert read_event(tmp_path / "gone" / "lock") is None
