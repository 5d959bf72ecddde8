"""Parts that are usual roles, found by the words in tracks' names or by how tracks sound."""

from collections import Counter
from dataclasses import replace

import mido
import noise
import numpy as np
import pytest
from kept_files import BEATS, DRUMS
from midi_tracks import notes, save

from seqmodel.data.dataset import open_dataset
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import marks_in, struck
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.parts import named_parts, parts_of_notes
from seqmodel.media.music.sampling import FilledPiece

TUNE = [(4 * k, 4 * k + 3, 72 + k % 5) for k in range(16)]
BLOCKS = [(8 * k, 8 * k + 7, pitch) for k in range(8) for pitch in (60, 64, 67)]
LOW_LINE = [(4 * k, 4 * k + 4, 36 + k % 3) for k in range(16)]
RIFF = [(4 * k, 4 * k + 2, 55 + k % 2) for k in range(16)]
FLASH = [(0, 8, 96)]
"""Of 64 steps: a melody, chords, a bass, a line between them, and a passing one above all."""
BAND = {"tune": TUNE, "blocks": BLOCKS, "low": LOW_LINE, "riff": RIFF, "flash": FLASH}


def write(path, tracks):
    """A file of tracks (name, notes), perhaps with a program and a channel, none of them usual."""
    return save(path, [
        [
            *([(0, mido.MetaMessage("track_name", name=name))] if name else []),
            (0, mido.Message("program_change", channel=channel, program=program)),
            *notes(some, step=120, channel=channel),
        ]
        for name, some, program, channel in ((*track, 0, 0)[:4] for track in tracks)
    ])  # fmt: skip


def parts(path, tracks, names="melody,chords,bass"):
    """The part of each track."""
    score, wanted = read_score(write(path, tracks).read_bytes()), named_parts(names)
    found, _ = parts_of_notes(score, wanted)
    of_tracks = [{*found[score.track == k].tolist()} for k in range(len(tracks))]
    return [wanted[number - 1] for (number,) in of_tracks]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 3, 1, 0), (3, 0, 4, 2, 1)])
def test_tracks_without_names_go_by_how_they_sound(tmp_path, order):
    """Guards all of `prepare`, its counts, and a file to fill; mido counts the notes."""
    some = [[*BAND.values()][k] for k in order]
    path = write(tmp_path / "in" / "a.mid", [("", each) for each in some])
    expected = [["melody", "chords", "bass", "other", "other"][k] for k in order]
    options = {"parts": "melody,chords,bass"}
    manifest = noise.prepared(tmp_path / "in", tmp_path / "out", MUSIC.settings(options))
    counts = Counter[str]()
    for part, track in zip(expected, mido.MidiFile(path).tracks, strict=True):
        counts[part] += sum(message.type == "note_on" for message in track)
    dataset = open_dataset(tmp_path / "out")
    frames = FilledPiece(path, dataset.frame, {"bars": "1"}).frames
    numbers = np.bincount(marks_in(frames)["part"][struck(frames)], minlength=5)
    names = [part.name for part in dataset.frame.parts]
    assert dict(zip(names, numbers[1:].tolist(), strict=True)) == counts
    assert [*manifest["parts"]] == names == ["melody", "chords", "bass", "other"]
    assert all(manifest["parts"].values())
    train = dataset["train"]
    part = train.frame.marks_of(train.read_rows(0))["part"]
    assert (part == marks_in(frames)["part"][: len(part)]).all()


@pytest.mark.parametrize(
    ("name", "plays", "part"),
    [
        ("Lead Vocals", "low", "melody"),
        ("LEAD_GUITAR 2", "blocks", "melody"),
        ("Voix", "riff", "melody"),
        ("Rhythm Gtr.", "tune", "chords"),
        ("Strings1", "low", "chords"),
        ("Baixo", "blocks", "bass"),
        ("Padre", "riff", "other"),  # no word of it
        ("Bg Vocals", "riff", "other"),
        ("Bg Vocals", "blocks", "chords"),
        ("Piano left", "low", "bass"),
        ("other", "blocks", "other"),
        ("drawn other", "blocks", "other"),
        ("bass melody", "blocks", "melody"),  # the first of the user's own names
    ],
)
def test_names_of_tracks_come_before_how_they_sound(tmp_path, name, plays, part):
    """Guards samples that are read again, too: `other` is a name like any other."""
    tracks = [(name, BAND[plays]), ("Sax", TUNE), ("Sax", TUNE)]
    assert parts(tmp_path / "a.mid", tracks)[0] == part


