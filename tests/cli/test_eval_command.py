"""What `eval` prints, of runs, their average, files, and audio."""

import csv
import io
import json
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import PNG, call_ok, call_refused, told, write_piece

from seqmodel.config import Config
from seqmodel.data.dataset import Split, open_dataset
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.medium import AUDIO
from seqmodel.runs.folder import load_run

FIGURES = ("nats_per_frame", "nats_per_frame_skip_first", "piece_mean_nats_per_frame")
SCORES = ("accuracy", "precision", "recall")


def test_eval_prints_what_its_json_says(call, data, run):
    """Guards against a table and JSON that disagree; the keys are those of the design."""
    values = told("eval", run)
    counts = {"run", "data", "split", "epoch", "pieces", "frames"}
    assert set(values) == {*counts, *FIGURES, *SCORES, "baselines", "copies"}
    assert (values["run"], values["data"], values["split"]) == (str(run), str(data), "valid")
    figures = [values[name] for name in (*FIGURES, *SCORES)]
    table = call("eval", run)
    assert table.err == ""
    lines = table.out.splitlines()
    assert lines[0] == f"{run} (lstm, epoch 2) on valid of {data}: 3 pieces, 96 frames"
    assert [line.split()[-1] for line in lines[2:8]] == [f"{figure:.4f}" for figure in figures]
    assert lines[9] == "baselines, nats per frame"
    for line, (name, figure) in zip(lines[10:13], values["baselines"].items(), strict=True):
        verdict = "" if values["nats_per_frame"] < figure else "  better than the run"
        assert line == f"  {name.replace('_', ' '):22} {figure:9.4f}{verdict}"
    assert "better than the run" in table.out  # two epochs are not enough
    assert lines[13:] == [
        *("", "share of frames that are in train too, in any key"),
        *(f"  in windows of {n:>2} frames   {share:9.4f}" for n, share in values["copies"].items()),
    ]


def test_copies_are_reported(call, music, monkeypatch):
    """Guards what `prepare`, `inspect` and `eval` say of a passage of train in another key."""
    for split, name in (("train", "a"), ("valid", "b")):
        Path("m", split).mkdir(parents=True)
        np.save(f"m/{split}/{name}.npy", np.eye(48, 88, 3 * (name == "b"), np.uint8))
    shares = {"8": 1.0, "16": 1.0, "32": 1.0}
    said = "100.0% of valid repeats 8 or more frames of train, in any key; "
    said += "100.0% 16 or more, 100.0% 32 or more"
    assert said in call("prepare", "m", "-o", "d").err
    assert json.loads(Path("d/manifest.json").read_text())["copies"] == {"valid": shares}
    assert f"  {said}" in call("inspect", "d").out.splitlines()
    call_ok("train", "d", "--hidden", 4, "--epochs", 1)
    assert told("eval")["copies"] == shares
    assert told("eval", "--data", music / "valid")["copies"] == dict.fromkeys(shares, 0.0)
    assert "copies" not in told("eval", "--split", "train")
    np.save("m/valid/c.npy", np.eye(48, 88, dtype=np.uint8)[::-1])  # down
    for frames, share in ((96, 0.5), (40, 1.0)):  # of all, or of as many as are enough
        monkeypatch.setattr(Split.subsample, "__defaults__", (frames,))
        found = told("prepare", "m", "-o", "d", "--force")["copies"]["valid"]
        assert found == dict.fromkeys(shares, share)


def test_eval_with_voices(call, data):
    """Guards figures that do not add up, and voices asked for where nobody knows them."""
    chorale = [[72, 67, 64, 48], [72, 67, 64, 48], [71, 67, 62, 43], [-1, 67, 67, 43]] * 8
    Path("a.json").write_text(json.dumps({"train": [chorale] * 3, "valid": [chorale, chorale[4:]]}))
    call_ok("prepare", "a.json", "-o", "d")
    call_ok("train", "d", "--hidden", 4, "--epochs", 1, "--run", "r")
    values = told("eval", "r", "--voices")
    voices = values["voices"]
    assert voices["notes"] == 4 * values["frames"] == 4 * (32 + 28)
    total = values["nats_per_frame"] + voices["assignment_nats_per_frame"]
    assert math.isclose(voices["nats_per_frame"], total)
    assert math.isclose(voices["nats_per_note"], total / 4)
    assert 0 < voices["assignment_nats_per_frame"] < 0.2
    table = call("eval", "r", "--voices").out
    assert f"\nwith voices              {total:9.4f}\n  which voice sings what " in table
    assert f"\n  per note, rests too    {total / 4:9.4f}\n" in table
    files = told("eval", "r", "--data", "a.json", "--voices")
    assert files["voices"]["notes"] == 4 * (4 * 32 + 28)
    says = "...--voices needs pieces that state which voice sings what"
    call_refused("eval", "r", "--data", data, "--voices", says=says)
    call_refused("eval", "r", "--voices", "--per-frame", says="...exclude each other", status=2)


