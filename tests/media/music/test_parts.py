"""Parts: whose notes are, by tracks and instruments, from files to datasets and back."""

import io
from dataclasses import replace
from itertools import pairwise

import mido
import noise
import numpy as np
import pytest
from midi_tracks import note, notes, save
from onsets import marked

from seqmodel.data.bundled import FRAMES
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import UsageError
from seqmodel.media.marks import Levels
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames, marks_in
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.parts import INSTRUMENTS, Part, named_parts, part_of, parts_of
from seqmodel.media.music.published import Roll
from seqmodel.media.music.writing import midi_bytes

STEP = 120


def write(path, tracks):
    """A file with these names, programs and notes, each track on a channel."""
    return save(path, [
        [
            *([(0, mido.MetaMessage("track_name", name=name))] if name else []),
            (0, mido.Message("program_change", channel=channel, program=program)),
            *notes(some, step=STEP, channel=channel),
        ]
        for channel, (name, program, some) in enumerate(tracks)
    ])  # fmt: skip


def prepared(folder, **options):
    out = folder / "data"
    manifest = noise.prepared(folder / "in", out, MUSIC.settings(options), force=True)
    return open_dataset(out), manifest


MELODY = ("Lead Voice", 0, [(0, 4, 72), (4, 8, 74), (10, 12, 60)])
CHORDS = ("", 48, [(0, 8, 60), (0, 8, 64), (8, 12, 60)])
BASS = ("bass", 33, [(0, 12, 36)])


@pytest.mark.parametrize(
    ("name", "program", "part"),
    [
        ("Bass", 0, "bass"),  # its name before its instrument
        ("BASSOON", 70, "other"),  # no word of it
        ("Basses", 0, "other"),
        ("2 FLUTES", 0, "flute"),
        ("Strings1", 0, "strings"),
        ("Track 4", 34, "bass"),
        ("Track 4", 73, "flute"),
        ("Track 4", 49, "strings"),
        ("strings", 32, "strings"),
        ("flute and strings", 0, "strings"),
        ("", 0, "other"),
    ],
)
def test_tracks_go_to_the_part_that_names_them(name, program, part):
    names = named_parts("bass, strings,flute")
    found = part_of({"name": name, "programs": [program + 1]}, names)
    assert names[found - 1] == part


def test_programs_are_those_of_general_midi():
    # Guards against a name left out or doubled, which would shift all that follow.
    known = {0: "grand piano", 24: "nylon", 40: "violin", 56: "trumpet", 73: "flute", 105: "banjo"}
    assert len(set(INSTRUMENTS)) == 128
    assert all(name in INSTRUMENTS[program] for program, name in known.items())
    assert INSTRUMENTS[127] == "gunshot"


@pytest.mark.parametrize("text", ["", "melody,", "bass,Bass", ",".join(map(str, range(14)))])
def test_names_that_are_no_parts_are_refused(text):
    with pytest.raises(UsageError, match="--parts"):
        named_parts(text)


def test_every_note_knows_its_part(tmp_path):
    """Guards against notes of another track, row or frame, and parts that swallow others."""
    write(tmp_path / "in" / "train" / "a.mid", [MELODY, CHORDS, BASS])
    dataset, manifest = prepared(tmp_path, parts="voice,bass")
    frame = dataset.frame
    assert [part.name for part in frame.parts] == ["voice", "bass", "other"]
    assert [part.program for part in frame.parts] == [0, 33, 48]
    expected = np.zeros((12, 88), int)
    # C4 is struck by another at 0 and 8, and by the voice at 10: one note ends there.
    for number, (_, _, some) in enumerate((MELODY, BASS, CHORDS), 1):
        for begin, end, pitch in some:
            expected[begin:end, pitch - 21] = number
    expected[10:, 60 - 21] = 1
    train = dataset["train"]
    assert (frame.marks_of(train.read_rows(0))["part"] == expected).all()
    assert manifest["parts"] == {"voice": 3, "bass": 1, "other": 3}
    assert manifest["notes"]["shared"] == 1
    assert frame == PianoRollFrames.from_json(frame.to_json())
    assert "3 parts" in str(frame)
    alone = replace(frame, marks={"part": Levels.of_names(("other",))}, programs=(0,))
    assert "with 1 part, 4 steps" in str(alone)
    frames = train[0]
    plain, _ = prepared(tmp_path)
    assert (plain["train"][0] == frames).all()


