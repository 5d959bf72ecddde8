"""Drawn notes in the MIDI file that they are for: event for event, as mido reads both."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import mido
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kept_files import (
    BEATS,
    DRUMS,
    check_kept,
    notes_of,
    others,
    read,
    redrawn,
    sounding_after,
    stretch,
)
from midi_files import states_by_mido
from midi_tracks import note, notes, save, tempo, timed

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames, from_states
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.placing import place


def test_a_note_that_lasts_into_what_is_drawn(song):
    """It ends where it is not held on, and begins anew where it is given again."""
    free, states = stretch(64, 4, 8) | stretch(64, 30, 40), np.zeros((64, 88), int)
    low, high = 38 - 21, 43 - 21  # from frame 0 to 20, from 28 to 44

    def bass_and_drawn():
        tracks = read(redrawn(song, free, states)[1]).tracks
        bass = [each[:3] for each in notes_of(tracks[2]) if each[2] in (38, 43)]
        return bass, [each[:3] for track in tracks[4:] for each in notes_of(track)]

    last, tail = (5791, 7680, 38), (4800, 5333, 43)
    silent = [(7, 480, 38), (960, 2411, 38), last, (3333, 3600, 43), tail]
    assert bass_and_drawn() == (silent, [])
    states[4:6, low] = 2
    assert bass_and_drawn() == ([(7, 720, 38), *silent[1:]], [])
    states[4:8, low] = 2
    states[30:40, high] = 2
    assert bass_and_drawn() == ([(7, 2411, 38), last, (3333, 5333, 43)], [])
    states[36, high] = 1
    assert bass_and_drawn() == ([(7, 2411, 38), last, (3333, 4320, 43)], [(4320, 5333, 43)])
    free, states[:] = stretch(64, 18, 24), 0  # where it ends, at its own tick if they agree
    for end, off in {19: 2280, 20: 2411, 23: 2760}.items():
        states[18:end, low] = 2
        assert (7, off, 38) in bass_and_drawn()[0]


def test_a_note_held_where_another_of_its_key_begins_stays_whole(tmp_path):
    """Guards a second strike beside the other's, after frames in which it was drawn."""
    path = save(tmp_path / "two.mid", [[*note(0, 960, 60)], [*note(480, 720, 60, channel=1)]])
    held = np.zeros((8, 88), int)
    held[2:4, 60 - 21] = 2
    tracks = read(redrawn(path, stretch(8, 2, 4), held)[1]).tracks
    assert [notes_of(track) for track in tracks] == [[(0, 960, 60, 0)], [(480, 720, 60, 1)]]


def test_all_strikes_of_a_tick_stay_where_their_note_is_cut(tmp_path):
    """Guards the softer part of a doubled note, whose strike the next one ends at once."""
    strikes = [note(480, 1920, 60, velocity=loud) for loud in (40, 90, 60)]
    path = save(tmp_path / "doubled.mid", [[each for pair in strikes for each in pair]])
    track, *_ = read(redrawn(path, stretch(16, 8, 16))[1]).tracks
    assert timed(track)[:-1] == [
        *[pair[0] for pair in strikes],
        (960, mido.Message("note_off", note=60, velocity=64)),
    ]


@st.composite
def pieces(draw):
    """Tracks of notes anywhere, on few keys, which overlap; what is free; what is drawn."""
    ticks, lengths = st.integers(0, 1500), st.integers(0, 700)
    keys = st.tuples(st.integers(60, 62), st.sampled_from((0, 1, DRUMS)))
    one = st.tuples(ticks, lengths, keys)
    tracks = [draw(st.lists(one, max_size=7)) for _ in range(draw(st.integers(1, 3)))]
    tracks[0].append((draw(ticks), 90, (60, 0)))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(("stretch", "notes", "cells", "whole")))
    return tracks, random, kind, draw(st.booleans())


# A note that is struck where it goes on, after frames in which it was drawn.
STRUCK_AGAIN = [[(0, 1500, (60, 0))]]
# A note that is held on where another of its key began, and whose last frame is given.
TWO_TRACKS = [[(125, 615, (62, 0)), (0, 90, (60, 0))], [(479, 661, (62, 0))]]


