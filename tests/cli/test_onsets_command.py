"""Struck and held notes in all commands, and rolls of MIDI files by `prepare --no-onsets`."""

from pathlib import Path

import numpy as np
import pytest
from calling import PNG, call_ok, only, told
from onsets import HELD, OFF, STRUCK, as_frames, random_states

import seqmodel
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes


def test_prepare_and_inspect_report_onsets(call, struck, struck_data):
    result = call("prepare", struck, "-o", "d")
    assert (result.status, result.err) == (0, "not kept: velocities (68 to 100)\n")
    assert result.out.startswith("d: 88 notes struck or held, 4 steps per beat\n")
    assert np.load("d/train.npy").shape == (320, 22)
    values = told("inspect", struck_data, "--plot", "p.png")
    every = np.concatenate(list(seqmodel.open_dataset(struck_data)["valid"]))
    share = every[:, 88:].sum() / every[:, :88].sum()
    density = every[:, :88].sum() / len(every)
    assert values["struck_share"]["valid"] == pytest.approx(share, abs=5e-4)
    assert values["notes_per_frame"]["valid"] == pytest.approx(density, abs=5e-3)
    assert f"{density:.2f} notes per frame, {share:.1%} of them struck  longest" in (
        call("inspect", struck_data).out
    )
    assert Path("p.png").read_bytes().startswith(PNG)


def test_rolls_among_midi_files_leave_no_onsets(call, struck):
    """Guards rolls that a default would skip, and onsets asked for that would vanish."""
    np.save("roll.npy", np.eye(88, dtype=np.uint8))
    files, grid = (*sorted(struck.glob("*/*.mid")), "roll.npy"), ("--steps-per-beat", 4)
    plain = call("prepare", *files, *grid, "-o", "a")
    assert plain.out.startswith("a: 88 notes, 4 steps per beat\n")
    assert "join it; prepare --onsets keeps them apart\n" in plain.err
    assert "skipped" not in plain.err
    asked = call("prepare", *files, *grid, "--onsets", "-o", "b")
    assert asked.out.startswith("b: 88 notes struck or held, ")
    assert "  roll.npy: does not say which notes are struck again, " in asked.err
    pieces = [seqmodel.open_dataset(name).manifest["splits"] for name in "ab"]
    counts = [sum(split["pieces"] for split in splits.values()) for splits in pieces]
    assert counts == [14, 13]


def test_samples_prepared_again_are_what_was_drawn(call, struck_run):
    """Guards the round trip, bit for bit, including notes struck again without a gap."""
    options = ("--run", struck_run, "--length", 300, "--temperature", 1.7)
    for suffix in ("npy", "mid", "png"):
        call_ok("sample", f"o.{suffix}", *options)
    drawn = np.load("o.npy")
    assert (drawn.shape, drawn.dtype) == ((300, 88), np.uint8)
    assert set(np.unique(drawn)) == {OFF, STRUCK, HELD}
    before = np.concatenate([np.zeros((1, 88), np.uint8), drawn[:-1]])
    assert ((drawn == STRUCK) & (before != OFF)).sum() > 20
    assert not ((drawn == HELD) & (before == OFF)).any()
    for suffix in ("npy", "mid"):
        for option, frames in (("--onsets", as_frames(drawn)), ("--no-onsets", drawn != OFF)):
            # A single file would be cut in time.
            call_ok("prepare", f"o.{suffix}", option, "--split-by", "piece", "-o", "d", "--force")
            assert np.array_equal(only("d"), frames)
        values = told("inspect", f"o.{suffix}")
        assert values["notes"] == (drawn == STRUCK).sum()
    shown = call("inspect", "o.npy", "--plot", "p.png").out
    share = told("inspect", "o.npy")["struck_share"]
    assert shown.endswith(f", {share:.1%} of them struck\n")


def primed(run, prime, *options):
    """The frames sampled after a primer, and the messages."""
    options = ("--run", run, "--length", 60, "--seed", 2, "--prime", prime, *options)
    said = call_ok("sample", "p.npy", "--force", *options).err
    return np.load("p.npy"), said


def test_primers_with_onsets_and_without(struck_run, run):
    """For each kind of primer, the onsets it states are used, and missing ones are reported."""
    said = f"p.npy: 120 frames from {struck_run}\n"
    middle = random_states(5, 60, 88, density=0.0)
    middle[:, 40:46] = random_states(5, 60, 6, density=0.8)
    Path("s.mid").write_bytes(midi_bytes(as_frames(middle), Grid.of_beats(4)))
    np.save("s.npy", middle)
    np.save("r.npy", middle != OFF)
    whole, err = primed(struck_run, "s.mid", "--include-prime")
    assert (err, np.array_equal(whole[:60], middle)) == (said, True)
    again, err = primed(struck_run, "s.npy", "--include-prime")
    assert (err, np.array_equal(again, whole)) == (said, True)
    derived, err = primed(struck_run, "r.npy", "--include-prime")
    unstated = "r.npy does not state which notes are struck again: repeated notes count as held\n"
    assert err == unstated + said
    before = np.concatenate([np.zeros((1, 88), bool), middle[:-1] != OFF])
    assert np.array_equal(derived[:60], np.where(before & (middle != OFF), HELD, middle != OFF))
    assert not np.array_equal(derived[60:], whole[60:])
    rest, _ = primed(struck_run, "s.npy")
    assert np.array_equal(rest[1:], whole[61:])
    assert np.array_equal(rest[0], np.minimum(whole[60], STRUCK))  # in a file, silence precedes it
    assert (whole[60] == HELD).any()
    plain, err = primed(run, "s.npy", "--include-prime")
    assert err == f"p.npy: 120 frames from {run}\n"
    assert (plain.max(), np.array_equal(plain[:60], middle != OFF)) == (1, True)