def test_eval_compares_samples_with_the_data(call, data, run):
    """Checks some lines of the table against its JSON, and figures of the data directly."""
    plain = call("eval", run).out
    values = told("eval", run, "--samples", 4)["samples"]
    header = {"pieces": 4, "frames": 128, "seed": 1, "lengths": "as long as pieces of valid"}
    assert values | header == values
    train = open_dataset(data)["train"]
    assert values["train"]["notes_per_frame"] == train.totals().sum() / train.frames
    assert values["train"]["voices_share"] == 1
    assert values["split"]["long_note_share"] < 1
    result = call("eval", run, "--samples", 4)
    assert result.err == ""
    assert result.out.startswith(
        f"{plain}\n4 samples, 128 frames, seed 1, as long as pieces of valid\n\n"
        f"{'':27}{'samples':>10}{'valid':>10}{'training':>10}\n"
    )
    columns = [values[name] for name in ("drawn", "split", "train")]
    for label, key in (
        ("notes per frame", "notes_per_frame"),
        ("frames of 2 notes", "voices_share"),
        ("  pieces with a chord drone", "long_chord_share"),
        ("  share of the piece", "copied_share"),
    ):
        cells = (f"{column[key]:>10.4f}" if key in column else "" for column in columns)
        assert f"{label:27}{''.join(cells)}\n" in result.out
    for name, distance in columns[0]["distances"].items():
        cells = f"{distance:>10.4f}{columns[1]['distances'][name]:>10.4f}"
        assert f"{'  ' + name.replace('_', ' '):27}{cells}\n" in result.out


def test_eval_on_frames_of_another_kind_warns(call, music, data, run, seconds_run):
    """Guards against unknowingly comparing figures of different frames, or of other notes."""
    said = f"{data} was prepared differently from the run's training data (4 steps per beat, not "
    said += "0.1 s per step): the figures are not a fair test\n"
    assert call_ok("eval", seconds_run, "--data", data).err == said
    assert call("eval", seconds_run, "--data", data, "-q").err == ""
    call_ok("prepare", music, "--no-onsets", "-o", "d", "--restrike=discard", "--drums=keep")
    said = "(restrike discard, not restrike close; drums kept, not drums dropped)"
    assert said in call_ok("eval", run, "--data", "d").err


# ---- several runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(shared, data):
    """The tied model on the data of `run`, as a zip."""
    options = ("--hidden", 4, "--epochs", 1, "--no-end")
    call_ok("train", data, *options, "--run", shared / "other")
    call_ok("export", shared / "other", shared / "other.zip")
    return shared / "other.zip"


def test_eval_of_several_runs_shows_their_average_and_each(call, run, other, data):
    values = told("eval", run, other, "--data", data)
    assert [one["run"] for one in values["runs"]] == [str(run), str(other)]
    table = call("eval", run, other, "--data", data).out.splitlines()
    assert table[0] == f"the average of 2 runs on valid of {data}: 3 pieces, 96 frames"
    assert table[2].split()[-1] == f"{values['nats_per_frame']:.4f}"
    start = table.index("each run by itself, nats per frame") + 1
    for line, one in zip(table[start:], values["runs"], strict=False):
        assert line.split() == [one["run"], f"{one['nats_per_frame']:.4f}"]
    better = sum(nats < values["nats_per_frame"] for nats in values["baselines"].values())
    assert sum(line.endswith("better than the average") for line in table) == better


def test_runs_that_cannot_be_averaged_are_refused(call, run, other, data, seconds_run, music):
    """In one line that names the run and the reason, before anything is scored."""
    shutil.copytree(music, "fewer")
    Path("fewer/train/0.mid").unlink()
    call_ok("prepare", "fewer", "--no-onsets", "--out", "d")
    call_ok("train", "d", "--hidden", 4, "--epochs", 1, "--no-end", "--run", "r")
    for names, why in (
        ((run, seconds_run), f"{seconds_run} differs from {run} (0.1 s per step, not "),
        ((run, "none"), "there is no run none"),
        ((run, "r"), f"{run} was trained on {data}, but r was not: name the data to score "),
        ((run, other, "--samples", 2), "several runs and --samples exclude each other"),
    ):
        call_refused("eval", *names, says=f"...{why}", status=1 if "none" in names else 2)
    assert "differs from" not in call("eval", run, "r", "--data", data).err