@settings(max_examples=40)
@given(pieces())
@example((STRUCK_AGAIN, np.random.default_rng(12), "cells", False))
@example((TWO_TRACKS, np.random.default_rng(90), "cells", False))
def test_the_file_reads_as_what_was_drawn(tmp_path_factory, piece):
    """And all that lies outside is there, overlapping notes of one key included."""
    tracks, random, kind, seconds = piece
    path = tmp_path_factory.mktemp("o") / "x.mid"
    save(path, [
        [each for on, length, key in track for each in note(on, on + length, *key)]
        + [(on, mido.MetaMessage("lyrics", text=str(length))) for on, length, _ in track]
        for track in tracks
    ] + [[tempo(0, 500_000), tempo(700, 400_000)]])  # fmt: skip
    grid = Grid.of_seconds("0.1") if seconds else Grid.of_beats(4)
    frame = PianoRollFrames(grid, onsets=True)
    T = len(Original(path, frame, transposed=0).frames)
    begin, end = sorted(random.integers(0, T + 1, 2))
    free = {
        "stretch": stretch(T, begin, end + 1),
        "notes": stretch(T, begin, end + 1, 60, 61),
        "cells": random.random((T, 88)) < 0.4,
        "whole": stretch(T, 0, T),
    }[kind]
    states = np.zeros((T, 88), int)
    states[:, 38:43] = random.choice(3, (T, 5), p=(0.4, 0.2, 0.4))
    frames, data = redrawn(path, free, states, frame)
    states, *_ = states_by_mido(data, grid, restrike="close", drums=False)
    states = np.pad(states, ((0, T - len(states)), (0, 0)))
    np.testing.assert_array_equal(from_states(states), frames)
    if not seconds:
        check_kept(mido.MidiFile(path), read(data), free)


def test_what_the_run_does_not_read_stays(tmp_path):
    """A strike that never ends; with --restrike discard a note that the run ends earlier."""
    strikes = [(tick, mido.Message("note_on", note=60, velocity=64)) for tick in (0, 480)]
    path = save(tmp_path / "hangs.mid", [strikes + note(480, 960, 64)])
    for free, kept in ((stretch(8, 0, 8), 1), (stretch(8, 5, 8), 2)):
        after = timed(read(redrawn(path, free)[1]).tracks[0])
        assert [each for each in after if each in strikes] == strikes[-kept:]
    offs = [(tick, mido.Message("note_off", note=60, velocity=64)) for tick in (960, 1920)]
    path = save(tmp_path / "twice.mid", [strikes + offs, note(0, 240, 64, 1)])
    discard = PianoRollFrames(Grid.of_beats(4), "discard", onsets=True)
    assert len(load_midi(path, discard).frames) == 8
    original = Original(path, discard, transposed=0)
    frames = original.frames[:8].copy()
    frames[:2] = 0
    after = read(original.with_drawn(frames, stretch(8, 0, 2)))
    assert notes_of(after.tracks[0])[-1] == (480, 1920, 60, 0)


def test_a_silent_end_is_marked_once(tmp_path):
    """So that a piece that was drawn silent reads as long; the file's own marker is enough."""
    tracks = [note(0, 480, 60) + note(480, 960, 62)]
    path, free = save(tmp_path / "end.mid", tracks), stretch(8, 4, 8)
    marker = (960, mido.MetaMessage("marker", text="end of piece"))
    assert marker in timed(read(redrawn(path, free)[1]).tracks[1])
    save(path, [[*tracks[0], marker]])
    after = read(redrawn(path, free)[1])
    assert [timed(track).count(marker) for track in after.tracks] == [1]


def test_a_pause_too_long_for_one_delta(tmp_path):
    """Such as is left where the notes within it are taken out."""
    late = (1 << 28) + 30000
    some = notes([(0, 9999, 60), (1 << 27, late - 1, 62), (late, late + 30000, 60)])
    path = save(tmp_path / "long.mid", [some], division=32767)
    length = len(Original(path, BEATS, transposed=0).frames)
    _, data = redrawn(path, stretch(length, 99, length, 62, 62))
    assert sorted(read_score(data).off_tick.tolist()) == [9999, late + 30000]


