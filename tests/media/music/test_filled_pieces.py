"""Which part of a file `sample --fill` draws anew, and what is kept of the file."""

import mido
import numpy as np
import pytest
from midi_tracks import notes, save, tempo

from seqmodel.errors import UsageError
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.sampling import FilledPiece

BEATS = PianoRollFrames(Grid.of_beats(4))


@pytest.fixture
def melody(tmp_path):
    """Two bars of 3/4 at 90 bpm over a bass: C5 struck twice, E5, rest, G5; C3 throughout."""
    head = [
        (0, mido.MetaMessage("time_signature", numerator=3, denominator=4)),
        tempo(0, mido.bpm2tempo(90)),
    ]
    tune = notes([(0, 1, 72), (1, 2, 72), (2, 4, 76), (5, 6, 79), (0, 6, 48)], step=48)
    return save(tmp_path / "melody.mid", [head + tune], division=48, kind=0)


def free_of(path, **options):
    """The notes to be drawn: (24, 88), 4 frames a beat."""
    return FilledPiece(path, BEATS, options).free


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ({"bars": "1"}, range(12)),
        ({"bars": "2:"}, range(12, 24)),
        ({"bars": ":2"}, range(24)),
        ({"frames": "3:5"}, range(3, 5)),
        ({"frames": ":99"}, range(24)),
        ({"time": "1:2"}, range(6, 12)),  # a frame lasts a sixth of a second
        ({"bars": "1:1", "frames": "8:20"}, range(8, 12)),
    ],
)
def test_stretches_of_time(melody, options, frames):
    """Bars follow the file's time signature, seconds its tempo; several intersect."""
    expected = np.zeros((24, 88), bool)
    expected[list(frames)] = True
    np.testing.assert_array_equal(free_of(melody, **options), expected)


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ({"bars": "2:95"}, "--bars 2:95 is cut at 2"),
        ({"frames": ":25"}, "--frames :25 is cut at 24"),
        ({"time": "3:5.5"}, "--time 3:5.5 is cut at 4.0"),
        ({"bars": ":2", "frames": ":24", "time": ":4.0"}, None),
    ],
)
def test_a_stretch_beyond_the_end_is_told(melody, options, cut):
    """Bars to 95 of a file with two used to be redrawn in silence, as the second."""
    remarks = [] if cut is None else [f"{cut}, where {melody} ends"]
    assert FilledPiece(melody, BEATS, options).remarks == remarks


def test_a_files_length_can_be_given_in_whole_seconds(tmp_path):
    path = save(tmp_path / "a.mid", [[tempo(0, 650_000), *notes([(0, 6, 72)], step=480)]])  # 3.9 s
    assert FilledPiece(path, BEATS, {"time": "2:4"}).remarks == []


def test_notes_and_what_lies_below_above_and_between(melody):
    assert (np.flatnonzero(free_of(melody, notes="C4").all(0)) + 21).tolist() == [60]
    free = free_of(melody, notes="C4:Eb5")
    assert (np.flatnonzero(free.all(0)) + 21).tolist() == list(range(60, 76))
    assert not free[:, free.any(0) & ~free.all(0)].any()
    # The highest voice is C5 twice, E5, then the bass alone for a beat, and G5.
    top = [72] * 8 + [76] * 8 + [48] * 4 + [79] * 4
    below, above = free_of(melody, below=True), free_of(melody, above=True)
    for t, pitch in enumerate(top):
        assert np.flatnonzero(below[t]).tolist() == list(range(pitch - 21))
        assert np.flatnonzero(above[t]).tolist() == list(range(48 - 21 + 1, 88))
    np.testing.assert_array_equal(free_of(melody, below=True, above=True), below & above)


def test_a_line_goes_on_where_the_file_rests(tmp_path):
    """At a rest the line is that of the note before; at first, of the first note."""
    roll = np.zeros((5, 88), np.uint8)
    roll[1, 40] = roll[3, 50] = 1
    np.save(tmp_path / "x.npy", roll)
    below = free_of(tmp_path / "x.npy", below=True)
    assert below.sum(1).tolist() == [40, 40, 40, 50, 50]


