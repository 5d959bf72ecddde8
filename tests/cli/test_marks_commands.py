"""Velocities in samples, filled files and reports; beside other marks in `test_marks_together`."""

import base64
import re
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import Call, call_ok

import seqmodel


def strikes(path: "Path | str") -> list[tuple[str, int, int]]:
    """(Track, pitch, velocity) of each note-on of a MIDI file."""
    tracks = mido.MidiFile(path).tracks
    events = [(track.name, each) for track in tracks for each in track]
    return [
        (name, each.note, each.velocity)
        for name, each in events
        if each.type == "note_on" and each.velocity
    ]


@pytest.fixture
def loud_run(call: Call, struck: Path) -> str:
    call_ok("prepare", struck, "--velocity", "-o", "loud")
    call_ok("train", "loud", "--unit", "gru", "--hidden", 4, "--epochs", 1, "--run", "r")
    return "r"


def test_a_run_learns_draws_and_keeps_velocities(
    struck: Path, struck_data: Path, loud_run: str
) -> None:
    """Guards samples played by rule, and files changed."""
    levels = seqmodel.load_run(loud_run).frame.marks["velocity"]
    played = {*np.rint(levels.means).astype(int).tolist()}
    loud, plain = seqmodel.open_dataset("loud"), seqmodel.open_dataset(struck_data)
    for name in loud.splits:
        assert all((a == b).all() for a, b in zip(loud[name], plain[name], strict=True))

    call_ok("sample", "s.mid", "--run", loud_run, "--length", 60)
    found = {velocity for _, _, velocity in strikes("s.mid")}
    assert found <= played
    call_ok("sample", "t.mid", "--run", loud_run, "--length", 60, "--mark-temperature", 0)
    assert [one[1] for one in strikes("s.mid")] == [one[1] for one in strikes("t.mid")]

    source = sorted(struck.glob("*/*.mid"))[0]
    fill = ("--fill", source, "--frames", "4:8", "--particles", 2, "--sweeps", 0)
    call_ok("sample", "f.mid", "--run", loud_run, *fill)
    kept = [one for one in strikes("f.mid") if one[0] != "drawn"]
    assert set(kept) <= set(strikes(source))
    assert {v for name, _, v in strikes("f.mid") if name == "drawn"} <= played
    call_ok("report", loud_run, "--out", "page.html")  # which has a real piece beside samples
    text = Path("page.html").read_text()
    (real,) = re.findall(r'download="A real piece[^"]*" href="data:[^,]*,([^"]*)"', text)
    Path("real.mid").write_bytes(base64.b64decode(real))
    own = loud["valid"].frame.marks_of(loud["valid"].stored(0))["velocity"]
    assert {velocity for _, _, velocity in strikes("real.mid")} <= {*np.unique(own).tolist()}


def test_what_cannot_have_velocities_says_so(call: Call, struck: Path, struck_run: Path) -> None:
    result = call("prepare", struck, "--velocity", "--no-onsets", "-o", "d")
    assert result.err == "seqmodel: --velocity needs onsets: leave out --no-onsets\n"
    result = call("sample", "s.npy", "--run", struck_run, "--mark-temperature", 1)
    assert "was trained on notes alone: --mark-temperature does nothing" in result.err
