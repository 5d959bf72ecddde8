"""Drums from files to samples, by the commands that users type."""

import json
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import PNG, call_ok

from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes
from seqmodel.runs.folder import load_run

LOOPS = {"train": 6, "valid": 2}


def write_loop(path, seed, frames=32):
    """A groove of kick, snare and hi-hats with a few hits more."""
    roll = (np.random.default_rng(seed).random((frames, 47)) < 0.02).astype(np.uint8)
    roll[::8, 1] = roll[4::8, 3] = roll[::2, 7] = 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(midi_bytes(roll, Grid.of_beats(4)))
    return path


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loops")
    for number, (split, count) in enumerate(LOOPS.items()):
        for k in range(count):
            write_loop(folder / split / f"{k}.mid", 10 * number + k)
    return folder


@pytest.fixture(scope="module")
def kit(loops, tmp_path_factory):
    """A short run, beside its data."""
    folder = tmp_path_factory.mktemp("kit")
    call_ok("prepare", loops, "--drums", "only", "--out", folder / "data")
    options = ("--hidden", 4, "--epochs", 2, "--run", folder / "run")
    call_ok("train", folder / "data", *options)
    return folder / "run"


def test_a_dataset_of_drums_has_47_rows_and_says_so(kit):
    manifest = json.loads((kit.parent / "data/manifest.json").read_text())
    assert manifest["frame"].items() >= {"notes": 47, "kit": True, "drums": True}.items()
    assert "onsets" not in manifest["frame"]
    shown = call_ok("inspect", kit.parent / "data").out
    assert "dataset of 47 drum sounds, 4 steps per beat" in shown
    assert "hits per frame" in shown
    # With the piano's batches of two, kits are hardly learned: 10 hits a bar instead of 17.
    assert load_run(kit).config.batch_size == 1
    call_ok("report", kit, "--out", "r.html", "--samples", 1)
    assert "drums: " in Path("r.html").read_text()
    values = json.loads(call_ok("eval", kit, "--samples", 3, "--json").out)["samples"]
    assert values["train"]["hits_per_bar"] > 4
    assert set(values["drawn"]["distributions"]) == {"hits_per_frame", "sounds"}
    told = call_ok("eval", kit, "--samples", 3).out
    assert "hits per bar of 4/4" in told
    assert "closed hi-hat" in told
    assert "melodic" not in told


DRUM_HITS = ((36, 100), (38, 20))


def write_hits(path, *, melody):
    """Two hits that nothing ends, as drum machines write them; a note on channel 1 under them."""
    hits = [mido.Message("note_on", channel=9, note=n, velocity=v, time=120) for n, v in DRUM_HITS]
    kinds = [("note_on", 0), ("note_off", 480)] * melody
    note = [mido.Message(kind, note=60, velocity=64, time=time) for kind, time in kinds]
    mido.MidiFile(tracks=[mido.MidiTrack(hits), mido.MidiTrack(note)]).save(path)


def test_drums_of_a_mixed_file_are_all_that_is_told(call):
    """Guards against other notes called hits, a range of pitches for a kit, and velocities of
    other notes, or of none, since a hit has no length."""
    write_hits(Path("mixed.mid"), melody=True)
    told = json.loads(call_ok("inspect", "mixed.mid", "--drums", "only", "--json").out)
    assert (told["notes"], told["lowest"], told["highest"]) == (2, None, None)
    assert (told["drum_notes"], told["velocities"]) == (2, [20, 100])
    told = call_ok("inspect", "mixed.mid", "--drums", "only").out.splitlines()
    assert told[1] == "  2 hits, velocities 20 to 100"
    told = json.loads(call_ok("inspect", "mixed.mid", "--json").out)
    assert (told["notes"], told["lowest"], told["velocities"]) == (1, "C4", [64, 64])


@pytest.mark.parametrize(
    "command",
    ["prepare --out d --drums drop", "prepare --out d --restrike discard", "inspect --drums drop"],
)
def test_drums_that_nothing_ends_are_named(call, command):
    """Guards against a file full of hits that "has no notes", without a word of what helps."""
    write_hits(Path("hits.mid"), melody=False)
    refused = call(*command.split(), "hits.mid")
    assert refused.err == "seqmodel: hits.mid: has no notes but drums; use --drums only\n"
    assert call_ok("inspect", "hits.mid").out.splitlines()[1].startswith("  2 hits")


def test_samples_are_on_channel_10_in_every_format(call, kit):
    """Guards against drums written as a piano's notes."""
    for name in ("o.mid", "o.npy", "o.wav", "o.png"):
        call_ok("sample", name, "--run", kit, "--length", 32, "--seed", 3)
    file = mido.MidiFile("o.mid")
    notes = [m for m in file if m.type == "note_on"]
    assert notes
    assert {m.channel for m in notes} == {9}
    roll = np.load("o.npy")
    assert roll.shape[1] == 47
    assert roll.sum() == len(notes)
    assert Path("o.png").read_bytes().startswith(PNG)
    shown = json.loads(call_ok("inspect", "o.mid", "--json", "--listen", "l.wav").out)
    assert sum(shown["drum_sounds"].values()) == shown["notes"] == len(notes)
    assert Path("l.wav").read_bytes()[44:] == Path("o.wav").read_bytes()[44:]
    assert "drums of" in call_ok("inspect", "o.npy").out


def test_files_of_drums_are_continued_and_filled(call, kit, here):
    loop = write_loop(here / "loop.mid", 99)
    call_ok("sample", "p.npy", "--run", kit, "--prime", loop, "--include-prime", "--length", 8)
    call_ok("inspect", loop, "--drums", "only")
    primed = np.load("p.npy")
    call_ok("sample", "f.npy", "--run", kit, "--fill", loop, "--bars", "2:2", "--particles", 4)
    filled = np.load("f.npy")
    assert len(filled) == 32
    assert np.array_equal(filled[:16], primed[:16])
    call_ok("sample", "f.npy", "--run", kit, "--fill", "p.npy", "--notes", "36:38", "--force")
    other = np.delete(np.load("f.npy"), [1, 2, 3], axis=1)
    assert np.array_equal(other, np.delete(primed, [1, 2, 3], axis=1))


def test_rolls_of_drums_and_of_notes_are_not_mixed_up(call, kit, run):
    np.save("notes.npy", np.eye(16, 88, dtype=np.uint8))
    np.save("drums.npy", np.eye(16, 47, dtype=np.uint8))
    refused = call("sample", "o.mid", "--run", kit, "--prime", "notes.npy")
    assert refused.err == "seqmodel: --prime notes.npy: holds 88 notes, not 47 drum sounds\n"
    refused = call("sample", "o.mid", "--run", run, "--prime", "drums.npy")
    assert refused.err == (
        "seqmodel: --prime drums.npy: holds 47 drum sounds, not 88 notes; use a run of data "
        "prepared with --drums only\n"
    )
    call_ok("prepare", "drums.npy", "--drums", "only", "--out", "d")
    refused = call("eval", run, "--data", kit.parent / "data")
    assert refused.err.endswith(
        f"data holds drums, but {run} was trained on music: name another run or dataset\n"
    )
