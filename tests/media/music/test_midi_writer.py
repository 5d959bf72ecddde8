"""Music written: as MIDI that reads back bit for bit, as sound, and as samples in any format."""

import io
from dataclasses import replace
from fractions import Fraction
from functools import partial

import mido
import numpy as np
import pytest
import soundfile
from allocation import peak_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from midi_files import grids, midi_file, note, piano_roll, written
from midi_tracks import notes, save, tempo
from onsets import as_frames, random_states

from seqmodel.data.bundled import FRAMES
from seqmodel.errors import UsageError
from seqmodel.media.music import writing
from seqmodel.media.music.frames import PianoRollFrames, with_onsets
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import Signature
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import place
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.media.music.writing import RATE, listen, midi_bytes, render, sample_count
from seqmodel.media.samples import SampleRequest
from seqmodel.media.sound import to_levels

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


STEP = 0.125


def rendered(notes, frames, step=STEP, hollow=None):
    times = np.arange(frames + 1) * step
    rows = np.array(notes, np.int64).reshape(-1, 3)
    return np.concatenate(list(render(rows, times, np.ones(len(rows)), hollow)))


def by_the_equation(notes, frames, step=STEP, hollow=()):
    """The sum of all notes as the module's docstring has it, sine by sine, before soft clipping."""
    total = np.zeros(round(frames * step * RATE) + 4410)
    for number, (begin, end, pitch) in enumerate(notes):
        k = (np.array([1, 3, 5, 7]) if number in hollow else np.arange(1, 9))[:, None]
        start, stop = round(begin * step * RATE), round(end * step * RATE)
        n = np.arange(stop + 4410 - start)
        t, frequency = n / RATE, 440 * 2 ** ((pitch - 69) / 12)
        tau = 1.3 * 2 ** ((60 - pitch) / 18)
        loudness = np.where(k * frequency < 22_050, k**-1.5 / (k**-1.5).sum(), 0)
        sines = loudness * np.exp(-k * t / tau) * np.sin(2 * np.pi * k * frequency * t)
        rise = np.sin(np.pi / 2 * np.minimum(n / 220, 1)) ** 2
        fall = np.cos(np.pi / 2 * np.clip((n - (stop - start)) / 4410, 0, 1)) ** 2
        total[start : stop + 4410] += 0.2 * sines.sum(0) * rise * fall
    return total


NOTES = [(0, 1, 60), (0, 30, 24), (2, 3, 100), (3, 20, 64), (3, 4, 60), (13, 27, 67), (29, 30, 108)]


@pytest.mark.parametrize(("step", "block"), [(STEP, writing.BLOCK), (0.0771, 1000)])
def test_the_sound_is_what_the_equation_says(step, block, monkeypatch):
    """Guards tables, fades, and notes that are rendered in parts: none may be off by a sample."""
    monkeypatch.setattr(writing, "BLOCK", block)
    for some in ([], [1, 4, 6]) if step == STEP else ([1, 4, 6],):
        hollow = np.isin(np.arange(len(NOTES)), some) if some else None
        expected = by_the_equation(NOTES, 30, step, some)
        assert np.abs(expected).max() < 0.8
        sound = rendered(NOTES, 30, step, hollow)
        np.testing.assert_allclose(sound, expected, atol=1e-7)
        assert sound.dtype == np.float32
        assert len(sound) == sample_count(30 * step)  # as the header of a WAV has it
    silence = rendered([], 1, 0.000_01)
    assert len(silence) == sample_count(0.000_01) == 4410
    assert not silence.any()


@pytest.mark.parametrize("count", [88, 20])
def test_no_chord_clips(count):
    """Guards the loudest sound there can be, however many notes begin at once."""
    chord = [(0, 1, pitch) for pitch in range(21, 21 + count)]
    sound = rendered(chord, 1)
    assert np.abs(by_the_equation(chord, 1)).max() > 1.2  # it would clip
    assert 0.8 < np.abs(sound).max() < 1
    assert np.abs(to_levels(sound)).max() < 32_767


ONSETS = (96, 288, 480, 600)
"""In ticks, of eighth notes; the tempo changes at 384 and within the last note."""


@pytest.fixture
def song(tmp_path):
    """Four eighths with rests between, 96 ticks a beat, at 100, 50, then 200 beats a minute."""
    changes = [tempo(0, 600_000), tempo(384, 1_200_000), tempo(612, 300_000)]
    eighths = notes((tick, tick + 48, 60) for tick in ONSETS)
    return save(tmp_path / "song.mid", [changes + eighths], division=96, kind=0)


def heard(path):
    """When sound begins after silence, in seconds, and how long the file is."""
    sound, rate = soundfile.read(path)
    assert rate == 44_100
    loud = np.flatnonzero(sound)
    return loud[np.diff(loud, prepend=-rate) > rate / 50] / rate, len(sound) / rate


