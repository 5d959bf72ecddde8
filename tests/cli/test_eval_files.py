"""`eval --data` with media files, and the figures of single pieces and frames."""

import csv
import io
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from calling import PNG, call_ok, call_refused, told, write_piece

from seqmodel.data.dataset import open_dataset
from seqmodel.runs.folder import load_run


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


def test_without_a_run_the_newest_of_the_medium_is_taken(run, audio_run_folder):
    for name, folder in (("music", run), ("speech", audio_run_folder)):
        shutil.copytree(folder, f"runs/{name}")
    write_piece(Path("one.mid"), 5)
    assert call_ok("eval", "--data", "one.mid").out.startswith("runs/music (")
    says = "one.mid is music, but runs/speech was trained on audio: name another run or other files"
    call_refused("eval", "runs/speech", "--data", "one.mid", says=says, status=2)
