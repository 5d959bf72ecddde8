"""The reader compared with independent ones: mido with fractions, and symusic."""

import io

import mido
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_files import notes_by_mido, notes_of, states_by_mido
from onsets import as_frames

from seqmodel.errors import SourceError
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.pianoroll import piano_roll

RULES = ("close", "discard")


def test_real_notes_match_mido(music):
    """Guards the loop over events: every note of every fortieth file that mido can read."""
    compared = 0
    for data in list(music.values())[::40]:
        try:
            mido.MidiFile(file=io.BytesIO(data))
        except (ValueError, OSError):
            continue
        for restrike in RULES:
            found = notes_of(read_score(data, restrike=restrike))
            assert found == notes_by_mido(data, restrike)
        compared += 1
    assert compared > 35


def test_real_notes_match_symusic(music):
    """Guards against an error shared with mido: symusic agrees where no two notes overlap."""
    symusic = pytest.importorskip("symusic")
    compared = 0
    for data in list(music.values())[::3]:
        score = read_score(data, restrike="close")
        notes = notes_of(score)
        if notes != notes_of(read_score(data, restrike="discard")):
            continue
        theirs = symusic.Score.from_midi(data)
        found = sorted(
            (n.time, n.time + n.duration, n.pitch) for track in theirs.tracks for n in track.notes
        )
        assert found == sorted((on, off, pitch) for on, off, pitch, *_ in notes)
        compared += 1
    assert compared > 300


channel_messages = st.builds(
    mido.Message,
    st.sampled_from(["note_on", "note_off"]),
    channel=st.sampled_from([0, 1, 9]),
    note=st.sampled_from([0, 20, 21, 60, 61, 108, 109, 127]),
    velocity=st.sampled_from([0, 1, 127]),
    time=st.integers(0, 300),
)
other_messages = st.one_of(
    st.builds(
        lambda tempo, time: mido.MetaMessage("set_tempo", tempo=tempo, time=time),
        st.integers(1, 2**24 - 1),
        st.integers(0, 300),
    ),
    st.builds(
        lambda text, time: mido.MetaMessage("text", text=text, time=time),
        st.text("abc", max_size=200),
        st.integers(0, 20000),
    ),
    st.builds(
        lambda data, time: mido.Message("sysex", data=data, time=time),
        st.lists(st.integers(0, 127), max_size=5),
        st.integers(0, 300),
    ),
    st.builds(
        lambda kind, time: mido.Message(kind, time=time),
        st.sampled_from(["program_change", "pitchwheel", "control_change", "aftertouch"]),
        st.integers(0, 300),
    ),
)
tracks = st.lists(
    st.lists(st.one_of(channel_messages, channel_messages, other_messages), max_size=30),
    min_size=1,
    max_size=4,
)
grids = st.one_of(
    st.builds(Grid.of_beats, st.integers(1, 96)),
    st.builds(lambda n: Grid(step_nanoseconds=n), st.integers(50_000_000, 10**10)),
)


def file_of(tracks, division):
    file = mido.MidiFile(type=1, ticks_per_beat=division)
    file.tracks = [mido.MidiTrack(messages) for messages in tracks]
    stream = io.BytesIO()
    file.save(file=stream)
    return stream.getvalue()


@settings(deadline=None, database=None, derandomize=True, max_examples=250)
@given(
    tracks=tracks,
    division=st.integers(1, 32767),
    grid=grids,
    restrike=st.sampled_from(RULES),
    drums=st.booleans(),
    transpose=st.integers(-5, 6),
)
def test_rolls_match_exact_fractions(tracks, division, grid, restrike, drums, transpose):
    """Guards notes, tempo maps and rounding on files that no collection has."""
    data = file_of(tracks, division)
    expected = states_by_mido(data, grid, restrike=restrike, drums=drums, transpose=transpose)
    score = read_score(data, restrike=restrike)
    assert score.remarks == ()
    if len(expected) == 0:
        with pytest.raises(SourceError):
            piano_roll(score, grid, drums=drums, transpose=transpose)
        return
    roll = piano_roll(score, grid, drums=drums, transpose=transpose)
    assert roll.shape == expected.shape
    assert np.array_equal(roll, expected > 0)
    frames = piano_roll(score, grid, drums=drums, transpose=transpose, onsets=True)
    assert np.array_equal(frames, as_frames(expected))
