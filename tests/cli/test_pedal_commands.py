"""`prepare --pedal`: when the sustain pedal lengthens notes, and what is told of it."""

import json
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import call_ok

import seqmodel
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid

LINE = (
    "the sustain pedal lengthens 1 of 2 notes (50.0% of the sound); --pedal ignore leaves that out"
)
KEYS, SOUND = 2, 8
"""The frames of the first note by its key, and by the pedal."""


@pytest.fixture
def file(here):
    """C4 for half a beat, held by the pedal for a beat and a half more; then E4 for two beats."""
    message = mido.Message
    track = mido.MidiTrack(
        [
            message("control_change", control=64, value=127),
            message("note_on", note=60),
            message("note_off", note=60, time=240),
            message("control_change", control=64, value=0, time=720),
            message("note_on", note=64),
            message("note_off", note=64, time=480),
        ]
    )
    path = here / "m/train/a.mid"
    path.parent.mkdir(parents=True)
    mido.MidiFile(ticks_per_beat=480, tracks=[track]).save(path)
    return path


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ([], SOUND),
        (["--pedal=extend"], SOUND),
        (["--pedal=ignore"], KEYS),
        (["--no-onsets"], KEYS),
        (["--restrike=discard"], KEYS),
        (["--restrike=discard", "--no-onsets", "--pedal=extend"], SOUND),
    ],
)
def test_when_the_pedal_lengthens_notes(call, file, options, frames):
    """Guards the published rolls, which do without, and frames in which what is struck again while
    the pedal holds it would not show."""
    told = call("prepare", "m", "-o", "d", *options).err
    data = seqmodel.open_dataset("d")
    assert data["train"][0][:, 60 - 21].sum() == frames
    longer = frames == SOUND
    assert (LINE in told.splitlines(), data.frame.pedal) == (longer, longer)
    assert ("pedal (pressed 1 time)" in told) is not longer
    assert (f"  {LINE}\n" in call("inspect", "d").out) is longer
    manifest = json.loads(Path("d/manifest.json").read_text())
    assert manifest["frame"].get("pedal", False) is longer
    assert manifest["notes"].get("lengthened", 0) == longer


@pytest.mark.parametrize(("options", "frames"), [([], KEYS), (["--pedal=extend"], SOUND)])
def test_files_among_rolls_are_read_as_those_are(file, options, frames):
    np.save("m/train/a.npy", np.ones((3, 88), np.uint8))
    call_ok("prepare", "m", "-o", "d", "--steps-per-beat=4", *options)
    totals = [int(piece[:, 60 - 21].sum()) for piece in seqmodel.open_dataset("d")["train"]]
    assert sorted(totals) == sorted([frames, 3])


def test_data_without_a_pedal_are_as_before(call, music):
    """Guards runs and datasets of before the pedal: nothing differs where there is none."""
    call_ok("prepare", music, "-o", "d")
    frame = seqmodel.open_dataset("d").frame
    assert "pedal" not in frame.to_json()
    assert "pedal" not in call("inspect", "d").out


def test_a_run_reads_files_as_its_data_were_read(file):
    """Also the same file has the same content, and so the same split, whatever is heard of it."""
    contents = set()
    for pedal, length in ((True, SOUND), (False, KEYS)):
        frame = PianoRollFrames(Grid.of_beats(4), onsets=True, pedal=pedal)
        again = PianoRollFrames.from_json(frame.to_json())
        assert again == frame
        piece = load_midi(file, again)
        assert piece.frames[:, 60 - 21].sum() == length
        contents.add(piece.content)
    assert len(contents) == 1
    assert frame.differences(PianoRollFrames(Grid.of_beats(4), onsets=True, pedal=True)) == [
        "without notes held by the pedal, not with notes held by the pedal"
    ]
