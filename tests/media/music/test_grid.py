"""The grid: what it accepts, how exactly, and how it is written down."""

from decimal import Decimal

import pytest

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.music.grid import Grid

IMPOSSIBLE = ("0", "-1", "nan", "inf", "1e99999", "60.1", "1e-10", "0.1s", "")


def test_seconds_are_exact():
    """Guards against a step rounded to a binary float: 0.6 is not 0.59999."""
    for written in ("0.6", 0.6, Decimal("0.6")):
        assert Grid.of_seconds(written).step_nanoseconds == 600_000_000
    assert Grid.of_seconds("1e-9").step_nanoseconds == 1
    assert Grid.of_seconds("0.6").seconds_per_frame(77) == 0.6
    assert Grid.of_beats(4).seconds_per_frame(120) == 0.125  # which follow the tempo


@pytest.mark.parametrize(
    ("make", "option"),
    [
        *((lambda text=text: Grid.of_seconds(text), "--step-seconds") for text in IMPOSSIBLE),
        *((lambda steps=steps: Grid.of_beats(steps), "--steps-per-beat") for steps in (0, 32768)),
        (Grid, "either --steps-per-beat or --step-seconds"),
        (lambda: Grid(steps_per_beat=4, step_nanoseconds=10**8), "either"),
    ],
)
def test_impossible_grids_name_the_option(make, option):
    """Guards against a traceback, a division by zero, hours of work on a huge exponent, a grid no
    MIDI file could be written on, and one of neither kind or of both."""
    with pytest.raises(UsageError, match=option):
        make()


ODD = ({}, {"steps_per_beat": 0}, {"steps_per_beat": 2.5}, {"steps": 4}, None)


@pytest.mark.parametrize("values", [*ODD, {"steps_per_beat": True}])
def test_a_manifest_changed_by_hand_is_refused(values):
    """Guards against frames made on a grid that nobody intended."""
    with pytest.raises(SourceError):
        Grid.from_json(values)


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        (Grid.of_beats(4), "4 steps per beat"),
        (Grid.of_beats(1), "1 step per beat"),
        (Grid.of_seconds("0.600"), "0.6 s per step"),
        (Grid.of_seconds("0.123456789"), "0.123456789 s per step"),
        (Grid.of_seconds(60), "60 s per step"),  # not 6E+1
    ],
)
def test_a_grid_is_written_down(grid, text):
    assert (str(grid), Grid.from_json(grid.to_json())) == (text, grid)
