"""Drawing into a MIDI file: which part is drawn anew, in which tracks and channels."""

import io
from dataclasses import replace
from functools import partial

import mido
import numpy as np
import pytest
from kept_files import BEATS, KIT, notes_of, read, redrawn, sounding_after, stretch
from midi_tracks import note, notes, save, tempo, timed

from seqmodel.errors import UsageError
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.frames import notes_of as find_notes
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import Signature
from seqmodel.media.music.original import Original
from seqmodel.media.music.sampling import FilledPiece, MusicSampling
from seqmodel.media.music.writing import velocities
from seqmodel.media.samples import SampleRequest

PLAIN = PianoRollFrames(Grid.of_beats(4))
SILENCE = np.zeros((8, 176), np.uint8)
TENTHS = Grid.of_seconds("0.1")
PARTS = replace(BEATS, marks={"part": Levels.of_names(("high", "low"))}, programs=(40, 32))
DOUBLED = [tempo(0, 500_000), tempo(1920, 250_000)]
"""The tempo of a song, after 2 s twice as fast."""


def strike(frames, *some):
    """Write notes (part, begin, end, row) into frames (T, 5 * 88), with velocity and timing."""
    for part, begin, end, row in some:
        frames[begin:end, row] = frames[begin, 88 + row] = 1
        frames[begin, 176 + row] = part


def drawn_parts(path, length, *some, until=None, into=None):
    """The tracks of a file of so many frames that such notes replace, `until` a frame."""
    frames = np.zeros((length, 5 * 88), np.uint8)
    original = Original(path, PARTS, transposed=0, into=into)
    strike(frames, *some)
    return read(original.with_drawn(frames, stretch(length, 0, until or length))).tracks


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
    return FilledPiece(path, PLAIN, options).free


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
    assert FilledPiece(melody, PLAIN, options).remarks == remarks


def test_a_files_length_can_be_given_in_whole_seconds(tmp_path):
    path = save(tmp_path / "a.mid", [[tempo(0, 650_000), *notes([(0, 6, 72)], step=480)]])  # 3.9 s
    assert FilledPiece(path, PLAIN, {"time": "2:4"}).remarks == []


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


@pytest.mark.parametrize("channel", [3, 9])
def test_percussion_is_no_line(melody, channel):
    """Woodblocks and drums over a tune were its top line; alone, they are the line there is.

    A tune's last note may be a woodblock's.
    """
    file, line = mido.MidiFile(melody), free_of(melody, below=True)
    change = partial(mido.Message, "program_change")
    hits = [
        (0, change(program=115, channel=channel)),
        *notes([(k, k + 1, 100) for k in range(6)], step=48, channel=channel),
    ]
    tune = [(0, change(program=0)), *timed(file.tracks[0]), (240, change(program=115))]
    save(melody, [hits, tune], division=48)
    frame, options = replace(PLAIN, drums=True), {"below": True}
    np.testing.assert_array_equal(FilledPiece(melody, frame, options).free, line)
    save(melody, [hits], division=48)
    assert (FilledPiece(melody, frame, options).free.sum(1) == 100 - 21).all()


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
    frame = PianoRollFrames(Grid.of_beats(1))
    remarks = FilledPiece(melody, frame, {"below": True}).remarks
    off_grid = f"{melody} has notes off the run's grid (1 step per beat), moved onto it"
    assert remarks == [off_grid] * said
    timed = replace(frame, onsets=True, marks={"timing": Levels((64,), (64.0, 127.0))})
    assert not FilledPiece(melody, timed, {"below": True}).remarks


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "choose what to draw with --bars, --frames, --time, --notes, --below, --above"),
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
        piece = FilledPiece(melody, PLAIN, {"bars": bars})
        assert np.flatnonzero(piece.free.any(1)).tolist() == list(range(*frames))
        assert piece.remarks == []


