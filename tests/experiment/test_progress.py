"""The progress of an experiment: the time left, and events passed between processes."""

from pathlib import Path

import pytest

from seqmodel.experiment.progress import (
    AtHand,
    Counts,
    Event,
    Took,
    read_event,
    seconds_left,
    write_event,
)

ONE = {"a": Counts(1, 0, 1, 0)}
"""A single run; scoring it as the winner takes no time."""


def test_waiting_runs_take_as_long_as_others_of_their_cell():
    """Guards against assuming that an lstm takes as long as a tanh."""
    at_hand = [AtHand("a", 20.0, 40.0), AtHand("b", 10.0, None)]
    # Of those left one each is at hand; the winner's first seed is trained by then.
    counts = {"a": Counts(4, 1, 1, 0), "b": Counts(2, 1, 2, 0), "c": Counts(3, 0, 1, 0)}
    took = {"a": [Took(90.0)], "b": [Took(30.0)]}
    a, b = (90 + 60) / 2, 30.0  # c is unknown: the mean of those two
    expected = (40 + (b - 10) + 2 * a + b + 3 * (a + b) / 2) / 2
    assert seconds_left(at_hand, counts, took, 2) == pytest.approx(expected)


def test_a_whole_run_takes_longer_than_one_up_to_the_first_look():
    """Guards against an estimate from the first looks alone, twenty times too short."""
    counts = {"a": Counts(10, 4, 3, 0, finals=3), "b": Counts(10, 10, 3, 0, 3, 1)}
    at_hand = [AtHand("a", 2.0, None, 0.1), AtHand("b", 30.0, 20.0, 0.9)]
    took = {"a": [Took(4.0, 0.1)] * 4, "b": [Took(5.0, 0.1)] * 10 + [Took(40.0, 0.9)]}
    a, b = 40.0, (10 * 5.0 + 40.0 + 50.0) / (10 * 0.1 + 2 * 0.9)  # per whole run
    waiting = (5 * 0.1 + 3 * 0.9 + 2) * a + (0.9 + 2) * b
    assert seconds_left(at_hand, counts, took, 2) == pytest.approx((2.0 + 20 + waiting) / 2)


def test_more_processes_than_runs_do_not_shorten_the_longest():
    counts = {"a": Counts(2, 0, 1, 0)}
    at_hand = [AtHand("a", 1.0, 50.0), AtHand("a", 1.0, 2.0)]
    assert seconds_left(at_hand, counts, {}, 8) == 50


def test_a_run_that_takes_longer_than_all_others_is_about_to_end():
    assert seconds_left([AtHand("a", 70.0, None)], ONE, {"a": [Took(50.0)]}, 1) == 0


def test_a_run_that_had_nothing_left_says_nothing():
    """Guards against a division by zero after a kill at the very end of a run."""
    took = {"a": [Took(0.1, 0.0)]}
    assert seconds_left([AtHand("a", 3.0, None)], ONE, took, 1) is None


def test_without_known_times_there_is_no_estimate():
    assert seconds_left([AtHand("a", 3.0, None)], ONE, {"a": []}, 1) is None


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
