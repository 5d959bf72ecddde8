"""Notes that round to no frame, and notes that repeat a sounding one: kept, dropped, counted."""

import json
from pathlib import Path

import numpy as np
import pytest
from calling import call_ok
from mido import Message, MidiFile, MidiTrack

import seqmodel
from seqmodel.errors import SourceError
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import place
from seqmodel.media.registry import MEDIA

REPEATED = (
    "3 of 5 notes follow one of their pitch without a gap and join it; prepare --onsets "
    "keeps them apart"
)
IN_ONE_FRAME = (
    "1 of 5 notes begin in the same frame as another of their pitch; a finer grid keeps them apart"
)
SHORT = (
    "dropped 3 of 5 notes that fill no frame; prepare --short-notes keep, or a finer grid, keeps "
    "them"
)


def write(path, *spans):
    """A file of notes of one pitch, on and off at these ticks, 10 to a frame of a quarter beat."""
    track, now = MidiTrack(), 0
    for on, off in spans:
        track.append(Message("note_on", note=60, time=on - now))
        track.append(Message("note_off", note=60, time=off - on))
        now = off
    MidiFile(tracks=[track], ticks_per_beat=40).save(path)
    return path


@pytest.fixture
def short(here):
    """Five notes: the second short and right after the first, the next two within one frame. Two
    tracks have them, which makes no more."""
    file = MidiFile(write(here / "short.mid", (0, 10), (10, 13), (20, 22), (22, 24), (40, 60)))
    file.tracks.append(file.tracks[0])
    file.save(here / "short.mid")
    return here / "short.mid"


@pytest.mark.parametrize(
    ("options", "states", "line"),
    [
        ([], [1, 1, 1, 0, 1, 2], IN_ONE_FRAME),
        (["--no-onsets"], [1, 1, 1, 0, 1, 1], REPEATED),
        (["--no-onsets", "--short-notes", "drop"], [1, 0, 0, 0, 1, 1], SHORT),
        (["--no-onsets", "--restrike", "discard"], [1, 0, 0, 0, 1, 1], SHORT),
        (
            ["--no-onsets", "--restrike", "discard", "--short-notes", "keep"],
            [1, 1, 1, 0, 1, 1],
            REPEATED,
        ),
    ],
)
def test_prepare_counts_notes_that_do_not_show(call, short, options, states, line):
    result = call("prepare", short, "-o", "d", "--split-by", "piece", "--json", *options)
    assert result.status == 0
    assert line in result.err.splitlines()
    manifest = json.loads(result.out)
    merged, dropped = (0, 3) if line == SHORT else (3 if options else 1, 0)
    assert manifest["notes"] == {"read": 5, "dropped": dropped, "merged": merged}
    assert manifest["frame"].get("short_notes", False) is (line != SHORT)
    data = seqmodel.open_dataset("d")
    frames = data[data.splits[0]][0]
    key = frames[:, 60 - 21] if frames.shape[1] == 88 else 2 * frames[:, 39] - frames[:, 88 + 39]
    assert key.tolist() == states
    assert f"  {line}\n" in call("inspect", "d").out


def test_a_run_reads_files_as_its_data_were_read(call, short, here):
    """Guards runs and datasets of before the rule, whose definition lacks it."""
    music = MEDIA["music"]
    for keep in (True, False):
        frame = PianoRollFrames(Grid.of_beats(4), short_notes=keep)
        values = frame.to_json()
        assert ("short_notes" in values) is keep
        again = music.frame_from_json(values)
        assert again == frame
        assert again.differences(PianoRollFrames(Grid.of_beats(4))) == []
        (work,) = music.corpus(music.settings_like(again), [short], here).works(short)
        assert work.frames == 6
        (rows,) = work.rows(0, work.frames)
        assert again.decode(rows)[:, 60 - 21].tolist() == [1, keep, keep, 0, 1, 1]


def test_published_rolls_keep_their_rule(call, here, shared_data):
    """Guards files that a run trained on the rolls continues: they are read as the rolls were."""
    call_ok("prepare", shared_data / "music/rolls/JSB_Chorales.mat", "-o", "jsb")
    assert not seqmodel.open_dataset("jsb").frame.short_notes
    np.save(here / "a.npy", np.ones((3, 88), np.uint8))
    call_ok("prepare", here / "a.npy", "-o", "other")
    assert seqmodel.open_dataset("other").frame.short_notes


def test_a_beat_of_staccato_is_heard(call, shared_data):
    """96 staccato eighths, a tenth of a beat each, once made a dataset without a note."""
    path = shared_data / "music/real/stacc.mid"
    call_ok("prepare", path, "--split-by", "piece", "-o", "d")
    data = seqmodel.open_dataset("d")
    frames = data[data.splits[0]][0]
    assert frames[:, 88:].sum() == 96
    assert json.loads(Path("d/manifest.json").read_text())["notes"]["merged"] == 0


@pytest.mark.parametrize(
    ("collection", "grid"),
    [
        ("perf", Grid.of_seconds("0.05")),
        ("folk", Grid.of_beats(4)),
        ("band", Grid.of_beats(12)),
    ],
)
def test_real_onsets_survive(shared_data, collection, grid):
    """Guards real music: at least 99 % of all onsets, distinct in tick and pitch, are struck in
    their frame. In band songs two instruments often play one pitch almost at once: 97.9 %."""
    found, shown = 0, 0
    for path in sorted((shared_data / "music/real" / collection).glob("*.mid")):
        try:
            placed = place(read_score(path.read_bytes()), grid, drums=True)
        except SourceError:
            continue
        frames = placed.frames(onsets=True)
        struck = np.argwhere(frames[:, 88:])
        ticks = placed.score.on_tick[placed.chosen].tolist()
        notes = set(zip(ticks, placed.row.tolist(), strict=True))
        frame_of = dict(zip(ticks, placed.begin.tolist(), strict=True))
        assert {(frame_of[t], row) for t, row in notes} == set(map(tuple, struck.tolist()))
        found, shown = found + len(notes), shown + len(struck)
    assert shown / found > (0.978 if collection == "band" else 0.99)
