"""The progress of an experiment: the time left, and events passed between processes."""

import pytest

from seqmodel.experiment.folder import Counts, Event, read_event, seconds_left, write_event


def test_what_is_left_counts_trials_and_seeds_but_the_first():
    """Guards against a time left that promises the winner's run once more."""
    assert Counts(4, 1, 1, 0).left == 3  # the winner's first seed is trained by then
    assert Counts(4, 4, 1, 1).left == 0


def test_the_time_left_follows_from_the_pace_so_far():
    assert seconds_left(left=3.0, gained=1.5, spent=60.0, processes=2) == 60.0
    assert seconds_left(left=3.0, gained=0.0, spent=60.0, processes=2) is None
    assert seconds_left(left=3.0, gained=1.0, spent=60.0, processes=0) is None


def test_a_resumed_run_has_gained_only_what_was_trained_since():
    """Guards against "10 s left" after a run is resumed at nine tenths of hours."""
    event = Event("a/b/trial-0", 9, 10, 1.0, share=0.5, begun=9)
    assert (event.done, event.gained) == (pytest.approx(0.95), pytest.approx(0.05))
    ended = Event("a/b/trial-0", 9, 10, 1.0, ended="no better for 3 epochs", begun=8)
    assert ended.gained == pytest.approx(0.2)


def test_the_last_event_is_read_from_the_file(tmp_path):
    """Guards against the tail of a longer event left after a shorter one."""
    path = tmp_path / "lock"
    path.touch()
    assert read_event(path) is None
    long = Event("音楽/gru/trial-10", 10, 100, 10.123456789012345, None, 0.123456, 7)
    short = Event("a/b/seed-1", 0, 1, None)
    for event in (long, short, long):
        write_event(path, event)
        assert read_event(path) == event
    path.write_bytes(path.read_bytes()[:40])
    assert read_event(path) is None


def test_an_event_that_cannot_be_written_is_ignored(tmp_path):
    """Guards against training that fails because somebody cleared the folder of locks."""
    write_event(tmp_path / "gone" / "lock", Event("a/b/trial-0", 0, 1, None))
    assert read_event(tmp_path / "gone" / "lock") is None