@pytest.mark.parametrize(("late", "said"), [(0, False), (24, True)])
def test_notes_that_end_early_are_on_the_grid(melody, late, said):
    """As most notation programs write them; one that begins off the grid is still told."""
    file = mido.MidiFile(melody)
    for k, message in enumerate(file.tracks[0][:-1]):
        if message.type == "note_off" and message.time:
            message.time -= 2
            file.tracks[0][k + 1].time += 2
    file.tracks[0][2].time = late
    file.save(melody)
    remarks = FilledPiece(melody, PianoRollFrames(Grid.of_beats(1)), {"below": True}).remarks
    off_grid = f"{melody} has notes off the run's grid (1 step per beat), moved onto it"
    assert remarks == [off_grid] * said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "select the part to draw with --bars, --frames, --time, --notes, --below, --above"),
        ({"bars": "3:3"}, "begin in .*melody.mid's bars, 1 to 2"),
        ({"bars": "0:1"}, "begin in .*melody.mid's bars, 1 to 2"),
        ({"bars": "2:1"}, "--bars 2:1 is the wrong way round"),
        ({"notes": "C7:C4"}, "--notes C7:C4 is the wrong way round"),
        ({"bars": "x"}, "--bars must be a bar or FROM:TO, not 'x'"),
        ({"frames": "4"}, "--frames must be FROM:TO, not '4'"),
        ({"frames": "4:4"}, "none of .*melody.mid's frames, 0 to 23"),
        ({"frames": "-1:4"}, "--frames must be FROM:TO, not '-1:4'"),
        ({"time": "4:5"}, "no frame of .*melody.mid, which lasts 4.0 s"),
        ({"time": "nan:5"}, "--time must be FROM:TO in seconds, not 'nan:5'"),
        ({"time": "1:inf"}, "--time must be FROM:TO"),
        ({"notes": ":C-1"}, "--notes :C-1 contains none of the keys, A0 to C8"),
        ({"notes": "H2"}, "--notes must be a note or LOW:HIGH, such as C2:B3, not 'H2'"),
        ({"notes": "H2:"}, "--notes must be a note or LOW:HIGH"),
        ({"notes": ":A1", "above": True}, "there is nothing to draw in that part"),
    ],
)
def test_a_part_that_cannot_be_is_a_mistake(melody, options, said):
    with pytest.raises(UsageError, match=said):
        free_of(melody, **options)


def test_notes_are_those_of_the_file_and_seconds_too(melody):
    """A run in C reads the file elsewhere; its seconds go by its tempos."""
    file = mido.MidiFile(melody)
    for message in file.tracks[0]:
        if message.type in ("note_on", "note_off"):
            message.note += 2
    file.tracks[0].insert(5, mido.MetaMessage("set_tempo", tempo=333_334, time=0))  # after C5
    file.save(melody)
    in_c = PianoRollFrames(Grid.of_beats(4), transpose_to_c=True)
    piece = FilledPiece(melody, in_c, {"notes": "C4:Eb5"})
    assert (np.flatnonzero(piece.free.all(0)) + 21 + 2).tolist() == list(range(60, 76))
    timed = FilledPiece(melody, in_c, {"time": "1:"})  # a beat takes 2/3 s, then 1/3 s
    assert int(timed.free.any(1).argmax()) == 8


def test_bars_follow_changes_of_metre(melody):
    """Also one within a bar, which begins a new one there: 3/4 of two beats, then bars of 2/4."""
    file = mido.MidiFile(melody)
    change = mido.MetaMessage("time_signature", numerator=2, time=96)
    mido.MidiFile(type=1, ticks_per_beat=48, tracks=[file.tracks[0], [change]]).save(melody)
    for bars, frames in {"1:1": (0, 8), "2:2": (8, 16), "3:": (16, 24)}.items():
        piece = FilledPiece(melody, BEATS, {"bars": bars})
        assert np.flatnonzero(piece.free.any(1)).tolist() == list(range(*frames))
        assert piece.remarks == []