def test_into_a_track(song):
    """By name or number; on its channel, where no two notes of a key overlap off the grid."""
    states = np.zeros((64, 88), int)
    states[16:32, 50] = 1
    states[20:24, 38 - 21] = 2  # the file's own note ends 11 ticks after frame 20 begins
    free = stretch(64, 20, 32) | stretch(64, 16, 32, 60)
    for name in ("Bass", " bass ", "3"):
        _, data = redrawn(song, free, states, into=name)
        after = read(data)
        assert len(after.tracks) == 4
        bass = notes_of(after.tracks[2])
        assert {channel for *_, channel in bass} == {1}
        high, low = ([each[:2] for each in sorted(bass) if each[2] == key] for key in (71, 38))
        assert high == [(120 * t, 120 * t + 120) for t in range(16, 32)]
        assert low[:2] == [(7, 2411), (2411, 2880)]
    _, data = redrawn(song, free, states, into="Bass", semitones=-5)
    moved = [each[:2] for each in sorted(notes_of(read(data).tracks[2])) if each[2] == 38 - 5]
    assert moved[:2] == [(7, 2411), (2411, 2880)]
    _, data = redrawn(song, free, states, into="1")  # which has no notes, and so no channel
    assert {each[3] for each in notes_of(read(data).tracks[0])} == {2}
    for name, frame, told in (("1", BEATS, 1), ("Bass", BEATS, 0), ("4", KIT, 0)):
        said = Original(song, frame, transposed=0, into=name).remarks
        assert sum(text.startswith(f"--into {name}: that track of ") for text in said) == told


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ("Lead", r"--into Lead: tracks 2 and 4 of .*song.mid have that name: use a number"),
        ("Violin", r"--into Violin: .* has no such track, but 1 Straßenlied, 2 Lead, 3 Bass, 4"),
        ("0", r"--into 0: .* has no such track"),
        ("6", r"--into 6: .* has no such track"),
        ("5", r"--into 5 is a drum track, but the run draws pitched notes"),
    ],
)
def test_a_track_that_is_not_there_or_not_clear(song, into, said):
    """Names are read as older sequencers write them, too: an umlaut was no letter."""
    file = mido.MidiFile(song)
    file.tracks.insert(3, mido.MidiTrack([mido.MetaMessage("track_name", name="Lead")]))
    file.save(song)
    with pytest.raises(UsageError, match=said):
        Original(song, BEATS, transposed=0, into=into)


def test_where_all_channels_are_taken(tmp_path):
    """Drawn notes share one with those they replace, and change no program."""
    tracks = [note(0, 960, 60 + channel, channel) for channel in range(16)]
    path = save(tmp_path / "full.mid", [*tracks, note(960, 1440, 50, 4)])
    states = np.zeros((12, 88), int)
    states[8:, 50 - 21] = states[8:, 64 - 21] = 2
    (said,) = Original(path, BEATS, transposed=0).remarks[1:]  # after one of notes on channel 10
    assert "has no free channels for new tracks" in said
    empty = [*tracks, [(0, mido.MetaMessage("track_name", name="drawn"))]]
    assert Original(save(tmp_path / "e.mid", empty), BEATS, transposed=0).remarks[1:]
    after = read(redrawn(path, stretch(12, 8, 12), states)[1])
    drawn = [(960, 1440, 50, 4), (960, 1440, 64, 4)]
    assert sorted(notes_of(after.tracks[-1])) == drawn
    assert not [message for message in after.tracks[-1] if message.type == "program_change"]


@pytest.mark.parametrize(("second", "drawn"), [(27, 27), (111, 111), (112, 113)])
def test_drawn_notes_have_the_program_of_a_melodic_instrument(tmp_path, second, drawn):
    """A song was redrawn on an agogo, which had the most notes of its four instruments."""
    tracks = [
        [(0, mido.Message("program_change", channel=k, program=program)), *some]
        for k, (program, some) in enumerate(
            [(113, notes((120 * t, 120 * t + 60, 72) for t in range(8))),
             (second, notes([(0, 960, 50)], channel=1))]
        )
    ]  # fmt: skip
    tracks[0].append((960, mido.Message("program_change", program=0)))  # too late to count
    states = np.zeros((8, 88), int)
    states[:4, 50] = 2
    after = read(redrawn(save(tmp_path / "a.mid", tracks), stretch(8, 0, 8), states)[1])
    assert [m.program for m in after.tracks[-1] if m.type == "program_change"] == [drawn]


