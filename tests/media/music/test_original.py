"""Drawn notes in the MIDI file they are for: event for event, as mido reads both.

What a file should hold afterwards is computed here anew, from mido's messages, note by note.
"""

from collections import Counter

import mido
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kept_files import (
    BEATS,
    DRUMS,
    check_kept,
    is_note,
    notes_of,
    others,
    read,
    redrawn,
    sounding_after,
    stretch,
    timed,
)
from midi_files import states_by_mido
from midi_tracks import note, notes, save, tempo

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames, from_states
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_events, read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.placing import place


def test_every_other_event_stays(song):
    """Guards each kind of event, in order, at its tick, in its track; names with umlauts too."""
    _, data = redrawn(song, stretch(64, 16, 32))
    before, after = mido.MidiFile(song), read(data)
    assert (after.type, after.ticks_per_beat) == (before.type, before.ticks_per_beat)
    assert len(after.tracks) == 4  # for silence there is no track
    gone = {(2399, 41), (3333, 43), (7, 38)} | {(480 * beat, 70 + beat % 3) for beat in range(4, 8)}
    for number, (old, new) in enumerate(zip(before.tracks, after.tracks, strict=False)):
        assert others(old) == others(new)
        stays = [each for each in notes_of(old) if (each[0], each[2]) not in gone]
        if number == 2:  # cut off where the drawn bar begins, and struck anew where it ends
            stays += [(7, 1920, 38, 1), (3840, 5333, 43, 1)]
        assert sorted(notes_of(new)) == sorted(stays)
    assert timed(before.tracks[3]) == timed(after.tracks[3])


def test_notes_out_of_reach_stay_message_for_message(song):
    """With their velocities, of offs as well: only what sounds from C5 up is drawn anew."""
    _, data = redrawn(song, stretch(64, 16, 32, low=72))
    before, after = mido.MidiFile(song), read(data)
    for number in (0, 2, 3):
        assert timed(before.tracks[number]) == timed(after.tracks[number])
    assert timed(after.tracks[1]) == [
        (tick, message)
        for tick, message in timed(before.tracks[1])
        if not (is_note(message) and 1920 <= tick < 3840 and message.note == 72)
    ]


def test_a_note_that_lasts_into_what_is_drawn(song):
    """It keeps its strike, ends where it is not held on, and begins anew where it is given again.

    Held on it goes on, beyond its end too; what is struck in its place is another note.
    """
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


# A note that is held on where another of its key began, and whose last frame is given.
TWO_TRACKS = [[(125, 615, (62, 0)), (0, 90, (60, 0))], [(479, 661, (62, 0))]]


@settings(max_examples=40)
@given(pieces())
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
    """A strike that never ends, but ends the note before it; and with --restrike discard a run ends
    the second strike at the first off, the file later."""
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


def test_real_songs_stay(shared_data):
    """All of a band's song but the notes that are drawn anew; the beginning where it is cut."""
    *_, path = sorted((shared_data / "music/real/band").glob("*.mid"))
    before = mido.MidiFile(path)
    T = len(Original(path, BEATS, transposed=0).frames)
    states = np.zeros((T, 88), int)
    states[:, 30:50] = np.random.default_rng(3).choice(3, (T, 20), p=(0.8, 0.1, 0.1))
    for free in (stretch(T, 64, 128), stretch(T, 200, 900, 48, 60)):
        frames, data = redrawn(path, free, states)
        check_kept(before, read(data), free)
        again = place(read_score(data), BEATS.grid, drums=False).frames(onsets=True)
        np.testing.assert_array_equal(again, frames)
    after = sounding_after(path, 400, T, states)
    border = 400 * before.ticks_per_beat // 4
    for old, new in zip(before.tracks, after.tracks, strict=False):
        early = [each for each in others(old)[:-1] if each[0] < border]
        assert others(new)[: len(early)] == early
        stay = Counter(each for each in notes_of(old) if each[1] < border)
        assert stay <= Counter(notes_of(new))


def test_awkward_files_stay(shared_data):
    """Or are refused in a line. What mido cannot read, or reads otherwise, our reader compares."""
    compared = Counter[str]()
    for path in sorted((shared_data / "awkward/midi").rglob("*.mid")):
        try:
            original = Original(path, BEATS, transposed=0)
        except (UsageError, SourceError):
            compared["refused"] += 1
            continue
        T = len(original.frames)
        free = stretch(T, T // 3, T - T // 3)
        _, data = redrawn(path, free)
        old, new = read_events(path.read_bytes()).events, read_events(data).events
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