def test_awkward_files_stay(shared_data):
    """Or are refused in a line. What mido cannot read, or reads otherwise, our reader compares."""
    compared = Counter[str]()
    for path in sorted((shared_data / "awkward/midi").rglob("*.mid")):
        if path.stat().st_size > 50_000:  # long rather than odd
            continue
        try:
            original = Original(path, BEATS, transposed=0)
        except (UsageError, SourceError):
            compared["refused"] += 1
            continue
        T = len(original.frames)
        free = stretch(T, T // 3, T - T // 3)
        _, data = redrawn(path, free)
        old, new = read_score(path.read_bytes()).events, read_score(data).events
        for track in range(len(old.tracks)):
            rows = [
                [
                    (int(each.ticks[k]), each.data[each.at[k] : each.end[k]].tobytes())
                    for k in np.flatnonzero((each.track == track) & (each.status >> 5 != 4))
                    if each.data[each.at[k]] != 0x2F
                ]
                for each in (old, new)
            ]
            assert rows[0] == rows[1], path
        try:
            before = mido.MidiFile(path)
        except (ValueError, OSError, EOFError, KeyError, IndexError):
            compared["unread by mido"] += 1
            continue
        compared["compared"] += 1
        check_kept(before, read(data), free)
    assert compared["compared"] > 40


PEDAL = PianoRollFrames(Grid.of_beats(4), onsets=True, pedal=True)


@pytest.mark.parametrize("end", [40, 44])  # in the file the bass note ends at 44
def test_a_beginning_is_as_it_is_and_what_follows_is_drawn(song, end):
    """Guards events that are shifted or stay behind, notes that ring on, and a held pedal."""
    file = mido.MidiFile(song)
    pedal = mido.Message("control_change", channel=1, control=64, value=64)  # just down
    file.tracks[2].insert(2, pedal)
    file.save(song)
    states = np.zeros((48, 88), int)
    states[32:end, 43 - 21] = 2  # the bass note that sounds at the cut goes on
    states[36:44, 60 - 21] = 1
    after = sounding_after(song, 32, 48, states)
    for number, (old, new) in enumerate(zip(file.tracks, after.tracks, strict=False)):
        early = [each for each in timed(old) if each[0] < 3840]
        assert timed(new)[: len(early)] == early
        late = timed(new)[len(early) :]
        if number == 2:
            assert late[:-1] == [
                (3840, pedal.copy(value=0)),
                (120 * end, mido.Message("note_off", note=43, channel=1, velocity=64)),
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
    again = place(read_score(data), PEDAL).frames(onsets=True)
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


def test_drawn_notes_have_the_files_key_and_all_move_together(song):
    """But for drums; the program is the last on a tick of the track of most notes replaced.

    So are volume and pan, or the drawn instrument would sound at a player's default level, and the
    bank before the program, which a player reads first, or it would be another instrument.
    """
    file = mido.MidiFile(song)
    ((track, k),) = [
        (track, k)
        for track in file.tracks
        for k, message in enumerate(track)
        if message.type == "program_change" and message.program == 73
    ]
    pan = mido.Message("control_change", channel=track[k].channel, control=10, value=20)
    banks = pan.copy(control=0, value=8), pan.copy(control=32, value=1)
    track[k : k + 1] = track[k].copy(program=5), *banks, track[k].copy(time=0), pan
    track.insert(k + 4, banks[0].copy(value=9))  # too late for that program
    file.tracks[1].append(mido.Message("program_change", program=11))
    file.tracks[1].append(pan.copy(value=99))
    file.save(song)
    states = np.zeros((64, 88), int)
    states[16:20, 55 - 21] = 2
    _, data = redrawn(song, stretch(64, 16, 32), states, transposed=-5)
    drawn = read(data).tracks[4]
    assert [each[:3] for each in notes_of(drawn)] == [(1920, 2400, 60)]
    program = mido.Message("program_change", channel=2, program=73)
    sound = [*banks, pan.copy(control=7, value=90), pan]
    assert [message for message in drawn if message.type in ("control_change", program.type)] == [
        *(control.copy(channel=2) for control in sound),
        program,
    ]
    _, data = redrawn(song, stretch(64, 16, 32), states, transposed=-5, semitones=2)
    moved, before = read(data), mido.MidiFile(song)
    assert [each[:3] for each in notes_of(moved.tracks[4])] == [(1920, 2400, 62)]
    assert notes_of(moved.tracks[1])[0] == (0, 470, 72, 0)
    assert (2500, mido.Message("polytouch", note=73, value=4)) in timed(moved.tracks[1])
    assert timed(moved.tracks[3]) == timed(before.tracks[3])


@pytest.mark.parametrize(("until", "rest"), [(28, [(2880, 3360, 99)]), (24, [])])
def test_notes_that_octaves_move_onto_one_key_do_not_overlap(song, until, rest):
    """The run's C8, 3 semitones up, is folded onto the key of its C7, which sounds on, or not."""
    states = np.zeros((64, 88), int)
    states[16:24, 108 - 21] = states[20:until, 96 - 21] = 2
    _, data = redrawn(song, stretch(64, 16, 32), states, semitones=3)
    track = read(data).tracks[4]
    assert [each[:3] for each in notes_of(track)] == [(1920, 2880, 99), *rest]
    assert sum(message.type == "note_on" for message in track) == 1 + len(rest)


def test_hits_are_replaced_by_hits(song):
    """A run of drums replaces what is on channel 10 alone, and draws there."""
    frame = PianoRollFrames(Grid.of_beats(4), drums=True, kit=True)
    free, hits = np.zeros((63, 47), bool), np.zeros((63, 47), np.uint8)
    free[16:32] = True
    hits[16:32:8, 38 - 35] = 1
    _, data = redrawn(song, free, hits, frame)
    before, after = mido.MidiFile(song), read(data)
    for number in (0, 1, 2):
        assert timed(before.tracks[number]) == timed(after.tracks[number])
    kept = [each for each in notes_of(before.tracks[3]) if not 1920 <= each[0] < 3840]
    assert notes_of(after.tracks[3]) == kept
    drawn = [(1920, 2040, 38, DRUMS), (2880, 3000, 38, DRUMS)]
    assert notes_of(after.tracks[4]) == drawn
    assert not [message for message in after.tracks[4] if message.type == "program_change"]


def test_formats(tmp_path):
    """One track becomes two, unless the notes go into it; patterns cannot have one more."""
    path = save(tmp_path / "one.mid", [note(0, 480, 60) + note(480, 960, 62)], kind=0)
    free = stretch(8, 4, 8)
    for into, kind, tracks in ((None, 1, 2), ("1", 0, 1)):
        after = read(redrawn(path, free, into=into)[1])
        assert (after.type, len(after.tracks)) == (kind, tracks)
    save(path, [note(0, 480, 60), note(0, 480, 62)], kind=2)
    with pytest.raises(UsageError, match=r"holds independent patterns .* convert it to format 1"):
        Original(path, BEATS, transposed=0)
    save(path, [note(0, 4, 60)], division=2)
    with pytest.raises(UsageError, match=r"has ticks longer than the run's frames \(4 steps per"):
        Original(path, BEATS, transposed=0)


@pytest.mark.parametrize(
    ("declared", "rest"),
    [(0, b"XFKM\0\0\0\2a"), (1, b"MTrk\0\0\0\0"), (1, b"MThd\0\0\0\0"), (2, b"XFKM\0\0\0\2a")],
)
def test_chunks_of_other_programs_stay(tmp_path, declared, rest):
    """Some keep lyrics and chords there, after the tracks, however many those are said to be.

    Not what is cut short, or left of an earlier file.
    """
    path = save(tmp_path / "xf.mid", [note(0, 480, 60) + note(480, 960, 62)])
    chunks = b"XFIH\0\0\0\3abcXFKM\0\0\0\0"
    header, tracks = path.read_bytes()[:11], path.read_bytes()[12:]
    path.write_bytes(header + bytes([declared]) + tracks + chunks + rest)
    _, data = redrawn(path, stretch(8, 4, 8))
    assert data.endswith(b"\xff\x2f\0" + chunks)
    assert len(read(data).tracks) == 2


LAGGING, LEADING = ([120 * k + late for k in range(1, 16)] for late in (50, -50))
SWUNG = [480 * (k // 2) + 320 * (k % 2) for k in range(8)]


def short_notes(ticks):
    """A note of less than a sixteenth at each of the ticks."""
    return notes((t, t + 100, 60 + t % 7) for t in ticks)


def test_a_drawn_note_ends_with_the_longest_of_the_files_that_end_in_its_last_frame(tmp_path):
    """Guards an end by the order of tracks, in which what is doubled differs by a few ticks."""
    path = save(tmp_path / "d.mid", [notes([(0, end, 60)]) for end in (1890, 1900, 1880)])
    states = np.zeros((16, 88), int)
    states[8:12, 39] = 1, 2, 2, 2
    _, data = redrawn(path, stretch(16, 8, 12), states)
    assert [each[:2] for each in notes_of(read(data).tracks[-1])] == [(960, 1900)]


@pytest.mark.parametrize(
    ("ticks", "grid", "begin", "drawn"),
    [
        (LAGGING, BEATS.grid, 8, [1010, 1130, 1370, 1490]),
        (LEADING, BEATS.grid, 8, [910, 1030, 1270, 1390]),
        (LEADING, BEATS.grid, 0, [0, 70, 310, 430]),  # none before the file
        (LEADING, Grid.of_seconds("0.125"), 0, [0, 120, 360, 480]),  # where a lag means nothing
        (SWUNG, BEATS.grid, 8, [960, 1080, 1320, 1440]),
    ],
)
def test_drawn_notes_lag_or_lead_as_the_file_does(tmp_path, ticks, grid, begin, drawn):
    """Recordings often do: in a song that led the beat, drawn bars were 86 ms behind the rest.

    Swung notes do not: drawn ones were halfway between them and straight ones.
    """
    path, frame = save(tmp_path / "late.mid", [short_notes(ticks)]), replace(BEATS, grid=grid)
    states = np.zeros((16, 88), int)
    states[begin : begin + 4, 40] = 1, 1, 2, 1
    frames, data = redrawn(path, stretch(16, begin, begin + 4), states, frame)
    found = [each[:2] for each in notes_of(read(data).tracks[-1])]
    assert found == [*pairwise(drawn)]
    (tmp_path / "drawn.mid").write_bytes(data)
    assert np.array_equal(Original(tmp_path / "drawn.mid", frame, transposed=0).frames, frames)


def test_drawn_notes_are_as_late_as_those_around_them(tmp_path):
    """Where that changes within a song, or is too little to read as a lag of all of it."""
    ticks = [120 * k + (9 if k < 120 else -27) for k in range(240)]
    path = save(tmp_path / "late.mid", [notes([(9, 120 * 240, 90)]), short_notes(ticks)])
    for begin, late in ((32, 9), (200, -27)):
        states = np.zeros((240, 88), int)
        states[begin : begin + 4, 40] = 1
        _, data = redrawn(path, stretch(240, begin, begin + 8), states)
        cut, *_, drawn = read(data).tracks
        assert notes_of(cut)[0][1] == notes_of(drawn)[0][0] == 120 * begin + late


@pytest.mark.parametrize("ticks", [LAGGING, LEADING])
def test_notes_are_cut_and_begin_anew_with_the_others(tmp_path, ticks):
    """Guards strikes 86 ms beside the others, and stubs of what leads the bar at a cut."""
    late = ticks[0] - 120
    hits = notes(((t, t + 100, 38) for t in ticks), channel=DRUMS)
    held = (120 + late, 1920 + late, 80)
    tracks = [[*notes([held]), tempo(960, 300_000)], short_notes(ticks), hits]
    path = save(tmp_path / "held.mid", tracks)
    anew = read(redrawn(path, stretch(16, 8, 12))[1])
    assert [each[:2] for each in notes_of(anew.tracks[0])] == [
        (held[0], 960 + late),
        (1440 + late, held[1]),
    ]
    cut = sounding_after(path, 8, 12)
    assert [each[:2] for each in notes_of(cut.tracks[0])] == [(held[0], 960 + late)]
    assert not any(each.type == "set_tempo" for each in cut.tracks[0])  # of the next bar
    assert max(each[0] for each in notes_of(cut.tracks[2])) == 840 + late


def test_a_cut_within_the_lead_of_notes_keeps_the_head_of_the_file(tmp_path):
    """Guards tempos and names, which would come after a cut before tick 0."""
    head = [tempo(0, 300_000), (0, mido.MetaMessage("track_name", name="Song"))]
    path = save(tmp_path / "early.mid", [head, short_notes(LEADING)])
    frame = PianoRollFrames(Grid.of_beats(12), onsets=True)
    cut = sounding_after(path, 1, 8, frame=frame)
    assert timed(cut.tracks[0])[:-1] == head


def test_what_is_not_seen_is_said(song):
    remarks = Original(song, BEATS, transposed=0).remarks
    kept = "which the run does not replace: they stay"
    assert remarks == [f"{song} has drums and notes off the keyboard, {kept}"]
    kit = Original(song, PianoRollFrames(Grid.of_beats(4), drums=True, kit=True), transposed=0)
    assert kit.remarks == [f"{song} has notes besides drums, {kept}"]