def velocities_in(track):
    return [message.velocity for message in track if message.type == "note_on"]


def test_each_drawn_note_is_as_loud_as_those_near_it(tmp_path):
    """A soft melody over loud chords was redrawn as one loud line, and a rest in the soft end of a
    song as loud as the whole of it."""
    soft = notes((240 * k, 240 * k + 240, 76, 30) for k in range(32))
    loud = notes([(240 * k, 240 * k + 240, 48, 100) for k in range(64)], channel=1)
    end = notes((15360 + 480 * k, 15840 + 480 * k, 48, 20) for k in range(16) if not 4 <= k < 8)
    path = save(tmp_path / "a.mid", [soft, loud, end])
    states = np.zeros((192, 88), int)
    states[range(32, 64, 2), 57] = states[range(32, 64, 4), 24] = 2
    after = read(redrawn(path, stretch(192, 32, 64), states)[1])
    played = {m.note: m.velocity for m in after.tracks[-1] if m.type == "note_on"}
    assert played == {78: 30, 45: 100}
    states = np.zeros((192, 88), int)
    states[range(144, 160, 4), 34] = 2
    after = read(redrawn(path, stretch(192, 144, 160), states)[1])
    assert velocities_in(after.tracks[-1]) == [20] * 4


@pytest.mark.parametrize(
    ("grid", "per_semitone"), [(Grid.of_beats(4), 8), (Grid.of_seconds(0.1), 20)]
)
def test_a_drawn_note_is_as_loud_as_the_median_of_its_five_neighbours(grid, per_semitone):
    """Two beats, or two seconds of real time, are as far as a semitone; without any, by rule."""
    random = np.random.default_rng(5)
    frames = np.zeros((200, 176), np.uint8)
    frames[::20, [3, 40, 80]] = frames[::20, [91, 128, 168]] = 1
    drawn, near = find_notes(frames), np.zeros((3, 60), np.int64)
    near[:] = np.sort(random.integers(0, 200, 60)), *random.integers(0, 88, (2, 60))
    found = velocities(drawn, frames, grid, like=[near] * len(drawn))
    for (begin, _, pitch), velocity in zip(drawn.tolist(), found.tolist(), strict=True):
        ranked = sorted(
            (abs(frame - begin) / per_semitone + abs(row + 21 - pitch), n)
            for n, (frame, row, _) in enumerate(near.T.tolist())
        )
        assert velocity == int(np.median([near[2, n] for _, n in ranked[:5]]))
    by_rule = velocities(drawn, frames, grid)
    np.testing.assert_array_equal(
        velocities(drawn, frames, grid, like=[near[:, :0]] * len(drawn)), by_rule
    )


def test_a_learned_velocity_is_that_of_the_file_in_its_level(tmp_path):
    """A song of 115 went on at 105 and 125, means of levels around it. Nine notes are too few."""
    loud = [115] * 12 + [72] * 9 + [75] * 11
    song = notes((480 * k, 480 * k + 480, 60, loud[k]) for k in range(32))
    marks = {"velocity": Levels((60, 70, 110), (50.0, 65.0, 105.0, 125.0))}
    frame = PianoRollFrames(Grid.of_beats(4), onsets=True, marks=marks)
    original = Original(save(tmp_path / "a.mid", [song]), frame, transposed=0)
    frames = np.pad(original.frames, ((0, 0), (0, 3 * 88)))  # of part, velocity, timing
    frames[32:48] = 0
    for begin, drawn in ((32, 50), (36, 105), (40, 125)):
        frames[begin, [40, 88 + 40]], frames[begin, 264 + 40] = 1, drawn
    after = read(original.with_drawn(frames, stretch(128, 32, 48)))
    assert velocities_in(after.tracks[-1]) == [60, 75, 115]


