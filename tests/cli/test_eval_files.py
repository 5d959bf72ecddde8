"""`eval --data` with media files, and the figures of single pieces and frames."""

import csv
import io
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from calling import PNG, call_ok, write_piece

from seqmodel.data.dataset import open_dataset
from seqmodel.runs.folder import load_run


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_file_is_scored_as_its_dataset_would_be(call, music, data, run, here, monkeypatch):
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
    told = json.loads(call_ok("eval", run, "--data", source, "--per-frame", "--json").out)
    assert (told["data"], told["split"], told["pieces"]) == (source, None, 1)
    assert told["nats_per_frame"] == pytest.approx(nats.mean(), rel=1e-6)
    np.testing.assert_allclose(told["per_piece"][0]["frame_nats"], nats, rtol=1e-5)
    assert set(told["baselines"]) == {"marginal", "repeat", "note_ngram"}
    table = call_ok("eval", run, "--data", source).out.splitlines()
    assert table[0] == f"{run} (lstm, epoch 2) on {source}: 1 piece, {len(nats)} frames"
    assert list(here.iterdir()) == []


def test_each_piece_of_a_dataset(data, run, monkeypatch):
    """Windows and batches of pieces must not be mixed up."""
    split, model = open_dataset(data)["train"], load_run(run)
    monkeypatch.setattr("seqmodel.model.sequence.FRAMES_AT_ONCE", 21)
    rows = rows_of(call_ok("eval", run, "--split", "train", "--per-frame", "--batch-size", 3).out)
    expected = np.concatenate([model.nll(piece) for piece in split])
    np.testing.assert_allclose([float(row["nats"]) for row in rows], expected, rtol=1e-5)
    told = json.loads(call_ok("eval", run, "--per-piece", "--json").out)
    total = sum(piece["nats"] for piece in told["per_piece"])
    assert total == pytest.approx(told["nats_per_frame"] * told["frames"])
    assert "frame_nats" not in told["per_piece"][0]


def test_a_folder_is_scored_whole_and_says_what_was_skipped(call, music, run):
    """Folders named train, valid and test are no splits here, and no hash leaves pieces out."""
    shutil.copytree(music, "all")
    Path("all/bad.mid").write_text("no music")
    result = call_ok("eval", run, "--data", "all")
    assert " on all: 15 pieces, 480 frames" in result.out
    assert result.err.startswith("skipped 1 file:\n  all/bad.mid: ")
    told = json.loads(call("eval", run, "--data", "all", "--json", "-q").out)
    assert [skip["source"] for skip in told["skipped"]] == ["all/bad.mid"]
    Path("linked").mkdir()
    Path("linked/here").symlink_to("../all")
    Path("linked/song.mxl").touch()
    result = call_ok("eval", run, "--data", "linked")
    assert " on linked: 15 pieces, 480 frames" in result.out
    assert result.err.startswith("skipped 1 file:\n  linked/here/bad.mid: ")
    assert "skipped 1 .mxl file, such as linked/song.mxl: cannot be read; convert" in result.err


def test_files_are_prepared_as_the_runs_data_were(call, music, seconds_run):
    """On its grid; and moved to C for a run whose data were."""
    call_ok("prepare", music, "-o", "c", "--transpose-to-c")
    options = ("--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--run", "c-run", "-q")
    call_ok("train", "c", *options)
    for run, data in ((Path("c-run"), Path("c")), (seconds_run, seconds_run.parent / "seconds")):
        whole = json.loads(call_ok("eval", run, "--data", music / "valid", "--json").out)
        theirs = json.loads(call_ok("eval", run, "--data", data, "--json").out)
        for name in ("pieces", "frames", "nats_per_frame", "baselines"):
            assert whole[name] == theirs[name], name


def test_the_curve_of_one_piece_is_drawn(call, run):
    write_piece(Path("one.mid"), 5)
    plain = call_ok("eval", run, "--data", "one.mid").out
    drawn = call_ok("eval", run, "--data", "one.mid", "--plot", "one.png")
    assert (drawn.out, drawn.err.splitlines()[-1]) == (plain, "drawn to one.png")
    assert Path("one.png").read_bytes().startswith(PNG)
    again = call("eval", run, "--data", "one.mid", "--plot", "one.png")
    assert again.err == "seqmodel: one.png already exists; add --force to replace it\n"
    rows = call_ok("eval", run, "--data", "one.mid", "--plot", "one.png", "--force", "--per-piece")
    assert rows.out == call_ok("eval", run, "--data", "one.mid", "--per-piece").out


@pytest.mark.parametrize("otherwise", ["", "--no-onsets", "--drums=only", "--steps-per-beat=2"])
def test_without_its_training_data_a_run_has_no_baselines(call, music, otherwise):
    """Guards against an error where the model alone would do, or over frames of another size, and
    against baselines that learned on another grid than the file is read on."""
    write_piece(Path("one.mid"), 5)
    call_ok("prepare", music, "--out", "d")
    call_ok("train", "d", "--hidden", 3, "--epochs", 1, "--run", "r", "-q")
    if otherwise:
        np.save("drums.npy", np.eye(47, dtype=np.uint8))
        source = "drums.npy" if "drums" in otherwise else music
        call_ok("prepare", source, "--out", "d", "--force", otherwise)
    else:
        shutil.rmtree("d")
    told = json.loads(call_ok("eval", "r", "--data", "one.mid", "--json").out)
    assert (told["baselines"], "copies" in told) == ({}, False)
    assert "baselines" not in call_ok("eval", "r", "--data", "one.mid").out
    assert call("eval", "r", "--data", "one.mid", "--voices").err == (
        "seqmodel: --voices needs train, but that of r is gone or was prepared differently\n"
    )


def test_without_a_run_the_newest_of_the_medium_is_taken(call, run, audio_run_folder):
    for name, folder in (("music", run), ("speech", audio_run_folder)):
        shutil.copytree(folder, f"runs/{name}")
    write_piece(Path("one.mid"), 5)
    assert call_ok("eval", "--data", "one.mid").out.startswith("runs/music (")
    wrong = call("eval", "runs/speech", "--data", "one.mid")
    assert wrong.err == (
        "seqmodel: one.mid is music, but runs/speech was trained on audio: name another run or "
        "other files\n"
    )
