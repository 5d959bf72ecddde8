"""Metre and tempo from the file to the sample, by the commands."""

import io
import json
import shutil
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import call_ok, call_refused, told
from midi_tracks import notes, save, tempo, timed
from onsets import as_frames

from seqmodel.data.dataset import open_dataset
from seqmodel.runs.folder import load_run

TINY = ("--unit", "gru", "--hidden", 4, "--epochs", 1, "--no-end", "--no-motifs", "-q")


def write_tune(path, beats, of, bpm, bars=12):
    """Chords on each beat, low notes on each downbeat, as a file of one track."""
    head = [tempo(0, mido.bpm2tempo(bpm))]
    head.append((0, mido.MetaMessage("time_signature", numerator=beats, denominator=of)))
    pitches = [60 + k % 5 if k % beats else 48 for k in range(beats * bars)]
    tune = notes([(k, k + 1, pitch) for k, pitch in enumerate(pitches)], step=480 * 4 // of)
    save(path, [[*head, *tune]], kind=0)


@pytest.fixture(scope="module")
def tunes(tmp_path_factory):
    """Three waltzes at 90, a jig at 180 and a march, and a run on them."""
    folder = tmp_path_factory.mktemp("tunes")
    for k in range(3):
        write_tune(folder / f"midi/train/waltz{k}.mid", 3, 4, 90, bars=12 + k)
        write_tune(folder / f"midi/valid/waltz{k}.mid", 3, 4, 100, bars=9 + k)
    write_tune(folder / "midi/train/jig.mid", 6, 8, 180)
    call_ok("prepare", folder / "midi", "-o", folder / "data")
    call_ok("train", folder / "data", *TINY, "--run", folder / "run")
    return folder


def stated(data):
    """(Tick, beats, of) of each signature of a file, and its tempo."""
    found, bpm = [], 0.0
    for now, message in timed(mido.MidiFile(file=io.BytesIO(data)).tracks[0]):
        if message.type == "time_signature":
            found.append((now, message.numerator, message.denominator))
        elif message.type == "set_tempo":
            bpm = mido.tempo2bpm(message.tempo)
    return found, bpm


def sampled(run, *options, said=""):
    result = call_ok("sample", "-", "--format", "mid", "--run", run, "--length", 40, *options)
    assert result.err == said
    return stated(result.raw)


def test_prepare_and_inspect_show_metres(call, tunes):
    shown = call("inspect", tunes / "data")
    assert "  metre: 3/4 and 6/8 stated by 7 pieces\n" in shown.out
    dataset = open_dataset(tunes / "data")
    assert (dataset.frame.metre, dataset.frame.tempo) == ((3, 4), 90)
    facts = {Path(p.source).name: p.facts for p in dataset["train"].pieces}
    assert facts["jig.mid"] == {"transposed": 0, "metre": [[0, 6, 8]], "tempo": 180}


def test_train_tells_that_a_dataset_has_no_metres(call, tunes):
    """One prepared before metres were kept used to be taken as 4/4 in silence."""
    options = TINY[:-1]  # without -q
    manifest = Path(shutil.copytree(tunes / "data", "old")) / "manifest.json"
    values = json.loads(manifest.read_text())
    del values["metre"]
    manifest.write_text(json.dumps(values))
    said = (
        "old was prepared before metres were stored: every piece counts as 4/4; prepare it again\n"
    )
    assert said in call("train", "old", *options).err
    assert "before metres" not in call("train", "old", *options, "--no-bars").err
    assert "before metres" not in call("train", tunes / "data", *options).err


@pytest.mark.parametrize(
    "damage", [{"metre": {}}, {"copies": {"valid": {"8": "x"}}}, {"timing": {"suggestion": 5}}]
)
def test_a_manifest_damaged_where_it_is_only_shown_is_named(tunes, damage):
    """`inspect` used to end in a traceback."""
    manifest = Path(shutil.copytree(tunes / "data", "d")) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | damage))
    says = "d/manifest.json is damaged: its description of the dataset cannot be read; run "
    for options in ((), ("--json",)):
        call_refused("inspect", "d", *options, says=f"{says}`seqmodel prepare` again")


@pytest.mark.parametrize("metre", [False, [], [[0, 3, 5]]])
def test_damaged_metres_are_named(tunes, metre):
    """`inspect` used to say that every piece is sound of a dataset that train refused."""
    index = Path(shutil.copytree(tunes / "data", "d")) / "train.jsonl"
    first, *more = index.read_text().splitlines(keepends=True)
    index.write_text("".join([json.dumps(json.loads(first) | {"metre": metre}) + "\n", *more]))
    for command in (("inspect", "d"), ("train", "d", *TINY)):
        call_refused(*command, says="d/train.jsonl is damaged: ...; run `seqmodel prepare` again")


