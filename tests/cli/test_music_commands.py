"""Onsets, drums, metres and marks from files to samples, by the commands that users type."""

import io
import json
import shutil
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import PNG, call_ok, call_refused, only, told
from midi_tracks import note, notes, save, tempo, timed
from mido import Message
from onsets import HELD, OFF, STRUCK, as_frames, random_states

import seqmodel
from seqmodel.data.dataset import open_dataset
from seqmodel.media.music.frames import marks_in
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes
from seqmodel.runs.folder import load_run, read_metrics


def test_the_papers_preset_on_onsets_is_remarked(here, struck_data):
    """Guards against figures that look comparable with the paper's and are not."""
    says = "d has onsets, unlike the paper's music: prepare it with --no-onsets\n"
    shutil.copytree(struck_data, "d")
    sizes = ["--preset", "paper", "--trials", 1]
    train = ["train", "d", *sizes, "--hidden", 3, "--epochs", 1, "--run", "r"]
    of_all = ["--set", "hidden=3", "--set", "epochs=1", "--units", "gru", "--seeds", 1]
    for command in (train, ["compare", "d", *sizes, *of_all, "--jobs", 1]):
        assert says in call_ok(*command).err.splitlines(keepends=True)


def test_prepare_and_inspect_report_onsets(call, struck, struck_data):
    result = call("prepare", struck, "-o", "d")
    assert (result.status, result.err) == (0, "not kept: velocities (68 to 100; --velocity)\n")
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
    assert "without a gap; prepare --onsets keeps them apart\n" in plain.err
    assert "skipped" not in plain.err
    asked = call("prepare", *files, *grid, "--onsets", "-o", "b")
    assert asked.out.startswith("b: 88 notes struck or held, ")
    assert "  roll.npy: does not state which notes are struck again, " in asked.err
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
    said = f"p.npy: 120 frames (60 drawn) from {struck_run}\n"
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
    assert err == f"p.npy: 120 frames (60 drawn) from {run}\n"
    assert (plain.max(), np.array_equal(plain[:60], middle != OFF)) == (1, True)


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
    save(Path("band.mid"), [notes([(0, 120, 36)], channel=9), note(0, 480, 60)])
    ways = ((), ("--plot", "a.png"), ("--plot", "b.png", "--drums", "keep"))
    remarks = [told("inspect", "band.mid", *options)["remarks"] for options in ways]
    left_out = "its drums are not drawn: --drums keep draws them among the notes"
    assert remarks == [[], [left_out], []]


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
        call_ok("export", "r", out)
        assert Path(out).stat().st_size
