"""Where drawn notes go in a file of tracks, channels, programs and keys, and what it says."""

import mido
import numpy as np
import pytest
from kept_files import BEATS, DRUMS, notes_of, read, redrawn, stretch, timed
from midi_tracks import note, save

from seqmodel.errors import UsageError
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.original import Original


def test_drawn_notes_have_the_files_key_and_all_move_together(song):
    """A run in C reads a song in F 5 lower; --transpose moves its notes too, but for drums. The
    program is that of the track of most notes replaced, not one that it changes to later."""
    file = mido.MidiFile(song)
    file.tracks[1].append(mido.Message("program_change", program=11))
    file.save(song)
    states = np.zeros((64, 88), int)
    states[16:20, 55 - 21] = 2
    _, data = redrawn(song, stretch(64, 16, 32), states, transposed=-5)
    drawn = read(data).tracks[4]
    assert [each[:3] for each in notes_of(drawn)] == [(1920, 2400, 60)]
    assert mido.Message("program_change", channel=2, program=73) in drawn
    _, data = redrawn(song, stretch(64, 16, 32), states, transposed=-5, semitones=2)
    moved, before = read(data), mido.MidiFile(song)
    assert [each[:3] for each in notes_of(moved.tracks[4])] == [(1920, 2400, 62)]
    assert notes_of(moved.tracks[1])[0] == (0, 470, 72, 0)
    assert (2500, mido.Message("polytouch", note=73, value=4)) in timed(moved.tracks[1])
    assert timed(moved.tracks[3]) == timed(before.tracks[3])


def test_notes_that_octaves_move_onto_one_key_do_not_overlap(song):
    """The run's C8, 3 semitones up, is folded onto the key of its C7, which sounds on."""
    states = np.zeros((64, 88), int)
    states[16:24, 108 - 21] = states[20:28, 96 - 21] = 2
    _, data = redrawn(song, stretch(64, 16, 32), states, semitones=3)
    drawn = [each[:3] for each in notes_of(read(data).tracks[4])]
    assert drawn == [(1920, 2880, 99), (2880, 3360, 99)]


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


def test_into_a_track(song):
    """By name or number; on its channel, where no two notes of a key overlap off the grid."""
    states = np.zeros((64, 88), int)
    states[16:32, 50] = 1
    states[20:24, 38 - 21] = 2  # the file's own note ends 11 ticks after frame 20 begins
    free = stretch(64, 20, 32) | stretch(64, 16, 32, 60)
    for name in ("Bass", " Bass ", "3"):
        _, data = redrawn(song, free, states, into=name)
        after = read(data)
        assert len(after.tracks) == 4
        bass = notes_of(after.tracks[2])
        assert {channel for *_, channel in bass} == {1}
        high, low = ([each[:2] for each in sorted(bass) if each[2] == key] for key in (71, 38))
        assert high == [(120 * t, 120 * t + 120) for t in range(16, 32)]
        assert low[:2] == [(7, 2411), (2411, 2880)]
    _, data = redrawn(song, free, states, into="1")  # which has no notes, and so no channel
    assert {each[3] for each in notes_of(read(data).tracks[0])} == {2}


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
    """Its own ones, which are those of the next drawing, too."""
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


def test_what_is_not_seen_is_said(song):
    remarks = Original(song, BEATS, transposed=0).remarks
    kept = "which the run does not replace: they stay"
    assert remarks == [f"{song} has drums and notes off the keyboard, {kept}"]
    kit = Original(song, PianoRollFrames(Grid.of_beats(4), drums=True, kit=True), transposed=0)
    assert kit.remarks == [f"{song} has notes besides drums, {kept}"]