def test_parts_in_time_go_on_within_their_bar(call):
    """A piece of its own is cut in three, where it happens to be in a bar."""
    write_tune(Path("in/long.mid"), 3, 4, 90, bars=150)
    call_ok("prepare", "in", "-o", "d")
    dataset = open_dataset("d")
    for split in ("train", "valid", "test"):
        (piece,) = dataset[split].pieces
        begin, _ = map(int, piece.source.rsplit("/", 1)[1].split("-"))
        assert piece.facts["metre"] == [[-begin, 3, 4]]
        metres = dataset[split].metres(np.array([0]))
        assert metres is not None
        assert metres[0, 0] == -begin


def test_samples_state_metre_and_tempo(tunes):
    """Of train, or what is asked for; what is drawn then differs."""
    drawn = []
    for metre, bpm, *asked in ((3, 4), 90), ((6, 8), 171, "--metre", "6/8", "--tempo", 171):
        found = sampled(tunes / "run", *asked)
        assert found == ([(0, *metre)], pytest.approx(bpm, abs=0.01))
        call_ok("sample", "a.npy", "--force", "--run", tunes / "run", *asked)
        drawn.append(np.load("a.npy"))
    assert (drawn[0] != drawn[1]).any()


def test_a_metre_that_is_not_followed_is_named(run, seconds_run):
    said = f"{run} was trained without --bars: the drawn notes do not follow --metre\n"
    for name in ("a.mid", "a.npy"):  # a roll has no metre that could be written
        options = ("--run", run, "--length", 8, "--metre", "6/8")
        assert call_ok("sample", name, *options).err.startswith(said)
    says = "--metre needs a run on a grid of beats, not 0.1 s per step"
    command = ("sample", "b.mid", "--run", seconds_run, "--metre", "6/8")
    call_refused(*command, says=says, status=2)


def test_a_metre_of_no_piece_of_train_is_told(tunes):
    """A file in 7/8 of music in 6/8 was written in silence; what is not known is not told."""
    run, asked = shutil.copytree(tunes / "run", "run"), ("--length", 8, "--metre", "12/8")
    said = (
        f"no piece that {run} was trained on is in 12/8: the drawn notes may not follow --metre\n"
    )
    assert call_ok("sample", "a.mid", "--run", run, *asked).err.startswith(said)
    call_ok("export", run, "run.zip")
    assert "--metre" not in call_ok("sample", "b.mid", "--run", "run.zip", *asked).err
    call_ok("prepare", tunes / "midi", "-o", "data", "--steps-per-beat", 8)  # another of its name
    assert "--metre" not in call_ok("sample", "c.mid", "--run", "run.zip", *asked).err


def test_a_primer_keeps_its_metre_and_tempo(tunes):
    """The new piece begins where the primer stands in its bar: with what is left of the bar."""
    write_tune(Path("five.mid"), 5, 4, 77, bars=4)
    prime = ("--prime", "five.mid", "--prime-frames", 28)  # two beats of the second bar
    prefix = f"no piece that {tunes / 'run'} was trained on is in 2/4"
    unlearned = f"{prefix}: the drawn notes may not follow --metre\n"
    for options, metres, bpm, said in (
        ((), [(0, 3, 4), (360 * 4, 5, 4)], 77, ""),
        (("--include-prime",), [(0, 5, 4)], 77, ""),
        (("--metre", "2/4", "--tempo", 60), [(0, 1, 4), (480, 2, 4)], 60, unlearned),
    ):
        found = sampled(tunes / "run", *prime, *options, said=said)
        assert found == (metres, pytest.approx(bpm, abs=0.01))


def test_a_filled_file_keeps_its_metre_in_the_model_too(tunes):
    """Guards the nats of a filled piece, which are those of its own metre, and what is drawn."""
    write_tune(Path("jig.mid"), 6, 8, 160, bars=3)
    fill = ("--fill", "jig.mid", "--bars", "2:2", "--particles", 4, "--sweeps", 0)
    call_ok("sample", "a.mid", "--run", tunes / "run", *fill)
    assert stated(Path("a.mid").read_bytes()) == ([(0, 6, 8)], pytest.approx(160, abs=0.01))
    (piece,) = told("sample", "b.npy", "--run", tunes / "run", *fill)["pieces"]
    said, piece, loaded = piece["nats_per_drawn_frame"], np.load("b.npy"), load_run(tunes / "run")
    for metre, equal in (([0, 6, 8], True), ([0, 3, 4], False)):
        nats = loaded.nll(as_frames(piece), loaded.frame.metres({"metre": [metre]}))[12:24].mean()
        assert (said == pytest.approx(nats, abs=1e-4)) == equal
    longer = (*fill[:2], "--bars", "1:3", *fill[4:], "--run", tunes / "run")
    for name, metre in (("c", ()), ("d", ("--metre", "3/4"))):
        call_ok("sample", f"{name}.npy", *longer, *metre)
    assert (np.load("c.npy") != np.load("d.npy")).any()