def test_one_strike_of_two_parts_is_of_the_first(tmp_path):
    write(tmp_path / "in" / "a.mid", [("piano", 0, [(0, 9, 60)]), ("flute", 73, [(0, 4, 60)])])
    for names in ("flute,piano", "piano,flute"):
        dataset, manifest = prepared(tmp_path, parts=names)
        assert dataset.frame.parts[0].name == names.split(",", maxsplit=1)[0]
        assert set(dataset.frame.marks_of(dataset["train"].read_rows(0))["part"][:, 39]) == {1}
        assert manifest["notes"]["shared"] == 1


def test_the_commonest_tracks_are_parts(tmp_path):
    """Guards the choice by pieces, names in any case, and tracks that all have one name."""
    flute = ("Flute", 73, [(0, 4, 84)])
    for k in range(10):
        write(tmp_path / "in" / f"{k}.mid", [("BASS", 33, BASS[2]), flute])
    odd = [(f"odd {k}", 0, [(0, 12, 40 + k), (6, 9, 60 + k)]) for k in range(7)]
    write(tmp_path / "in" / "same.mid", [("MIDI", 48, CHORDS[2]), ("MIDI", 33, [(0, 2, 30)])])
    write(tmp_path / "in" / "odd.mid", odd)
    dataset, _ = prepared(tmp_path, tracks=True)
    names = [part.name for part in dataset.frame.parts]
    assert names[0] == "Flute"  # the highest
    assert names[-2:] == ["BASS", "other"]
    assert set(names[1:-2]) == {"ensemble", *(f"odd {k}" for k in range(5))}


def test_voices_are_parts_as_tracks_are(tmp_path):
    """Guards a strike where a voice holds on, or none where one comes to what another holds."""
    voices = np.random.default_rng(1).choice([-1, 60, 61, 62, 72], (40, 3), p=[0.2, *[0.2] * 4])
    voices = np.repeat(voices, 2, axis=0)
    voices[-1] = voices[0] = 60, 61, 72
    pieces = np.empty(1, object)
    pieces[0] = voices
    tracks = []
    for k, line in enumerate(voices.T):
        cuts = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
        some = [(a, b, int(line[a])) for a, b in pairwise(cuts) if line[a] > 0]
        tracks.append((f"voice {k}", 0, some))
    for names in "voice 0,voice 1,voice 2", "voice 0":
        write(tmp_path / "in" / "train" / "a.mid", tracks)
        expected, manifest = prepared(tmp_path, parts=names)
        rows = expected["train"].read_rows(0)
        (tmp_path / "in" / "train" / "a.mid").unlink()
        np.savez(tmp_path / "in" / "a.npz", train=pieces)
        dataset, of_voices = prepared(tmp_path, parts=names)
        assert (dataset["train"].read_rows(0) == rows).all()
        assert of_voices["parts"] == manifest["parts"]
        assert dataset.frame.parts == expected.frame.parts
        (tmp_path / "in" / "a.npz").unlink()


def test_files_that_a_run_reads_keep_its_parts(tmp_path):
    """Guards against parts counted anew, and notes of no part that pass for the last one."""
    write(tmp_path / "a.mid", [CHORDS, MELODY])
    part = Levels.of_names(["bass", "voice"])
    frame = replace(FRAMES, onsets=True, marks={"part": part}, programs=(33, 0))
    found = marks_in(load_midi(tmp_path / "a.mid", frame).frames)["part"]
    assert found[0, 72 - 21] == 2
    assert found[0, 64 - 21] == 0
    assert found.max() == 2