def test_sample_draws_from_the_average(call, run, other):
    """The same for the same seed, and not what one of the runs draws alone."""
    both = ("--run", run, "--run", other)
    said = call("sample", "a.mid", *both, "--length", 24).err
    assert said.startswith("a.mid: 24 frames from the average of 2 runs")
    values = told("sample", "b.mid", *both, "--length", 24)
    assert values["runs"] == [str(run), str(other)]
    assert values["pieces"] == [{"path": "b.mid", "frames": 24, "ended_by": "limit"}]
    for k, one in enumerate((run, other)):
        call_ok("sample", f"{k}.mid", "--run", one, "--length", 24)
    drawn = [Path(f"{name}.mid").read_bytes() for name in ("a", "b", "0", "1")]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    for option in (("--best-of", 2), ("--fill", "a.mid")):
        says = f"several runs and {option[0]} exclude each other"
        call_refused("sample", "c.mid", *both, *option, says=says, status=2)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_file_is_scored_as_its_dataset_would_be(data, run, here, monkeypatch):
    """Piece by piece and frame by frame, in words, CSV and JSON; and nothing is left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    split, model = open_dataset(data)["valid"], load_run(run)
    for k, source in enumerate(split.sources):
        nats = model.nll(split[k])
        (piece,) = rows_of(call_ok("eval", run, "--data", source, "--per-piece").out)
        assert (piece["source"], piece["frames"]) == (source, str(len(nats)))
        assert float(piece["nats"]) == pytest.approx(nats.sum(), rel=1e-6)
        assert float(piece["nats_per_frame"]) == pytest.approx(nats.mean(), rel=1e-6)
    rows = rows_of(call_ok("eval", run, "--data", source, "--per-frame").out)
    assert [(row["source"], int(row["frame"])) for row in rows] == [
        (source, t) for t in range(len(nats))
    ]
    np.testing.assert_allclose([float(row["nats"]) for row in rows], nats, rtol=1e-5)
    values = told("eval", run, "--data", source, "--per-frame")
    assert (values["data"], values["split"], values["pieces"]) == (source, None, 1)
    assert values["nats_per_frame"] == pytest.approx(nats.mean(), rel=1e-6)
    np.testing.assert_allclose(values["per_piece"][0]["frame_nats"], nats, rtol=1e-5)
    assert set(values["baselines"]) == {"marginal", "repeat", "note_ngram"}
    table = call_ok("eval", run, "--data", source).out.splitlines()
    assert table[0] == f"{run} (lstm, epoch 2) on {source}: 1 piece, {len(nats)} frames"
    assert list(here.iterdir()) == []


def test_a_folder_is_scored_whole_and_says_what_was_skipped(music, run):
    """Folders named train, valid and test are no splits here, and no hash leaves pieces out."""
    shutil.copytree(music, "all")
    Path("all/bad.mid").write_text("no music")
    result = call_ok("eval", run, "--data", "all")
    assert " on all: 15 pieces, 480 frames" in result.out
    assert result.err.startswith("skipped 1 file:\n  all/bad.mid: ")
    skipped = told("eval", run, "--data", "all", "-q")["skipped"]
    assert [skip["source"] for skip in skipped] == ["all/bad.mid"]
    Path("linked").mkdir()
    Path("linked/here").symlink_to("../all")
    Path("linked/song.mxl").touch()
    result = call_ok("eval", run, "--data", "linked")
    assert " on linked: 15 pieces, 480 frames" in result.out
    assert result.err.startswith("skipped 1 file:\n  linked/here/bad.mid: ")
    assert "skipped 1 .mxl file, such as linked/song.mxl: cannot be read; convert" in result.err


def test_files_are_prepared_as_the_runs_data_were(music, seconds_run):
    """On its grid; and moved to C for a run whose data were."""
    call_ok("prepare", music, "-o", "c", "--transpose-to-c")
    options = ("--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--run", "c-run", "-q")
    call_ok("train", "c", *options)
    for run, data in ((Path("c-run"), Path("c")), (seconds_run, seconds_run.parent / "seconds")):
        whole, theirs = (told("eval", run, "--data", given) for given in (music / "valid", data))
        for name in ("pieces", "frames", "nats_per_frame", "baselines"):
            assert whole[name] == theirs[name], name


def test_the_curve_of_one_piece_is_drawn(run):
    write_piece(Path("one.mid"), 5)
    command = ("eval", run, "--data", "one.mid")
    drawn = call_ok(*command, "--plot", "one.png")
    assert (drawn.out, drawn.err.splitlines()[-1]) == (call_ok(*command).out, "drawn to one.png")
    assert Path("one.png").read_bytes().startswith(PNG)
    call_refused(*command, "--plot", "one.png", says="one.png already exists; add --force")
    rows = call_ok(*command, "--plot", "one.png", "--force", "--per-piece")
    assert rows.out == call_ok(*command, "--per-piece").out


@pytest.mark.parametrize("otherwise", ["", "--no-onsets", "--drums=only", "--steps-per-beat=2"])
def test_without_its_training_data_a_run_has_no_baselines(music, otherwise):
    """Guards against an error, and baselines of other frames than the file is read in."""
    write_piece(Path("one.mid"), 5)
    call_ok("prepare", music, "--out", "d")
    call_ok("train", "d", "--hidden", 3, "--epochs", 1, "--run", "r", "-q")
    if otherwise:
        np.save("drums.npy", np.eye(47, dtype=np.uint8))
        source = "drums.npy" if "drums" in otherwise else music
        call_ok("prepare", source, "--out", "d", "--force", otherwise)
    else:
        shutil.rmtree("d")
    command = ("eval", "r", "--data", "one.mid")
    values = told(*command)
    assert (values["baselines"], "copies" in values) == ({}, False)
    assert "baselines" not in call_ok(*command).out
    says = "--voices needs train, but that of r is gone or was prepared differently"
    call_refused(*command, "--voices", says=says)


def test_a_dataset_that_has_changed_under_a_run_is_scored_only_if_named(music):
    """Guards against pieces that the run was trained on, scored as its own valid."""
    shutil.copytree(music, "mid")
    call_ok("prepare", "mid", "--out", "d")
    call_ok("train", "d", "--hidden", 3, "--epochs", 1, "--run", "r", "-q")
    write_piece(Path("mid/valid/new.mid"), 5)
    call_ok("prepare", "mid", "--out", "d", "--force")
    says = "...d is not the dataset that r was trained on, but another of the same name: name one"
    call_refused("eval", "r", says=f"{says} with `seqmodel eval --data`")  # report says it too
    assert told("eval", "r", "--data", "d")["pieces"] == len(open_dataset("d")["valid"])


def test_without_a_run_the_newest_of_the_medium_is_taken(run, audio_run_folder):
    for name, folder in (("music", run), ("speech", audio_run_folder)):
        shutil.copytree(folder, f"runs/{name}")
    write_piece(Path("one.mid"), 5)
    assert call_ok("eval", "--data", "one.mid").out.startswith("runs/music (")
    says = "one.mid is music, but runs/speech was trained on audio: name another run or other files"
    call_refused("eval", "runs/speech", "--data", "one.mid", says=says, status=2)


@pytest.fixture(scope="module")
def audio(audio_dataset):
    return audio_dataset.folder


def printed(call, *arguments):
    result = call("train", *arguments, "--print-config")
    assert (result.status, result.err) == (0, "")
    pairs = dict(line.split(": ", 1) for line in result.out.splitlines())
    assert list(pairs) == list(Config.__dataclass_fields__)
    return pairs


def test_defaults_depend_on_the_medium(call, audio, data):
    """Guards against unrolling whole recordings, or training speech at music's learning rate."""
    ours = printed(call, audio)
    musics = printed(call, data, "--model", "frame-wise", "--no-end")
    frames = printed(call, audio, "--model", "frame-wise")
    for name, expected in (
        ("model", ["sample-wise", "frame-wise", "frame-wise"]),
        ("learning_rate", ["0.003", "0.004", musics["learning_rate"]]),
        ("truncate", ["200", "200", "0"]),
    ):
        assert [values[name] for values in (ours, frames, musics)] == expected
    assert frames["learning_rate"] != musics["learning_rate"]
    Path("c.yaml").write_text(f"data: {audio}\ntruncate: 50\nbatch_size: 3\n")
    file = printed(call, "--config", "c.yaml", "--batch-size", 4)
    names = ("data", "truncate", "batch_size", "learning_rate")
    assert [file[name] for name in names] == [str(audio), "50", "4", "0.003"]
    assert printed(call)["model"] == "tied"  # without data: music


