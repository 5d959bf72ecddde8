"""What MIDI files hold besides notes on a grid, how far from one they lie, what is not kept."""

import io
from collections import Counter
from pathlib import Path

import mido
import numpy as np
import pytest
from midi_files import midi_file, note, tempo
from midi_tracks import midi, notes, save

from seqmodel.media.music.contents import Contents, Timing, not_kept, parts_of, timing_text
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score


def meta(kind: int, *body: int) -> bytes:
    return bytes([0, 0xFF, kind, len(body), *body])


def program(number: int, channel: int = 0) -> bytes:
    return bytes([0, 0xC0 | channel, number])


PEDAL = b"".join(bytes([0, 0xB0, 64, value]) for value in (10, 64, 100, 0, 127, 0))
SONG = midi_file(
    tempo(0, 500_000) + meta(0x58, 6, 3, 24, 8) + meta(0x59, 0xFD, 1) + meta(0x59, 9, 0)
    + meta(0x58, 4, 9, 24, 8) + tempo(480, 400_000) + meta(0x59, 2, 0),
    meta(0x03, *b" Ch\x9cur ") + program(73) + note(0, 100) + program(40) + PEDAL + note(0, 100)
    + meta(0x03, *b"Other"),
    program(4, 2) + note(0, 480, channel=2) + note(0, 0, channel=2) + note(0, 60, channel=9),
    note(0, 60, pitch=30, channel=2),
)  # fmt: skip


def test_parts_programs_keys_and_pedal():
    """Two programs of a part, another track's, a name in cp1252, odd signatures, half pedalling."""
    score = read_score(SONG)
    assert (score.meters, score.keys, score.pedal) == (((0, 6, 8),), ("Cm", "D"), 2)
    names = ("track", "name", "channel", "programs", "notes")
    assert [tuple(part[name] for name in names) for part in parts_of(score)] == [
        (2, "Chœur", 1, [74, 41], 2),
        (3, "", 3, [5], 2),
        (3, "", 10, [], 1),
        (4, "", 3, [5], 1),
    ]


@pytest.mark.parametrize(
    ("frame", "missing"),
    [
        (PianoRollFrames(Grid.of_beats(4)), ""),
        (PianoRollFrames(Grid.of_beats(4), drums=True), ""),
        (PianoRollFrames(Grid.of_seconds("0.1")), "tempo"),
    ],
)
def test_what_the_frames_do_not_hold_is_named(frame, missing):
    """Nothing is said of what is the same in all files and what a sampled file has too."""
    contents = Contents(frame)
    contents.add(read_score(midi_file(note(0, 480), meta(0x58, 4, 2, 24, 8) + tempo(0, 500_000))))
    assert not_kept(contents.to_json(), frame) == []
    contents.add(read_score(SONG))
    louder = SONG.replace(bytes([0x90, 60, 64]), bytes([0x90, 60, 99]), 1)
    contents.add(read_score(louder))
    assert contents.to_json()["keys"] == {"Cm": 2, "D": 2}
    expected = [
        "velocities (64 to 99)",
        "2 tempo changes (120 to 150 bpm)",
        *["time signatures (6/8 and 4/4)"][: missing == "tempo"],
        "key signatures (Cm and D)",
        "parts (up to 4 in a piece)",
        "instruments (4 programs)",
        "pedal (pressed 4 times)",
        "which notes are drums (2)" if frame.drums else "drums (2 notes; --drums keep)",
    ]
    assert not_kept(contents.to_json(), frame) == [
        phrase for phrase in expected if not missing or missing not in phrase
    ]


def test_what_the_pedal_adds_is_measured_in_seconds(tmp_path):
    """By hand: sounds of 2.5 and 2 s, whose keys are down for 0.5 and 1 s; drums do not count."""
    slower = (480, mido.MetaMessage("set_tempo", tempo=1_000_000))
    down = mido.Message("control_change", control=64, value=100)
    moves = [(0, down), (10, down), (1440, down.copy(value=0))]
    some = notes([(0, 480, 60), (480, 960, 62)]) + notes([(0, 99, 36)], channel=9)
    path = save(tmp_path / "a.mid", [[slower, *moves, *some]])
    contents = Contents(PianoRollFrames(FOUR))
    contents.add(read_score(path.read_bytes()))
    told = contents.to_json()
    assert (told["pedal"], told["pedal_share"]) == (1, 0.6667)


