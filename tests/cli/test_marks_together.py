"""Parts, velocity and timing together, from `prepare` to an exported run."""

import json
import shutil
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import call_ok, told
from midi_tracks import note, save, timed

from seqmodel.data.dataset import open_dataset
from seqmodel.media.music.frames import marks_in
from seqmodel.runs.folder import load_run, read_metrics

MARKS = ("part", "velocity", "timing")
PREPARED = ("--parts", "high,low", "--velocity", "--timing")


@pytest.fixture(scope="module")
def band(tmp_path_factory):
    """Files of two tracks, off the grid and as loud as they are high."""
    folder = tmp_path_factory.mktemp("band")
    for k in range(6):
        random, tracks = np.random.default_rng(k), []
        for channel, (name, lowest) in enumerate((("High", 66), ("low", 40))):
            program = mido.Message("program_change", channel=channel, program=40 + channel)
            tracks.append([(0, mido.MetaMessage("track_name", name=name)), (0, program)])
            for frame in range(0, 24, 2 + channel):
                on = max(0, 120 * frame + int(random.integers(-40, 41)))
                pitch = lowest + int(random.integers(0, 8))
                tracks[-1] += note(on, on + 110, pitch, channel, pitch + int(random.integers(0, 9)))
        save(folder / ("valid" if k > 3 else "train") / f"{k}.mid", tracks)
    return folder


def events(path):
    """Of each track, by name, its events but names and ends, each with its tick."""
    found = {}
    for track in mido.MidiFile(path).tracks:
        found[track.name] = [(at, bytes(m.bytes())) for at, m in timed(track) if not m.is_meta]
    return found


@pytest.mark.usefixtures("no_pages")
def test_all_commands_know_all_marks(call, band, train, make_config):
    """Guards each mark beside the others: its place in rows, memory, checkpoints and files."""
    call_ok("prepare", band, "-o", "plain")
    call_ok("prepare", band, *PREPARED, "-o", "d")
    dataset = open_dataset("d")
    assert tuple(dataset.frame.marks) == MARKS

    small = {"unit": "gru", "model": "tied", "hidden": 4, "end": True}
    small |= {"note_unit": "gru", "note_hidden": 2, "note_layers": 1, "first_change": True}
    config = make_config(**small, data="d", epochs=1, batch_size=2, truncate=9)
    train(config, Path("r"), data=dataset)
    (line,) = read_metrics(Path("r"))
    values = told("eval", "r", "--samples", 2, "--seconds", 2)
    for name in MARKS:
        cost = line[f"valid_{name}_nats_per_note"]
        assert values[f"{name}_nats_per_note"] == pytest.approx(cost, rel=1e-5)
        assert name in values["samples"]["drawn"]["distances"]
        assert 0 < cost < 5
    valid = dataset["valid"]
    parts = [valid.frame.marks_of(valid.read_rows(k))["part"] for k in range(len(valid))]
    struck = [part[frames[:, 88:] > 0] for part, frames in zip(parts, valid, strict=True)]
    of_parts = [values[f"part_nats_per_note_{name}"] for name in ("high", "low")]
    mean = np.average(of_parts, weights=np.bincount(np.concatenate(struck))[1:])
    assert values["part_nats_per_note"] == pytest.approx(mean, rel=1e-5)
    assert of_parts[0] != of_parts[1]
    assert {"velocity_spread", "accent_1"} <= values["samples"]["drawn"].keys()
    without = told("eval", "r", "--data", "plain")
    assert without["nats_per_frame"] == pytest.approx(values["nats_per_frame"], rel=1e-6)
    assert not any(f"{name}_nats_per_note" in without for name in MARKS)
    once = ("--units", "gru", "--search", "none", "--seeds", 1, "--jobs", 1)
    call_ok("compare", "d", *once, "--config", "r/config.yaml", "--out", "e")
    (variant,) = json.loads(Path("e/table.json").read_text())["datasets"][0]["variants"]
    assert variant["nats_per_frame"]["valid"] == [line["valid_nats_per_frame"]]

    call_ok("sample", "s.mid", "--run", "r", "--length", 30, "--no-end")
    assert [track.name for track in mido.MidiFile("s.mid").tracks] == ["", "high", "low"]
    Path("again/train").mkdir(parents=True)
    shutil.copy("s.mid", "again/train")
    call_ok("prepare", "again", *PREPARED, "-o", "prepared")
    frame = load_run("r").frame
    again = marks_in(frame.decode_marked(open_dataset("prepared")["train"].read_rows(0)))
    for name in MARKS:
        found = set(np.unique(again[name]).tolist()) - {0}
        slack = 1 if name == "timing" else 0  # in whole ticks, and not before the piece
        means = np.rint(frame.marks[name].means)
        far = [min(abs(means - number)) for number in found if number != 64]
        assert max(far, default=0) <= slack

    source = band / "valid" / "4.mid"
    fill = ("--fill", source, "--frames", "8:12", "--particles", 2, "--sweeps", 0)
    call_ok("sample", "f.mid", "--run", "r", *fill)
    before, after = events(source), events("f.mid")
    assert {name for name in after if name.startswith("drawn")} <= {"drawn high", "drawn low"}
    for name, own in before.items():
        assert [e for e in after[name] if e[0] < 900] == [e for e in own if e[0] < 900]
    for out in ("r.html", "r.onnx"):
        result = call("export", "r", out)
        assert f"{out} draws only notes: what r has learned of part" in result.err
        assert Path(out).stat().st_size