# ---- eval ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "unit"),
    [("audio", "lstm"), ("logistic", "lstm"), ("sample_wise", "sample-wise lstm")],
)
def test_eval_states_what_figures_refer_to(call, audio, which, unit, request):
    run = request.getfixturevalue(f"{which}_run_folder")
    values = told("eval", run, "--data", audio)
    result = call("eval", run, "--batch-size", 1)
    assert (result.status, result.err) == (0, "")
    if which == "audio":
        mean, deviation = values["standardisation"].values()
        names = ["silence", "gaussian"]
        kind = f"  densities of (sample - {mean:.3g}) / {deviation:.3g}; add "
    else:
        names = ["silence", "gaussian", "flac", "lattice"]
        kind = f"bits per sample          {values['bits_per_sample']:9.4f}\n"
    assert list(values["baselines"]) == names
    heading = f"{run} ({unit}, epoch {values['epoch']}) on valid of {audio}: 2 pieces, 95 frames\n"
    assert result.out.startswith(heading)
    assert f"\nnats per sample          {values['nats_per_sample']:9.4f}\n" in result.out
    assert kind in result.out


def test_silent_training_data_is_reported():
    """Used to train on a silent corpus without a warning, and samples from it were noise."""
    for split in ("train", "valid"):
        Path("in", split).mkdir(parents=True)
        soundfile.write(f"in/{split}/a.wav", np.zeros(800), 8000)
    said = "train is silent (all of its samples are equal): there is nothing to learn, and samples"
    assert said in call_ok("prepare", "in", "-o", "d").err
    command = ("train", "d", "--hidden", 2, "--epochs", 1, "--output", "gaussian")
    assert call_ok(*command).err.startswith(said)
    Path("in/train").rename("in/test")
    assert said not in call_ok("prepare", "in", "-o", "e").err