def test_a_long_song_is_not_searched_for_each_drawn_note():
    """It was, for notes of the level drawn: 1.4 ms each in a song of 100,000 notes."""
    searched = []

    class Cells(np.ndarray):
        def __le__(self, most):
            searched.append(most)
            return super().__le__(most)

    frames = np.zeros((200, 5 * 88), np.uint8)
    frames[::2, 40] = frames[::2, 88 + 40] = 1
    frames[::2, 264 + 40] = np.resize([30, 90, 91, 0], 100)  # the third is of no level
    near = np.zeros((3, 50), np.int64).view(Cells)
    levels, drawn = Levels((60,), (30.0, 90.0)), find_notes(frames)
    velocities(drawn, frames, Grid.of_beats(4), like=[near] * len(drawn), levels=levels)
    assert sorted(searched) == [60, 91, 127, 127]


def test_a_single_bar_keeps_the_loudness_of_its_voices(tmp_path):
    """Of four notes of a melody, or two of a kick, as of many of what sounds with them."""
    melody = notes((480 * k, 480 * k + 480, 76, 30) for k in range(12))
    chords = [(480 * k, 480 * k + 480, key, 100) for k in range(12) for key in (48, 52, 55)]
    path = save(tmp_path / "a.mid", [melody, notes(chords, channel=1)])
    states = np.zeros((48, 88), int)
    states[range(16, 32, 4), 55] = states[range(16, 32, 4), 27] = 2
    after = read(redrawn(path, stretch(48, 16, 32), states)[1])
    played = {m.note: m.velocity for m in after.tracks[-1] if m.type == "note_on"}
    assert played == {76: 30, 48: 100}
    hits = [(240 * k, 240 * k + 60, 42, 30) for k in range(24)]
    hits += [(960 * k, 960 * k + 60, 36, 110) for k in range(6)]
    path = save(tmp_path / "kit.mid", [notes(hits, channel=9)])
    original = Original(path, KIT, transposed=0)
    frames, free = original.frames.copy(), stretch(len(original.frames), 16, 32)[:, :47]
    after = read(original.with_drawn(frames, free))
    loud = {m.note: m.velocity for m in after.tracks[-1] if m.type == "note_on"}
    assert loud == {36: 110, 42: 30}


def test_neighbours_are_those_that_begin_nearby_whatever_track_comes_first(tmp_path):
    """Not those of a later part on an earlier track, nor notes that merely end nearby."""
    later = notes((19200 + 120 * k, 19260 + 120 * k, 60, 100) for k in range(400))
    nearby = notes([(2400 + 240 * k, 2520 + 240 * k, 60, 20) for k in range(5)], channel=1)
    held = [notes([(0, 3600, 60, 90)], channel=channel) for channel in range(2, 7)]
    states = np.zeros((560, 88), int)
    states[range(40, 48, 4), 39] = 2
    path = save(tmp_path / "a.mid", [later, nearby, *held])
    after = read(redrawn(path, stretch(560, 40, 48), states)[1])
    assert velocities_in(after.tracks[-1]) == [20, 20]


def test_what_continues_a_song_is_like_what_is_kept_of_it(tmp_path):
    """Not as loud as what is dropped, nor on its instrument."""
    kept = [(0, mido.Message("program_change", program=27)), *notes([(0, 1920, 60, 30)])]
    rest = notes((1920 + 120 * k, 1980 + 120 * k, 70, 120) for k in range(16))
    rest = [(tick, message.copy(channel=1)) for tick, message in rest]
    states = np.zeros((32, 88), int)
    states[16:, 50] = 2
    after = sounding_after(save(tmp_path / "a.mid", [kept, rest]), 16, 32, states)
    drawn = after.tracks[-1]
    assert [m.program for m in drawn if m.type == "program_change"] == [27]
    assert set(velocities_in(drawn)) == {30}


