"""Rolls written as MIDI: they read back as the same rolls, bit for bit."""

import io
from fractions import Fraction
from functools import partial

import mido
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from midi_files import grids, midi_file, note, piano_roll, written
from onsets import as_frames, random_states

from seqmodel.errors import UsageError
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import Signature
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import place
from seqmodel.media.music.writing import midi_bytes

ONE = np.zeros((3, 88), dtype=np.uint8)
ONE[1, 5] = 1
SCALE = np.eye(88, dtype=np.uint8)
extreme = partial(example, onsets=False, restrike="close")


def random_frames(seed, length, density):
    """Frames with silence before, within or after them."""
    states = random_states(seed, length, 88, density=density)
    lead, trail = np.random.default_rng(seed).integers(0, 9, 2)
    return as_frames(np.pad(states, ((lead, trail), (0, 0))))


frames = st.builds(
    random_frames,
    *(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0, 0.02, 0.5, 0.95])),
)


@settings(derandomize=True, max_examples=60)
@given(
    frames=frames,
    onsets=st.booleans(),
    grid=grids(),
    tempo_bpm=st.floats(3.6, 1000),
    restrike=st.sampled_from(["close", "discard"]),
)
@extreme(frames=ONE, grid=Grid.of_beats(32767), tempo_bpm=120.0)
@extreme(frames=ONE, grid=Grid(step_nanoseconds=60 * 10**9), tempo_bpm=1e6)
@extreme(frames=SCALE, grid=Grid(step_nanoseconds=17_000), tempo_bpm=120.0)
@extreme(frames=ONE, grid=Grid(step_nanoseconds=15_260), tempo_bpm=120.0)
def test_everything_reads_back(frames, onsets, grid, tempo_bpm, restrike):
    """Guards any grid at any tempo: rounding, adjacent notes, strikes at an end, silence."""
    frames = frames if onsets else frames[:, :88]
    data = written(frames, grid, tempo_bpm=tempo_bpm)
    again = piano_roll(read_score(data, restrike=restrike), grid, drums=False, onsets=onsets)
    assert again.shape == frames.shape
    assert np.array_equal(again, frames)


@settings(derandomize=True, max_examples=40)
@given(frames=frames, seed=st.integers(0, 2**32), grid=grids())
def test_what_was_given_reads_back(frames, seed, grid):
    """Guards notes of both kinds that follow each other at one pitch, and tracks without notes."""
    part = np.random.default_rng(seed).random((len(frames), 88)) < 0.5
    score = read_score(written(frames, grid, given=part))
    assert np.array_equal(piano_roll(score, grid, drums=False, onsets=True), frames)
    expected = np.zeros(part.shape, bool)  # a note is of the kind of its first frame
    for t in range(len(frames)):
        goes_on = (frames[t, :88] > 0) & (frames[t, 88:] == 0)
        expected[t] = np.where(goes_on, expected[t - 1], part[t] & (frames[t, :88] > 0))
    assert np.array_equal(place(score, PianoRollFrames(grid)).given_mask(), expected)


def test_time_does_not_drift():
    """Guards long pieces: the last of 20000 frames of about 1/7 s is within half a tick."""
    grid = Grid.of_seconds("0.142857143")
    roll = np.zeros((20_000, 88), dtype=np.uint8)
    roll[-1, 40] = 1
    file = mido.MidiFile(file=io.BytesIO(midi_bytes(roll, grid)))
    ticks = next(message.time for message in file.tracks[0] if message.type == "note_on")
    exact = Fraction(19_999 * 142_857_143, 10**9) * 2 * file.ticks_per_beat
    assert abs(ticks - exact) <= Fraction(1, 2)


def test_mido_reads_the_same_notes():
    """Guards the file itself: a note per strike at the given tempo, off before on, the marker."""
    states = np.zeros((7, 88), np.uint8)
    states[:6, 39] = [1, 2, 1, 1, 2, 2]
    data = midi_bytes(as_frames(states), Grid.of_beats(4), tempo_bpm=90)
    file = mido.MidiFile(file=io.BytesIO(data))
    assert file.length == pytest.approx(7 / 6)
    found = [(m.type, m.time) for m in file.tracks[0] if m.type != "program_change"]
    on, off = "note_on", "note_off"
    assert found == [
        *[("set_tempo", 0), (on, 0), (off, 240), (on, 0), (off, 120), (on, 0), (off, 360)],
        *[("marker", 120), ("end_of_track", 0)],
    ]


