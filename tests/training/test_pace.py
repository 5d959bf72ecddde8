"""The time left: not reported before it is known, and right as soon as it is."""

import pytest

from seqmodel.training.loop import Pace


def test_the_first_update_does_not_count_towards_the_time_left():
    """Guards against reporting hours because the first update compiled for ten seconds."""
    pace = Pace()
    pace.updated(100, 10.0)
    assert pace.frames_per_second == 10.0
    assert pace.seconds_left(100_000, 0) is None
    told = []
    for _ in range(30):
        pace.updated(100, 0.1)
        told.append(pace.seconds_left(100_000, 0))
    assert pace.frames_per_second == pytest.approx(1000)
    assert told[:9] == [None] * 9
    assert told[10:] == pytest.approx([100.0] * 20)


def test_valid_counts_with_its_measured_time():
    """Guards against a time left that omits the passes over valid, or still guesses theirs."""
    pace = Pace()
    for _ in range(21):
        pace.updated(100, 0.1)
    assert pace.seconds_left(1000, 300) == pytest.approx(1.0 + 0.1)
    pace.scored(300, 3.0)
    assert pace.seconds_left(1000, 300) == pytest.approx(1.0 + 3.0)


def test_a_slower_machine_is_noticed():
    """Guards against a mean over days that hides what the last hour was like."""
    pace = Pace()
    for epoch in range(10):
        for _ in range(20):
            pace.updated(100, 0.1 if epoch < 5 else 1.0)
        pace.scored(100, 0.1)
    assert 95 < pace.frames_per_second < 105