@pytest.mark.parametrize(
    ("seconds", "options", "frames"), [(3.0, {}, 32), (3.0, {"tempo": 60}, 12), (0.001, {}, 1)]
)
def test_the_seconds_of_a_primer_pass_at_its_tempos(tmp_path, seconds, options, frames):
    """Of a song that doubles its tempo after 2 s, 24 frames were taken for the first 3 s."""
    path = save(
        tmp_path / "a.mid", [DOUBLED, notes((480 * k, 480 * k + 480, 60) for k in range(16))]
    )
    request = SampleRequest("npy", length=4, options=options, prime=path, prime_seconds=seconds)
    assert len(MusicSampling(BEATS, request).primer) == frames


def test_seconds_drawn_after_a_song_pass_at_its_last_tempo(tmp_path):
    """As the file keeps its tempos; where it had doubled its first, half as much was drawn."""
    path = save(tmp_path / "a.mid", [DOUBLED, notes([(0, 3840, 60)])])
    how = {"prime": path, "prime_frames": 99, "include_prime": True}  # of 32
    request = SampleRequest("mid", seconds=2.0, options={}, **how)
    assert MusicSampling(BEATS, request).length == 2 * 4 * 4


@pytest.mark.parametrize(("grid", "until"), [(BEATS.grid, 24), (Grid.of_seconds("0.125"), 20)])
def test_a_new_file_goes_on_in_the_tempo_where_its_primer_ends(tmp_path, grid, until):
    """It had the primer's first tempo; as sound, so had the primer itself."""
    tempos = [*DOUBLED, tempo(2880, 750_000)]
    path = save(tmp_path / "a.mid", [tempos, notes([(0, 3840, 60)])])
    for used, beat in ((16, 500_000), (until, 250_000), (until + 1, 750_000)):
        request = SampleRequest("mid", prime=path, prime_frames=used)
        MusicSampling(replace(BEATS, grid=grid), request).write(file := io.BytesIO(), [SILENCE])
        assert read(file.getvalue()).tracks[0][0].tempo == beat
    request = SampleRequest("wav", prime=path, prime_frames=until, include_prime=True)
    written = MusicSampling(replace(BEATS, grid=grid), request).write(io.BytesIO(), [SILENCE])
    drawn = 8 * (0.0625 if grid == BEATS.grid else 0.125)
    assert written.size == f"{until + 8} frames (8 drawn), {2.5 + drawn + 0.1:.1f} s"


@pytest.mark.parametrize(("options", "seconds"), [({}, 3.0), ({"tempo": 60}, 8.0)])
def test_a_filled_song_is_heard_at_its_tempos(tmp_path, options, seconds):
    """All of it had its first; the picture keeps to the sound."""
    path = save(tmp_path / "a.mid", [DOUBLED, notes([(0, 1920, 60), (1920, 3840, 62)])])
    request = SampleRequest("wav", options={"fill": path, "frames": "20:24"} | options)
    sampling = MusicSampling(BEATS, request)
    assert sampling.remarks == []
    drawn = sampling.filling.piece
    assert sampling.write(io.BytesIO(), [drawn]).size == f"32 frames, {seconds + 0.1:.1f} s"
    picture = sampling.picture(drawn)
    (_, _, first, _), (second, *_) = picture.boxes + picture.given
    assert (picture.seconds, picture.width) == (seconds, 32)
    assert (first, second) == pytest.approx((16 if options else 32 * 2 / 3,) * 2)