def test_a_midi_file_is_heard_at_its_own_tempos_or_at_a_given_one(song, tmp_path):
    """Guards against sound that drifts from the score at tempo changes between or within notes."""
    listen(song, {}, tmp_path / "song.wav")
    now, onsets = 0.0, []
    for message in mido.MidiFile(song):  # its times are in seconds
        now += message.time
        if message.type == "note_on":
            onsets.append(now)
    begins, length = heard(tmp_path / "song.wav")
    assert begins == pytest.approx(onsets, abs=0.001)
    assert length == pytest.approx(now + 0.1, abs=0.001)
    score = read_score(song.read_bytes())
    times = score.seconds_at(np.array([0, 96.5, 384, 612, 613]))
    assert times == pytest.approx([0, 96.5 * 0.6 / 96, 2.4, 2.4 + 2.85, 5.25 + 0.3 / 96])
    listen(song, {"tempo": 240}, tmp_path / "song.flac")
    begins, length = heard(tmp_path / "song.flac")
    assert begins == pytest.approx([tick / 96 / 4 for tick in ONSETS], abs=0.001)
    assert length == pytest.approx(648 / 96 / 4 + 0.1, abs=0.001)


def test_a_roll_is_heard_on_the_given_grid_at_the_given_tempo(tmp_path):
    roll = np.zeros((10, 88), np.uint8)
    roll[[2, 7], 50] = 1
    np.save(tmp_path / "roll.npy", roll)
    for options, step in (({}, 0.125), ({"steps_per_beat": 2, "tempo": 60}, 0.5)):
        listen(tmp_path / "roll.npy", options, tmp_path / "roll.wav")
        begins, length = heard(tmp_path / "roll.wav")
        assert begins == pytest.approx([2 * step, 7 * step], abs=0.001)
        assert length == pytest.approx(10 * step + 0.1, abs=0.001)


def write(file, kind, chunks, frames, definition=FRAMES, *, temperature=1.0, **options):
    """Write a sample of so many frames."""
    how = {"options": options, "title": "t", "temperature": temperature}
    request = SampleRequest(kind, length=frames, **how)
    return MusicSampling(definition, request).write(file, chunks, lambda done, total: None)


def test_a_sample_that_freezes_is_told():
    """Guards the count: strikes end a chord, silence is none, train's longest is no freezing."""
    frame = replace(FRAMES, onsets=True, longest_chord=5, tempo=30.0)
    roll = np.zeros((20, 88), np.uint8)
    roll[1:13, [30, 34]] = 1
    drawn = with_onsets(roll)
    hint = write(io.BytesIO(), "npy", [drawn], 20, frame).hint
    held = "a chord lasts 12 frames, those in training 5 at most: try "
    assert hint == f"{held}another --seed, or train longer or with a higher --input-noise"
    hint = write(io.BytesIO(), "npy", [drawn], 20, frame, temperature=2.0).hint
    assert hint == f"{held}--temperature 1 or another --seed"
    drawn[[6, 11], 88 + 34] = 1
    assert write(io.BytesIO(), "npy", [drawn], 20, frame).hint == ""
    assert write(io.BytesIO(), "npy", [roll], 20).hint == ""  # train is not known
    band = replace(frame, longest_chord=1, tempo=120.0)  # of dense chords, where 1.5 s are few
    assert write(io.BytesIO(), "npy", [with_onsets(roll)], 20, band).hint == ""


def test_a_long_sample_is_held_once():
    """Guards against chunks kept next to the whole, 53 MB, and a picture, 31 MB, that grows."""
    assert picture(1000).size == "1,000 frames"  # which loads fonts, too
    # With a second copy before the picture: 106e6.
    assert peak_of(lambda: picture(600_000)) < 95e6


def picture(frames):
    """Write a picture of a sample of so many frames, of one note each."""
    chunk = np.eye(1, 88, 40, dtype=np.uint8).repeat(100, axis=0)
    chunks = (chunk.copy() for _ in range(0, frames, 100))
    return write(io.BytesIO(), "png", chunks, frames)


def test_a_sample_is_transposed_strikes_and_all():
    """The published chorales lie an octave too high, and so does what is learned from them."""
    definition = replace(FRAMES, onsets=True)
    roll = np.zeros((3, 88), np.uint8)
    roll[:, [5, 40]] = 1
    roll[1, 17] = 1  # where 5 goes
    drawn = with_onsets(roll)
    drawn[2, 88 + 40] = 1
    file = io.BytesIO()
    write(file, "npy", [drawn], 3, definition, transpose=-12)
    found = np.load(io.BytesIO(file.getvalue()))
    expected = np.zeros((3, 88))
    expected[:, 28] = [1, 2, 1]
    expected[:, 5] = [1, 1, 2]  # 17 goes to 5; 5, off the keyboard, back to 5
    assert np.array_equal(found, expected)
