"""Notes to frames: the rule, its edge cases, its limits, and the published rolls."""

from itertools import product

import numpy as np
import pytest
import scipy.io
from midi_files import midi_file, note, piano_roll, quantity, tempo

from seqmodel.errors import SourceError
from seqmodel.media.music.contents import semitones_to_c
from seqmodel.media.music.frames import transposed
from seqmodel.media.music.grid import MAX_FRAMES, Grid
from seqmodel.media.music.midi import read_score

MATS = {
    "jsb_chorales": "JSB_Chorales",
    "nottingham": "Nottingham",
    "musedata": "MuseData",
    "piano_midi": "Piano_midi",
}


def roll_of(*tracks, grid=None, drums=False, transpose=0, short_notes=True, **header):
    score = read_score(midi_file(*tracks, **header))
    how = {"drums": drums, "transpose": transpose, "short_notes": short_notes}
    return piano_roll(score, grid or Grid.of_beats(1), **how)


def test_files_give_their_published_rolls_and_keys(shared_data, music, listing):
    """Guards the rule as a whole: every bit of a third (rounding, restrikes, folds, ends); and
    --transpose-to-c: at least 95% as listed, and over 92% of each set's."""
    mats = {
        name: scipy.io.loadmat(shared_data / f"music/rolls/{mat}.mat") for name, mat in MATS.items()
    }
    different, agreed = [], {name: [] for name in MATS}
    for name, entry in [*listing.items()][::3]:
        collection, split, _ = name.split("/")
        jsb = collection == "jsb_chorales"
        grid = Grid.of_seconds("0.6") if jsb else Grid.of_beats(2)
        score = read_score(music[name], restrike="discard")
        how = {"drums": True, "transpose": entry["transpose"], "short_notes": False}
        roll = piano_roll(score, grid, **how)
        published = mats[collection][f"{split}data"][0][entry["index"]]
        if not np.array_equal(roll if jsb else roll[1:], published):
            different.append(name)
        agreed[collection].append(semitones_to_c(score) == entry["transpose"])
    assert (different, len(listing)) == ([], 1930)
    del agreed["jsb_chorales"]  # in the keys that they are in
    count = sum(map(len, agreed.values()))
    assert count > 500
    assert sum(map(sum, agreed.values())) >= 0.95 * count
    assert all(sum(found) > 0.92 * len(found) for found in agreed.values())


@pytest.mark.parametrize("scale", [(0, 2, 4, 5, 7, 9, 11, 12), (0, 2, 3, 5, 7, 8, 11, 12)])
def test_scales_go_to_c_by_the_nearer_way_and_what_has_no_key_stays(scale):
    """Guards the sign and the range, -5 to 6, in both modes; pieces without notes, too."""

    def semitones(piece):
        return semitones_to_c(read_score(midi_file(piece)))

    for tonic in range(12):
        piece = b"".join(note(0, 480, pitch=48 + tonic + degree) for degree in (*scale, 7, 0))
        assert semitones(piece) == (-tonic if tonic < 6 else 12 - tonic)
    for piece in (b"", note(0, 9, channel=9), b"".join(note(0, 9, pitch=p) for p in range(48, 60))):
        assert semitones(piece) == 0


@pytest.mark.parametrize(
    ("on", "off", "sounding", "short"),
    [
        (0, 10, [0], [0]),
        (4, 15, [0, 1], [0, 1]),
        (5, 15, [1], [1]),
        (5, 14, [], [1]),
        (0, 4, None, [0]),
        (25, 25, [], [3]),
    ],
)
def test_half_a_step_rounds_up(on, off, sounding, short):
    """Guards floor(t/step + 1/2) against half-to-even, the ends of [f(on), f(off)) and short notes,
    which fill a frame or, in the published rolls, none."""
    data, grids = note(on, off - on), (Grid.of_beats(1), Grid.of_seconds("0.5"))
    for grid, (short_notes, filled) in product(grids, ((True, short), (False, sounding))):
        how = {"division": 10, "grid": grid, "short_notes": short_notes}
        if filled is None:
            with pytest.raises(SourceError, match="half a step"):
                roll_of(data, **how)
            continue
        assert np.flatnonzero(roll_of(data, **how)[:, 60 - 21]).tolist() == filled


def test_smpte_time_has_seconds_but_no_beats():
    """Guards 29.97 frames a second over ten minutes: at 30 the note would end in frame 5994."""
    ticks = 17982 * 2  # ten minutes of film at 30000/1001 frames, 2 ticks each, to 0.0006 s
    header = {"division": (256 - 29) << 8 | 2}
    far = note(0, ticks)
    assert len(roll_of(far, grid=Grid.of_seconds("0.1"), **header)) == 6000
    with pytest.raises(SourceError, match="--step-seconds"):
        roll_of(far, **header)


def test_drums_are_dropped_unless_kept():
    """Guards against drums played as a piano; the error says why nothing is left without them."""
    drum = note(0, 480, pitch=38, channel=9)
    assert not roll_of(note(0, 480) + drum)[:, 38 - 21].any()
    assert roll_of(drum, drums=True)[:, 38 - 21].all()
    with pytest.raises(SourceError, match="--drums only"):
        roll_of(drum)
    with pytest.raises(SourceError, match=r"^has no notes$"):
        roll_of(b"")


@pytest.mark.parametrize("grid", [Grid.of_beats(32767), Grid.of_seconds("1e-9")])
def test_a_piece_beyond_the_limit_is_refused_before_it_is_made(grid):
    """Guards memory against a tick of 2^31 (in eight deltas that the format allows)."""
    far = (quantity(2**28 - 1) + b"\xf8") * 8
    data = b"\x00\x90\x3c\x40" + far + b"\x08\x80\x3c\x40"
    with pytest.raises(SourceError, match=f"more than the {MAX_FRAMES}"):
        roll_of(data, grid=grid)


@pytest.mark.parametrize(("late", "frames"), [(-1, MAX_FRAMES - 1), (0, MAX_FRAMES)])
def test_the_longest_piece_is_exact(late, frames):
    """Guards the exact arithmetic at its limit: nothing overflows or rounds in 64 bits."""
    step = Grid(step_nanoseconds=59_999_999_999)
    half_before = (2 * MAX_FRAMES - 1) * step.step_nanoseconds
    milliseconds = -(-half_before // (2 * 10**6)) + late
    far, rest = divmod(milliseconds, 2**28 - 1)
    data = tempo(0, 10**6) + b"\x00\x90\x3c\x40" + (quantity(2**28 - 1) + b"\xf8") * far
    roll = roll_of(data + quantity(rest) + b"\x80\x3c\x40", grid=step, division=1000)
    assert len(roll) == frames
    assert roll[:, 60 - 21].all()


@pytest.mark.parametrize("semitones", [-100, -88, -12, -5, -1, 0, 1, 6, 13, 87, 88, 120])
def test_notes_that_meet_in_transposing_sound_once(semitones):
    """Recomputed note by note: one that comes back by octaves may find its place taken."""
    roll = (np.random.default_rng(1).random((40, 88)) < 0.3).astype(np.uint8)
    moved = np.zeros_like(roll)
    for t, pitch in np.argwhere(roll):
        place = pitch + semitones
        while place < 0:
            place += 12
        while place > 87:
            place -= 12
        moved[t, place] = 1
    assert np.array_equal(transposed(roll, semitones), moved)