def test_a_role_that_has_a_track_by_name_takes_none_by_its_sound(tmp_path):
    named = [("Vocals", RIFF), ("Bass", RIFF), ("", TUNE), ("", LOW_LINE), ("", BLOCKS)]
    found = parts(tmp_path / "a.mid", [*named, ("Organ", RIFF)])
    assert found == ["melody", "bass", "other", "other", "chords", "chords"]  # of which any number
    drawn = [(f"drawn {name.lower()}", some) for name, some in named[:2]] + named[2:]
    found = parts(tmp_path / "b.mid", [("drawn melody", RIFF), *drawn[1:]])
    assert found == ["melody", "bass", "melody", "bass", "chords"]


def test_programs_and_the_users_own_names_come_before_roles(tmp_path):
    tracks = [("Vocals", TUNE), ("Strings", BLOCKS), ("", RIFF, 33), ("", LOW_LINE)]
    names = "vocal,melody,strings,chords,bass"
    assert parts(tmp_path / "a.mid", tracks, names) == ["vocal", "strings", "bass", "other"]
    assert parts(tmp_path / "a.mid", tracks, "flute,strings")[0] == "other"
    found = parts(tmp_path / "a.mid", tracks, "Lead,harmony")
    assert found == ["Lead", "harmony", "other", "other"]
    assert parts(tmp_path / "a.mid", tracks[2:], "lead,drums") == ["lead", "other"]
    assert parts(tmp_path / "a.mid", [("Voice", TUNE), ("Sax", RIFF)], "lead,melody")[0] == "lead"


@pytest.mark.parametrize("named", [5, 1])
def test_a_title_is_no_name_of_a_track(tmp_path, named):
    """Guards against a song whose tracks all have its title, or only the first one has."""
    tracks = [("Piano solo" * (k < named), some) for k, some in enumerate(BAND.values())]
    expected = ["melody", "chords", "bass", "other", "other"]
    assert parts(tmp_path / "a.mid", tracks) == expected
    assert parts(tmp_path / "a.mid", [*tracks, ("drawn chords", RIFF)])[:5] == expected
    assert parts(tmp_path / "a.mid", [("other", BLOCKS), ("", TUNE)]) == ["other", "melody"]


def test_drums_and_percussion_have_no_role(tmp_path):
    """Guards a kick that passes for the bass, and a tinkle bell for the melody."""
    kicks, bells = [(k, k + 1, 36) for k in range(64)], [(k, k + 1, 90) for k in range(64)]
    tracks = [("Piano", kicks, 0, DRUMS), ("", bells, 112), ("", TUNE), ("", LOW_LINE)]
    assert parts(tmp_path / "a.mid", tracks) == ["other", "other", "melody", "bass"]
    assert parts(tmp_path / "a.mid", tracks[:1]) == ["other"]
    assert parts(tmp_path / "a.mid", tracks, "bass,drums") == ["drums", "other", "other", "bass"]
    kick = ("Bass drum", kicks, 0, DRUMS)
    assert parts(tmp_path / "a.mid", [kick, ("", TUNE)], "bass,drums") == ["drums", "other"]
    assert parts(tmp_path / "a.mid", [kick, ("", TUNE)], "bass,bass drum")[0] == "bass drum"


def test_of_equals_the_first_has_the_role(tmp_path):
    """And of 64 tracks; notes without a length are a line."""
    tracks = [("", LOW_LINE), ("", LOW_LINE), ("", [(0, 0, 90)]), ("", TUNE), ("", TUNE)]
    tracks += [("Sax", RIFF, k % 32, k % 9) for k in range(59)]
    found = parts(tmp_path / "a.mid", tracks)
    assert found == ["bass", *["other"] * 2, "melody", *["other"] * 60]


def test_a_held_note_under_others_makes_no_chords(tmp_path):
    """Of 64 steps 16 have two notes; there are no rests behind the short ones."""
    drone = [(0, 64, 60), *((4 * k, 4 * k + 1, 72) for k in range(16))]
    assert parts(tmp_path / "a.mid", [("", drone), ("", LOW_LINE)]) == ["melody", "bass"]


def test_files_without_notes_or_of_a_run_without_others_are_read(tmp_path):
    score = read_score(write(tmp_path / "a.mid", [("", [])]).read_bytes())
    found, programs = parts_of_notes(score, ("melody", "other"))
    assert not len(found)
    assert not programs
    path = write(tmp_path / "b.mid", [("", RIFF), ("", LOW_LINE), ("", FLASH)])
    frame = replace(BEATS, marks={"part": Levels.of_names(("bass",))}, programs=(32,))
    part = marks_in(FilledPiece(path, frame, {"bars": "1"}).frames)["part"]
    assert {*part[:, 55 - 21].tolist()} == {0}
    assert part[0, 36 - 21] == 1