@pytest.mark.parametrize(
    ("division", "grid", "beat"), [(1, BEATS.grid, 250_000), (0xE728, TENTHS, 500_000)]
)
def test_the_tempo_after_a_part_of_a_tick_or_in_time_code(tmp_path, division, grid, beat):
    """The tick in which the primer ends has begun; 25 frames a second are no beats."""
    path = save(tmp_path / "a.mid", [[tempo(0, 250_000)], notes([(0, 400, 60)])])
    data = path.read_bytes()
    path.write_bytes(data[:12] + division.to_bytes(2) + data[14:])
    request = SampleRequest("mid", prime=path, prime_frames=1)
    MusicSampling(replace(BEATS, grid=grid), request).write(file := io.BytesIO(), [SILENCE])
    assert read(file.getvalue()).tracks[0][0].tempo == beat


def test_drawing_again_goes_on_where_the_last_drawing_is(song):
    """On its track and its channel; of two such tracks on the last one."""
    states = np.zeros((64, 88), int)
    states[16:20, 50] = states[40:44, 52] = 2
    song.write_bytes(redrawn(song, stretch(64, 16, 32), states)[1])
    assert [each[2:] for each in notes_of(mido.MidiFile(song).tracks[4])] == [(71, 2)]
    for kept in ([(71, 2)], []):  # and where nothing is left on it
        free = stretch(64, 40, 48) | (stretch(64, 16, 32) if not kept else False)
        states[16:32] = 0
        after = read(redrawn(song, free, states)[1])
        assert [track.name for track in after.tracks[3:]] == ["Kit", "drawn"]
        assert [each[2:] for each in notes_of(after.tracks[4])] == [*kept, (73, 2)]
        assert sum(message.type == "program_change" for message in after.tracks[4]) == 1
        assert sum(message.type == "track_name" for message in after.tracks[4]) == 1
    erased = song.with_name("erased.mid")
    erased.write_bytes(redrawn(song, stretch(64, 16, 32))[1])
    assert not notes_of(mido.MidiFile(erased).tracks[4])  # and its channel is that of its program
    after = read(redrawn(erased, stretch(64, 40, 48), states)[1])
    assert [each[2:] for each in notes_of(after.tracks[4])] == [(73, 2)]
    file = mido.MidiFile(song)
    file.tracks += [mido.MidiTrack(file.tracks[4]), mido.MidiTrack()]
    file.save(song)
    after = read(redrawn(song, stretch(64, 40, 48), states)[1])
    assert [len(notes_of(track)) for track in after.tracks[4:]] == [1, 2, 0]


def test_each_part_has_a_track_and_a_channel(song):
    """Its own ones, which are those of the next drawing, too; the file's banks are not for them."""
    file = mido.MidiFile(song)
    banks = [mido.Message("control_change", channel=k, control=0, value=8) for k in range(2)]
    file.tracks[0][:0] = banks
    file.save(song)
    for _ in range(2):
        original = Original(song, PARTS, transposed=0)
        frames = np.pad(original.frames, ((0, 0), (0, 3 * 88)))  # of part, velocity, timing
        frames[16:32] = 0
        strike(frames, (1, 16, 20, 50), (2, 24, 28, 20), (1, 24, 28, 52))
        song.write_bytes(original.with_drawn(frames, stretch(len(frames), 16, 32)))
        tracks = mido.MidiFile(song).tracks[4:]
        assert [track.name for track in tracks] == ["drawn high", "drawn low"]
        assert [[each[2:] for each in notes_of(track)] for track in tracks] == [
            [(71, 2), (73, 2)],
            [(41, 3)],
        ]
        programs = [m.program for track in tracks for m in track if m.type == "program_change"]
        assert programs == [40, 32]
        assert not [m for track in tracks for m in track if m.is_cc(0)]


def test_a_part_is_as_loud_as_its_own_notes(song):
    """Also where the file's notes of that part rest, and another part's are replaced."""
    low = notes([(3840, 4800, 60, 11)], channel=5)
    tracks = [[(0, mido.MetaMessage("track_name", name="low")), *low], notes([(0, 960, 60, 99)])]
    save(song, tracks)
    _, _, *drawn = drawn_parts(song, 40, (1, 0, 4, 40), (2, 0, 4, 39), until=8)
    assert [velocities_in(track) for track in drawn] == [[99], [11]]


