"""The grid: what it accepts, how exactly, and how it is written down."""

import json
from decimal import Decimal

import pytest

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.music.grid import Grid

IMPOSSIBLE = ("0", "-1", "nan", "inf", "1e99999", "60.1", "1e-10", "0.1s", "")


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("0.6", 600_000_000),
        (0.6, 600_000_000),
        (Decimal("0.1"), 100_000_000),
        ("1e-9", 1),
        (60, 60 * 10**9),
    ],
)
def test_seconds_are_exact(written, nanoseconds):
    """Guards against a step rounded to a binary float: 0.6 is not 0.59999."""
    assert Grid.of_seconds(written).step_nanoseconds == nanoseconds


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


@pytest.mark.parametrize("grid", [Grid.of_beats(4), Grid.of_seconds("0.123456789")])
def test_json_gives_the_grid_back(grid):
    """Guards a dataset's frame definition against losses in the manifest."""
    assert Grid.from_json(json.loads(json.dumps(grid.to_json()))) == grid


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"steps_per_beat": 0},
        {"steps_per_beat": 2.5},
        {"steps": 4},
        None,
        {"steps_per_beat": True},
    ],
)
def test_a_manifest_changed_by_hand_is_refused(values):
    """Guards against frames made on a grid that nobody intended."""
    with pytest.raises(SourceError):
        Grid.from_json(values)


def test_a_grid_has_a_readable_form():
    """Guards the readable form, also of round numbers (60 s, not 6E+1 s)."""
    grids = Grid.of_beats(4), Grid.of_beats(1), Grid.of_seconds("0.600"), Grid.of_seconds(60)
    assert [str(grid) for grid in grids] == [
        "4 steps per beat",
        "1 step per beat",
        "0.6 s per step",
        "60 s per step",
    ]


def test_seconds_per_frame():
    """Guards the length of samples: beats follow the tempo, seconds do not."""
    assert Grid.of_beats(4).seconds_per_frame(120) == 0.125
    assert Grid.of_seconds("0.6").seconds_per_frame(77) == 0.6
