"""How far onsets lie from a grid, and which grid is suggested."""

import io

import numpy as np
import pytest
from midi_tracks import midi, notes

from seqmodel.media.music.contents import Timing, timing_text
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score

REAL = {
    "perf": ("--step-seconds 0.05", 17, 1),
    "pop": ("--step-seconds 0.05", 14, 3),
    "vgame": ("--steps-per-beat 12", 93, 3),
    "band": (None, 88, 3),
    "folk": (None, 100, 1),
    "drums": ("--steps-per-beat 12", 88, 3),
    "swing.mid": ("--steps-per-beat 12", 50, 0),
    "trip.mid": ("--steps-per-beat 12", 100 / 3, 0.1),
    "stacc.mid": (None, 100, 0),
}


FOUR = Grid.of_beats(4)


def timing_of(*files, grid=FOUR):
    timing = Timing(grid, drums=True)
    for data in files:
        timing.add(read_score(data))
    return timing


def at(ticks, *, division=480, length=20):
    """A file of notes that begin at the ticks, of pitches that differ from one to the next."""
    some = notes((tick, tick + length, 60 + k % 7) for k, tick in enumerate(ticks))
    file = io.BytesIO()
    midi([some], division=division).save(file=file)
    return file.getvalue()


PERFORMED = np.cumsum(np.random.default_rng(3).integers(20, 300, 400)).tolist()


@pytest.mark.parametrize("name", REAL)
def test_what_is_suggested_suits_real_music(shared_data, name):
    """By shares that were counted from mido's messages, in fractions."""
    suggestion, percent, tolerance = REAL[name]
    path = shared_data / "music/real" / name
    files = [file.read_bytes() for file in (sorted(path.glob("*.mid")) or [path])]
    values = timing_of(*files).to_json()
    assert values.get("suggestion") == suggestion
    assert 100 * values["on_grid"] == pytest.approx(percent, abs=tolerance or 1e-9)
    free = "seconds" in (suggestion or "")
    assert ("onsets ignore the beat, try --step-seconds" in timing_text(values, FOUR)) is free


@pytest.mark.parametrize(
    ("ticks", "division", "grid", "suggestion"),
    [
        ([t + k % 7 for k, t in enumerate(range(0, 48000, 120))], 480, FOUR, None),
        (range(0, 48000, 120), 480, Grid.of_beats(2), "--steps-per-beat 4"),
        (range(0, 4800, 60), 480, FOUR, "--steps-per-beat 8"),
        (range(0, 4800, 160), 480, FOUR, "--steps-per-beat 12"),
        ([round(k * 100 / 3) for k in range(90)], 100, FOUR, "--steps-per-beat 12"),
        ([480 * k // 2 + 80 * (k % 2) for k in range(90)], 480, FOUR, "--steps-per-beat 12"),
        (range(0, 4800, 20), 480, FOUR, "--steps-per-beat 24"),
        (range(0, 12000, 120), 100, FOUR, "--step-seconds 0.6"),
        (range(0, 12000, 120), 100, Grid.of_seconds("0.6"), None),
        (PERFORMED, 480, FOUR, "--step-seconds 0.05"),
        (PERFORMED, 480, Grid.of_seconds("0.05"), None),
        (range(0, 4800, 480), 480, Grid.of_seconds("0.1"), None),
        (range(0, 4800, 160), 480, Grid.of_seconds("0.2"), "--steps-per-beat 12"),
        # 25 frames a second of 40 ticks each: a thousand a second, and no beats.
        (range(0, 25000, 125), 0xE728, Grid.of_seconds("0.5"), "--step-seconds 0.125"),
    ],
)
def test_the_coarsest_grid_that_fits_is_suggested(ticks, division, grid, suggestion):
    """Nothing is said where the present one does, also where ticks jitter or are too coarse."""
    timing = timing_of(at(ticks, division=division), grid=grid)
    assert timing.to_json().get("suggestion") == suggestion


def test_pieces_are_weighed_by_their_onsets_and_told_in_a_line():
    """Guards the shares: of 400 onsets 300 are sixteenths and 100 triplets, 67 of them between."""
    straight = at(range(0, 36000, 120), length=60)
    triplets = at(range(0, 16000, 160), length=120)
    both = timing_of(straight, triplets).to_json()
    assert both == timing_of(triplets, straight).to_json()
    assert both == {
        "onsets": 400,
        "on_grid": 0.835,
        "off_by_ms": 42,
        "triplets": 0.165,
        "shorter_than_a_step": 0.75,
        "suggestion": "--steps-per-beat 12",
    }
    assert timing_text(both, FOUR) == (
        "83.5% of onsets lie on the grid (4 steps per beat), the others 42 ms off on average; "
        "16.5% are triplets; 75.0% of notes are shorter than a step: try --steps-per-beat 12"
    )