def test_voices_beyond_the_named_ones_are_others():
    """Guards a fifth voice that passes for the bass, or is no longer struck."""
    roll = Roll.of_voices(np.array([[72, 67, 64, 60, 48]], np.int8))
    for names, of_fifth in ((("s", "a", "t", "b"), 0), (("s", "a", "t", "b", "other"), 5)):
        frames = roll.with_parts(names)
        part = marks_in(frames)["part"][0]
        assert [part[pitch - 21] for pitch in roll.pitches[0]] == [1, 2, 3, 4, of_fifth]
        assert frames[0, 88:176].sum() == 5


def test_samples_have_a_track_for_each_part(tmp_path):
    # Guards names, programs and channels; and frames that read back otherwise.
    write(tmp_path / "a.mid", [MELODY, CHORDS, BASS])
    part = Levels.of_names(["voice", "bass", "other"])
    frame = replace(FRAMES, onsets=True, marks={"part": part}, programs=(0, 33, 48))
    frames = load_midi(tmp_path / "a.mid", frame).frames
    data = midi_bytes(frames, Grid.of_beats(4), parts=frame.parts)
    (tmp_path / "b.mid").write_bytes(data)
    assert (load_midi(tmp_path / "b.mid", frame).frames == frames).all()
    _, *tracks = mido.MidiFile(file=io.BytesIO(data)).tracks
    assert [track.name for track in tracks] == ["voice", "bass", "other"]
    programs = [each for track in tracks for each in track if each.type == "program_change"]
    assert [each.program for each in programs] == [0, 33, 48]
    assert len({each.channel for each in programs}) == 3
    struck = [[m.note for m in track if m.type == "note_on"] for track in tracks]
    assert [sorted(pitches) for pitches in struck] == [[60, 72, 74], [36], [60, 60, 64]]


def test_given_notes_and_ten_parts_have_channels_but_not_that_of_drums():
    frames = np.zeros((4, 176), np.uint8)
    frames[:, 30:42], frames[0, 88 + 30 : 88 + 42] = 1, 1
    part = np.zeros((4, 88))
    part[:, 31:42] = np.arange(1, 12)
    given = np.zeros((4, 88), bool)
    given[:, 30] = True
    parts = [Part(f"p{k}", k) for k in range(11)]
    data = midi_bytes(marked(frames, part=part), Grid.of_beats(4), parts=parts, given=given)
    _, *tracks = mido.MidiFile(file=io.BytesIO(data)).tracks
    assert [track.name for track in tracks] == ["given", *(f"drawn p{k}" for k in range(11))]
    channels = [m.channel for track in tracks for m in track if m.type == "note_on"]
    assert channels == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12]


def test_parts_of_one_track_go_by_their_instruments(tmp_path):
    """Guards against a title, as in files of format 0, that takes all channels to one part."""
    track = [(0, mido.MetaMessage("track_name", name="My bass song"))]
    for channel, program in enumerate((56, 0, 33)):
        track.append((0, mido.Message("program_change", channel=channel, program=program)))
        track += note(960 * channel, 960 * channel + 960, 60 + channel, channel)
    save(tmp_path / "in" / "train" / "a.mid", [track], kind=0)
    _, manifest = prepared(tmp_path, tracks=True)
    assert manifest["parts"] == {"bass": 1, "piano": 1, "brass": 1}
    _, manifest = prepared(tmp_path, parts="banjo,bass,flute")
    remarks = MUSIC.prepare_remarks(manifest)
    assert (
        remarks[0]
        == "no note in train belongs to banjo, flute; `seqmodel inspect FILE` lists a file's parts"
    )
    _, manifest = prepared(tmp_path, parts="bass,trumpet,piano")
    assert manifest["parts"] == {"bass": 1, "trumpet": 1, "piano": 1}


def test_a_part_has_the_program_that_its_notes_are_played_with(tmp_path):
    """Guards against a default at the start of a track, which no note of it is played with."""
    track = [(0, mido.Message("program_change", program=0))]
    for program, begin, end in ((48, 1, 4), (40, 5, 7)):
        track.append((480 * begin, mido.Message("program_change", program=program)))
        track += notes(((k, k + 1, 60) for k in range(begin, end)), step=480)
    save(tmp_path / "a.mid", [track])
    (part,) = parts_of(read_score((tmp_path / "a.mid").read_bytes()))
    assert part["programs"] == [49, 41, 1]
