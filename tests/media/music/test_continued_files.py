"""A MIDI file that is cut off and goes on as drawn; what its pedal holds."""

import mido
import numpy as np
import pytest
from kept_files import (
    BEATS,
    DRUMS,
    notes_of,
    others,
    read,
    redrawn,
    sounding_after,
    stretch,
    timed,
)
from midi_tracks import note, notes, save

from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.placing import place

PEDAL = PianoRollFrames(Grid.of_beats(4), onsets=True, pedal=True)


def test_a_beginning_is_as_it_is_and_what_follows_is_drawn(song):
    """Guards events that are shifted or stay behind, notes that ring on, and a held pedal."""
    file = mido.MidiFile(song)
    pedal = mido.Message("control_change", channel=1, control=64, value=64)  # just down
    file.tracks[2].insert(2, pedal)
    file.save(song)
    states = np.zeros((48, 88), int)
    states[32:40, 43 - 21] = 2  # the bass note that sounds at the cut goes on for two beats
    states[36:44, 60 - 21] = 1
    after = sounding_after(song, 32, 48, states)
    for number, (old, new) in enumerate(zip(file.tracks, after.tracks, strict=False)):
        early = [each for each in timed(old) if each[0] < 3840]
        assert timed(new)[: len(early)] == early
        late = timed(new)[len(early) :]
        if number == 2:
            assert late[:-1] == [
                (3840, pedal.copy(value=0)),
                (4800, mido.Message("note_off", note=43, channel=1, velocity=64)),
            ]
        else:
            assert [message.type for _, message in late] == ["end_of_track"]
    drawn = [(3840 + 480 + 120 * k, 3840 + 600 + 120 * k, 60) for k in range(8)]
    assert [each[:3] for each in notes_of(after.tracks[4])] == drawn
    program = mido.Message("program_change", channel=2, program=73)
    assert (0, program) in timed(after.tracks[4])
    assert after.tracks[4][-2] == mido.MetaMessage("marker", text="end of piece", time=480)


@pytest.fixture
def held(tmp_path):
    """Two short notes that the pedal holds up to the third bar, and a note from there on."""
    pedal = mido.Message("control_change", control=64, value=100)
    moves = [(0, pedal), (3840, pedal.copy(value=0))]
    some = notes([(0, 480, 60), (480, 960, 64), (3840, 5760, 67)])
    return save(tmp_path / "held.mid", [moves + some])


@pytest.mark.parametrize(
    ("free", "end", "left"),
    [
        ((16, 24), 16, [(0, 480, 60), (480, 960, 64)]),  # the pedal holds both: nothing ends them
        ((24, 40), 40, [(0, 4800, 60), (480, 960, 64)]),  # the key, where the pedal no longer does
        ((0, 8), 0, [(960, 3840, 60), (960, 3840, 64)]),  # struck anew: the pedal held them on
        ((0, 8), 8, [(960, 3840, 64)]),
    ],
)
def test_what_the_pedal_holds(held, free, end, left):
    """Guards notes whose keys are let go before, or in, what is drawn, in which they sound on."""
    states = np.zeros((48, 88), int)
    states[free[0] : end, 60 - 21] = 2
    frames, data = redrawn(held, stretch(48, *free), states, PEDAL)
    after = read(data)
    assert [each[:3] for each in sorted(notes_of(after.tracks[0]))][: len(left)] == left
    assert others(after.tracks[0]) == others(mido.MidiFile(held).tracks[0])
    again = place(read_score(data), PEDAL.grid, drums=False, pedal=True).frames(onsets=True)
    given = ~np.tile(stretch(48, *free), 2)
    np.testing.assert_array_equal(again[given], frames[given])
    if end > free[0]:
        np.testing.assert_array_equal(again[:, 60 - 21], frames[:, 60 - 21])


def test_a_pedal_is_raised_where_the_file_is_cut_off_and_named_if_it_is_not_heard(held):
    """The keys of what it holds stay, but for one that the drawn music holds on."""
    for end, off in ((16, 480), (20, 2400)):
        states = np.zeros((24, 88), int)
        states[16:end, 60 - 21] = 2
        (track, _) = sounding_after(held, 16, 24, states, PEDAL).tracks
        assert [each[:3] for each in notes_of(track)] == [(0, off, 60), (480, 960, 64)]
        moves = [tick for tick, message in timed(track) if message.type == "control_change"]
        assert moves == [0, 1920]
    assert Original(held, PEDAL, transposed=0).remarks == []
    (remark,) = Original(held, BEATS, transposed=0).remarks
    assert remark.startswith(
        f"{held} has a sustain pedal, which stays; the run reads notes only as long"
    )


def test_nothing_is_struck_where_a_file_is_cut_off(tmp_path):
    """Nor is a drum without length, which ends no later than there."""
    path = save(
        tmp_path / "cut.mid", [note(0, 480, 60) + note(480, 480, 36, DRUMS) + note(480, 960, 64)]
    )
    after = timed(sounding_after(path, 4, 8).tracks[0])
    assert after == [*note(0, 480, 60), (480, mido.MetaMessage("end_of_track"))]


def test_a_whole_file_loses_nothing(song):
    """What is drawn after its end, in its last tempo, takes none of its events away."""
    states = np.zeros((72, 88), int)
    states[64:, 38 - 21] = 2  # held on from the last bass note, which ends at the end
    frames, data = redrawn(song, stretch(72, 64, 72), states, length=72)
    before, after = mido.MidiFile(song), read(data)
    for old, new in zip(before.tracks, after.tracks, strict=False):
        assert timed(old) == timed(new)
    assert [each[:3] for each in notes_of(after.tracks[4])] == [(7680, 8640, 38)]
    assert frames[64, 88 + 38 - 21]


def test_real_time_follows_the_tempos_before_the_cut(song):
    """Ticks of 0.1 s: 120 at 400,000 us a beat, then 80 at 600,000; the later change is gone."""
    frame = PianoRollFrames(Grid.of_seconds("0.1"), onsets=True)
    states = np.zeros((100, 88), int)
    states[50::2, 40] = 1
    after = sounding_after(song, 50, 100, states, frame)
    assert [m.tempo for m in after.tracks[0] if m.type == "set_tempo"] == [400_000, 600_000]
    border = 2000 * 400_000 / 480  # in microseconds
    ticks = [round(2000 + (t * 1e5 - border) * 480 / 600_000) for t in range(50, 100, 2)]
    assert [each[0] for each in notes_of(after.tracks[4])] == ticks
