"""Drums from files to samples, by the commands that users type."""

import json
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import PNG, call_ok, call_refused, told
from midi_tracks import note, save
from mido import Message

from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes
from seqmodel.runs.folder import load_run


def write_loop(path, seed, frames=32):
    """A groove of kick, snare and hi-hats with a few hits more."""
    roll = (np.random.default_rng(seed).random((frames, 47)) < 0.02).astype(np.uint8)
    roll[::8, 1] = roll[4::8, 3] = roll[::2, 7] = 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(midi_bytes(roll, Grid.of_beats(4)))
    return path


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """A short run, beside its data."""
    folder = tmp_path_factory.mktemp("kit")
    for number, split in enumerate(["train"] * 6 + ["valid"] * 2):
        write_loop(folder / "loops" / split / f"{number}.mid", number)
    call_ok("prepare", folder / "loops", "--drums", "only", "--out", folder / "data")
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
    values = told("eval", kit, "--samples", 3)["samples"]
    assert values["train"]["hits_per_bar"] > 4
    assert set(values["drawn"]["distributions"]) == {"hits_per_frame", "sounds"}
    shown = call_ok("eval", kit, "--samples", 3).out
    words = ("hits per bar of 4/4", "closed hi-hat", "melodic")
    assert [word in shown for word in words] == [True, True, False]


def write_hits(path, *, melody):
    """Two hits that nothing ends, as drum machines write them; a note on channel 1 under them."""
    hits = enumerate(((36, 100), (38, 20)), 1)
    on = [(120 * k, Message("note_on", channel=9, note=n, velocity=v)) for k, (n, v) in hits]
    save(path, [on, note(0, 480, 60) if melody else []])


def test_drums_of_a_mixed_file_are_all_that_is_told():
    """Guards against other notes called hits, a kit's range of pitches, and others' velocities."""
    write_hits(Path("mixed.mid"), melody=True)
    values = told("inspect", "mixed.mid", "--drums", "only")
    names = ("notes", "lowest", "highest", "drum_notes", "velocities")
    assert [values[name] for name in names] == [2, None, None, 2, [20, 100]]
    lines = call_ok("inspect", "mixed.mid", "--drums", "only").out.splitlines()
    assert lines[1] == "  2 hits, velocities 20 to 100"
    values = told("inspect", "mixed.mid")
    assert (values["notes"], values["lowest"], values["velocities"]) == (1, "C4", [64, 64])


@pytest.mark.parametrize(
    "command",
    ["prepare --out d --drums drop", "prepare --out d --restrike discard", "inspect --drums drop"],
)
def test_drums_that_nothing_ends_are_named(command):
    """Guards against a file full of hits that "has no notes", without a word of what helps."""
    write_hits(Path("hits.mid"), melody=False)
    says = "hits.mid: has no notes but drums; use --drums only"
    call_refused(*command.split(), "hits.mid", says=says)
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
    shown = told("inspect", "o.mid", "--listen", "l.wav")
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


def test_rolls_of_drums_and_of_notes_are_not_mixed_up(kit, run):
    np.save("notes.npy", np.eye(16, 88, dtype=np.uint8))
    np.save("drums.npy", np.eye(16, 47, dtype=np.uint8))
    sample, data = ("sample", "o.mid", "--run"), kit.parent / "data"
    says = "--prime notes.npy: holds 88 notes, not 47 drum sounds"
    call_refused(*sample, kit, "--prime", "notes.npy", says=says)
    says = "--prime drums.npy: holds 47 drum sounds, not 88 notes; use a run of ... --drums only"
    call_refused(*sample, run, "--prime", "drums.npy", says=says)
    says = f"{data} holds drums, but {run} was trained on music: name another run or dataset"
    call_refused("eval", run, "--data", data, says=says, status=2)