def test_only_the_mark_of_a_former_end_is_no_note():
    """Guards samples written when a piece that ends in silence ended with a soft A0 of length 0."""
    mark, grid = b"\x78\x90\x15\x01\x00\x80\x15\x01", Grid.of_beats(4)
    for body in (note(0, 240), b""):
        score = read_score(midi_file(body + mark))
        ends = 240 * bool(body) + 120
        assert (score.end_tick, len(score.pitch)) == (ends, bool(body))
        assert len(piano_roll(score, grid, drums=False)) == ends // 120
    louder, higher = mark.replace(b"\x01", b"\x40"), mark.replace(b"\x15", b"\x16")
    for other in (mark + note(0, 9), louder, higher):
        score = read_score(midi_file(note(0, 240) + other))
        assert (score.end_tick, sorted(score.on_tick)[:2]) == (0, [0, 360])


@pytest.mark.parametrize("text", [b"end of piece", b"end of pieces", b"the end"])
def test_only_its_own_marker_ends_a_piece(text):
    """Guards other programs' markers, and their tracks, which often end later than the music."""
    marker = b"\x78\xff\x06" + bytes([len(text)]) + text
    score = read_score(midi_file(note(0, 240) + marker + b"\x78\xff\x01\x00"))
    assert len(piano_roll(score, Grid.of_beats(4), drums=False)) == (3 if len(text) == 12 else 2)


def test_same_roll_same_bytes():
    """Guards `sample --seed` against bytes that change from run to run or with the array's type."""
    assert midi_bytes(ONE, Grid.of_beats(4)) == midi_bytes(ONE.astype(bool), Grid.of_beats(4))


def test_impossible_rolls_and_tempos_are_refused():
    """Guards against a file that differs from the roll."""
    with pytest.raises(UsageError, match="finer than a MIDI tick"):
        midi_bytes(ONE, Grid(step_nanoseconds=15_259))
    with pytest.raises(UsageError, match="too long"):
        midi_bytes(ONE[[0] * 200_000], Grid.of_seconds(60), tempo_bpm=6e7)


@pytest.mark.parametrize(
    ("steps", "meter", "expected"),
    [
        # Downbeat; bass and melody off the beat; beats 2 and 3; downbeat at the top of the arch.
        (4, None, [92, 68 + 4 + 1, 68 + 10 + 1, 74 + 10 + 2, 77 + 10 + 3, 100]),
        (1, None, [92, 74 + 4 + 4, 74 + 10 + 4, 82 + 10 + 6, 100, 92]),
        (None, None, [78, 72 + 4, 78 + 4, 78 + 6, 78 + 8, 78]),
        # In waltz time frame 8 is the third beat, 32 the ninth; the phrase has 48 frames.
        (4, (3, 4), [92, 68 + 4 + 2, 68 + 10 + 2, 74 + 10 + 2, 88, 74 + 10 + 7]),
        # Frame 3 is the second eighth of 6/8, 4 the third, 8 the second of beat 2, 32 of bar 3.
        (4, (6, 8), [92, 68 + 4 + 2, 68 + 10 + 2, 70 + 10 + 2, 80 + 4, 70 + 10 + 7]),
        # Beats of an eighth, bars of five.
        (4, (5, 8), [92, 70 + 4 + 2, 70 + 10 + 2, 74 + 10 + 2, 74 + 10 + 5, 74 + 10 + 5]),
        (4, None, [80] * 6),
    ],
)
def test_notes_are_as_loud_as_the_rule_says(steps, meter, expected):
    """Metre, voice and phrase; a note held over a beat is as loud as it began."""
    roll = np.zeros((40, 88), np.uint8)
    notes = [(0, 1), (3, 4), (3, 4), (4, 6), (8, 9), (32, 40)]
    for pitch, (begin, end) in enumerate(notes):
        roll[begin:end, 40 + pitch] = 1
    signatures = [Signature(0, *meter)] if meter else []
    grid = Grid.of_beats(steps) if steps else Grid.of_seconds("0.5")
    data = midi_bytes(roll, grid, metre=signatures, flat=expected == [80] * 6)
    messages = mido.MidiFile(file=io.BytesIO(data)).tracks[0]
    found = {m.note: m.velocity for m in messages if m.type == "note_on"}
    stated = [(m.numerator, m.denominator) for m in messages if m.type == "time_signature"]
    assert stated == ([meter] if meter else [])
    assert [found[61 + pitch] for pitch in range(6)] == expected