# ---- mu-law -------------------------------------------------------------------------------------


def test_mu_law_is_stored_in_8_bits(call):
    """Guards against 16 bits on disk or for a run's files, and equal fingerprints of equal samples,
    with which --resume would go on with other data."""
    Path("in").mkdir()
    levels = np.random.default_rng(1).integers(-128, 128, 8000, np.int8)
    soundfile.write("in/a.wav", mu_law.decode(levels), 8000)
    result = call("prepare", "in", "-o", "d", "--levels", "mu-law")
    assert result.out.startswith("d: 8,000 Hz, frames of 10 samples, context 20, 8-bit mu-law\n")
    call("prepare", "in", "-o", "linear")
    ours, linear = open_dataset("d"), open_dataset("linear")
    stored = np.load("d/train.npy")
    assert stored.dtype == np.int8
    np.testing.assert_array_equal(stored, levels[:6400])
    heard = ours["train"][0].ravel()
    np.testing.assert_array_equal(heard, mu_law.decode(stored))
    np.testing.assert_array_equal(heard, linear["train"][0].ravel())
    assert ours.frame.deviation == pytest.approx(heard.astype(float).std(), rel=1e-6)
    assert ours.fingerprint() != linear.fingerprint()
    assert ours.frame.differences(linear.frame) == ["8-bit mu-law, not 16 bits"]
    settings = AUDIO.settings_like(ours.frame)
    assert (settings.levels, settings.rate) == ("mu-law", 8000)
    for name, there in (("d", True), ("linear", False)):
        shown = call("inspect", name).out
        assert ("8-bit mu-law" in shown, "stored as mu-law" in shown) == (there, there)


def test_from_recording_to_sample(call):
    """Guards the figures, and samples that are not levels or change level when heard again."""
    soundfile.write("a.wav", np.random.default_rng(1).uniform(-0.9, 0.9, 4000), 8000)
    call_ok("prepare", "a.wav", "-o", "d", "--levels", "mu-law")
    call_ok("train", "d", "--run", "r", "--hidden", 4, "--epochs", 1, "--input-noise", 0)
    nats = load_run("r").nll(open_dataset("d")["valid"][0]).mean() / 10
    values = told("eval", "r")
    assert values["bits_per_sample"] == pytest.approx(nats / math.log(2), rel=1e-6)
    assert values["bits_per_sample"] < 8.5
    assert list(values["baselines"]) == ["silence", "gaussian"]

    call_ok("sample", "o.wav", "--run", "r", "--seconds", 0.1, "--seed", 1)
    drawn = soundfile.read("o.wav", dtype="float32")[0]
    assert len(np.unique(drawn)) > 20
    np.testing.assert_array_equal(drawn, mu_law.decode(mu_law.encode(drawn)))
    prime = ("--prime", "o.wav", "--include-prime")
    call_ok("sample", "p.wav", "--run", "r", "--seconds", 0.1, *prime)
    both = soundfile.read("p.wav", dtype="float32")[0]
    np.testing.assert_array_equal(both[:800], drawn)
    np.testing.assert_array_equal(both, mu_law.decode(mu_law.encode(both)))
    assert "mu-law, not" not in call_ok("eval", "r", "--data", "a.wav").err