def test_what_pieces_hold_adds_up():
    """Guards a count that is lost where each piece is counted by itself first, as in `prepare`."""
    paths = sorted((Path(__file__).parents[3] / "sample_data" / "music" / "valid").iterdir())[:4]
    scores = [read_score(path.read_bytes()) for path in paths]
    frame = PianoRollFrames(Grid.of_seconds(6.0))
    whole, merged = Contents(frame), Contents(frame)
    for score in scores:
        alone = Contents(frame)
        alone.add(score)
        merged.update(alone)
        whole.add(score)
    assert vars(merged.timing) == vars(whole.timing)
    assert any(n for key, n in whole.timing.sums.items() if key[0] == "merged")
    assert merged.to_json() == whole.to_json()


REAL = {
    "perf": ("--step-seconds 0.05", 17, 1),
    "pop": ("--steps-per-beat 12", 94.26, 0.1),
    "vgame": ("--steps-per-beat 8", 94.6, 0.1),
    "band": (None, 88, 3),
    "folk": (None, 100, 1),
    "drums": ("--steps-per-beat 8", 92.19, 0.1),
    "swing.mid": ("--steps-per-beat 12", 50, 0),
    "trip.mid": ("--steps-per-beat 12", 100 / 3, 0.1),
    "stacc.mid": (None, 100, 0),
}


FOUR = Grid.of_beats(4)


def timing_of(*files, grid=FOUR):
    timing = Timing(PianoRollFrames(grid, drums=True), Counter())
    for data in files:
        timing.add(read_score(data))
    return timing


def at(ticks, *, division=480, length=20):
    """A file of notes that begin at the ticks, of pitches that differ from one to the next."""
    some = notes((tick, tick + length, 60 + k % 7) for k, tick in enumerate(ticks))
    file = io.BytesIO()
    midi([some], division=division - 2**16 * (division >= 2**15)).save(file=file)
    return file.getvalue()


PERFORMED = np.cumsum(np.random.default_rng(3).integers(20, 300, 400)).tolist()


def test_a_lag_counts_as_frames_are_read():
    """It is taken off on a grid of beats, but not in seconds, which have none."""
    late = at([120 * k + 50 for k in range(1, 60)])
    in_beats, in_seconds = (timing_of(late, grid=g) for g in (FOUR, Grid.of_seconds("0.125")))
    assert (in_beats.to_json()["on_grid"], in_seconds.to_json()["on_grid"]) == (1, 0)


def test_hits_that_nothing_ends_are_compared_with_those_before():
    """They are read last; two of a drum in one frame ask for a finer grid all the same."""
    hits = note(0, 5, 36, 9) + note(0, 5, 38, 9) + bytes([5, 0x99, 36, 64])
    timing = Timing(PianoRollFrames(FOUR, kit=True), Counter())
    timing.add(read_score(midi_file(hits), hits=True))
    assert timing.sums["merged", FOUR] == 1


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
        ([t + 50 + k % 7 for k, t in enumerate(range(0, 48000, 120))], 480, FOUR, None),
        (range(70, 48000, 120), 480, FOUR, None),
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


def test_onsets_beside_the_grid_are_not_off_it():
    """By a tick or two, or where ticks are too coarse for it: triplets of 20 ticks a beat."""
    beside = [120 * k + 2 * (k % 2) for k in range(98)]
    assert timing_of(at([*beside, 120 * 99 + 42])).to_json()["off_by_ms"] == 44
    triplets = at([round(k * 20 / 3) for k in range(90)], division=20)
    assert timing_of(triplets).to_json()["triplets"] == 0.6667


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
        "75.0% of notes are shorter than a step; 16.5% are triplets; try --steps-per-beat 12"
    )