def test_a_track_without_a_sound_gets_that_of_the_notes_replaced(song):
    """Not a piano, if the run knows parts, whose programs are for tracks of their own."""
    sound = [
        mido.Message("control_change", control=0, value=3),
        mido.Message("program_change", program=41),
    ]
    save(song, [[*((0, m) for m in sound), *notes([(0, 960, 60)])], []])
    _, drawn = drawn_parts(song, 8, (1, 0, 4, 40), into="2")
    assert [m.bytes()[1:] for m in drawn if m.type in ("control_change", "program_change")] == [
        [0, 3],
        [41],
    ]


def test_what_follows_a_rest_has_the_accents_of_its_metre(tmp_path):
    """No note is kept that it could be like; they were those of 4/4."""
    head = [(0, mido.MetaMessage("time_signature", numerator=3, denominator=4))]
    path = save(tmp_path / "a.mid", [head, notes([(2880, 3360, 60)])])
    original = Original(path, BEATS, transposed=0)
    frames = np.zeros((48, 176), np.uint8)
    frames[24:, 39] = frames[range(24, 48, 4), 88 + 39] = 1
    free = stretch(48, 24, 48)
    metre = [Signature(0, 3, 4)]
    drawn = read(original.with_drawn(frames, free, cut=24, metre=metre)).tracks[-1]
    first, second, third, *_ = velocities_in(drawn)
    assert first - second > 5 > abs(second - third)  # they also rise with the phrase


def test_parts_that_share_a_channel_lose_no_note(tmp_path):
    """Guards against notes of a key dropped where a part written before has a later one."""
    path = save(tmp_path / "full.mid", [note(0, 960, 60 + k, k) for k in range(16)])
    some = [(part, begin, begin + 2, 50) for part, begin in ((2, 0), (1, 2), (2, 6), (1, 8))]
    drawn = drawn_parts(path, 12, *some)[16:]
    assert [len(notes_of(track)) for track in drawn] == [2, 2]
    # As a player merges them, none ends where the next begins.
    played = [each[:2] for each in notes_of(mido.merge_tracks(drawn))]
    assert played == [(0, 239), (240, 480), (720, 959), (960, 1200)]


def test_without_a_free_channel_a_part_has_that_of_its_notes(tmp_path):
    """Guards a bass that is drawn on the guitar's channel."""
    named = {3: "low", 5: "high"}
    tracks = [
        [(0, mido.MetaMessage("track_name", name=named.get(k, "x"))), *note(0, 960, 60 + k, k)]
        for k in range(16)
    ]
    path = save(tmp_path / "full.mid", tracks)
    *_, high, low = drawn_parts(path, 8, (1, 0, 2, 50), (2, 0, 2, 20))
    assert (notes_of(high), notes_of(low)) == ([(0, 240, 71, 5)], [(0, 240, 41, 3)])


@pytest.mark.parametrize("into", ["1", "2"])
def test_no_end_silences_a_strike_of_another_track(tmp_path, into):
    """Guards two hands on one channel, as a player merges them."""
    hands = [note(0, 480, 60) + note(960, 1440, 60), note(0, 480, 64) + note(960, 1440, 64)]
    path = save(tmp_path / "hands.mid", hands)
    states = np.zeros((12, 88), int)
    states[4:8, [39, 43]] = 2
    after = read(redrawn(path, stretch(12, 4, 8), states, into=into)[1])
    played = [each[:3] for each in notes_of(mido.merge_tracks(after.tracks))]
    begins = {key: 480 + (key == 64 and into == "1") for key in (60, 64)}
    ends = {key: 960 - (key == 60 and into == "2") for key in (60, 64)}
    assert sorted(played) == sorted(
        each for k in (60, 64) for each in ((0, 480, k), (begins[k], ends[k], k), (960, 1440, k))
    )
