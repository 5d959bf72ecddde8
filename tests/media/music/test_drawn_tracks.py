"""The tracks and channels of drawn notes in the MIDI file that they are for."""

import mido
import numpy as np
import pytest
from kept_files import BEATS, KIT, notes_of, read, redrawn, stretch
from midi_tracks import note, save

from seqmodel.errors import UsageError
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.original import Original


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
        ("5", r"--into 5 is a track of drums, and the run's frames are pitches"),
    ],
)
def test_a_track_that_is_not_there_or_not_clear(song, into, said):
    file = mido.MidiFile(song)
    file.tracks.insert(3, mido.MidiTrack([mido.MetaMessage("track_name", name="Lead")]))
    file.tracks[0][0] = mido.MetaMessage("track_name", name="Strassenlied")
    file.save(song)
    with pytest.raises(UsageError, match=said.replace("ß", "ss")):
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
    marks = {"part": Levels.of_names(("high", "low"))}
    frame = PianoRollFrames(Grid.of_beats(4), onsets=True, marks=marks, programs=(40, 32))
    for _ in range(2):
        original = Original(song, frame, transposed=0)
        frames = np.pad(original.frames, ((0, 0), (0, 3 * 88)))  # of part, velocity, timing
        frames[16:32] = 0
        for part, key, begin in ((1, 50, 16), (2, 20, 24), (1, 52, 24)):
            frames[begin : begin + 4, key] = frames[begin, 88 + key] = 1
            frames[begin, 176 + key] = part
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


def test_parts_that_share_a_channel_lose_no_note(tmp_path):
    """Guards against notes of a key dropped where a part written before has a later one."""
    path = save(tmp_path / "full.mid", [note(0, 960, 60 + k, k) for k in range(16)])
    marks = {"part": Levels.of_names(("high", "low"))}
    frame = PianoRollFrames(Grid.of_beats(4), onsets=True, marks=marks, programs=(40, 32))
    frames = np.zeros((12, 5 * 88), np.uint8)
    for part, begin in ((2, 0), (1, 2), (2, 6), (1, 8)):
        frames[begin : begin + 2, 50] = frames[begin, 88 + 50] = 1
        frames[begin, 176 + 50] = part
    drawn = read(Original(path, frame, transposed=0).with_drawn(frames, stretch(12, 0, 12)))
    assert [len(notes_of(track)) for track in drawn.tracks[16:]] == [2, 2]
    # As a player merges them, none ends where the next begins.
    played = [each[:2] for each in notes_of(mido.merge_tracks(drawn.tracks[16:]))]
    assert played == [(0, 239), (240, 480), (720, 959), (960, 1200)]


def test_without_a_free_channel_a_part_has_that_of_its_notes(tmp_path):
    """Guards a bass that is drawn on the guitar's channel."""
    named = {3: "low", 5: "high"}
    tracks = [
        [(0, mido.MetaMessage("track_name", name=named.get(k, "x"))), *note(0, 960, 60 + k, k)]
        for k in range(16)
    ]
    path = save(tmp_path / "full.mid", tracks)
    marks = {"part": Levels.of_names(("high", "low"))}
    frame = PianoRollFrames(Grid.of_beats(4), onsets=True, marks=marks, programs=(40, 32))
    frames = np.zeros((8, 5 * 88), np.uint8)
    for part, row in ((1, 50), (2, 20)):
        frames[:2, row] = frames[0, 88 + row] = 1
        frames[0, 176 + row] = part
    drawn = read(Original(path, frame, transposed=0).with_drawn(frames, stretch(8, 0, 8)))
    assert [notes_of(track) for track in drawn.tracks[16:]] == [
        [(0, 240, 71, 5)],
        [(0, 240, 41, 3)],
    ]


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
