"""The contents of files, datasets and runs, against mido, NumPy and what was put in."""

import shutil
from functools import partial

import numpy as np
import soundfile
from refusals import refused

from seqmodel.media.audio.inspection import inspect_audio
from seqmodel.report.inspection import inspect_run, kind_of
from seqmodel.runs import folder as runs


def test_silence_has_no_level(tmp_path):
    """The logarithm of 0 is not finite, and JSON cannot hold it."""
    soundfile.write(tmp_path / "a.wav", np.zeros(8), 8000)
    values = inspect_audio(tmp_path / "a.wav", {}, tmp_path / "plot.png")
    assert (values["peak"], values["rms_db"], values["clipped_samples"]) == (0.0, None, 0)
    assert (values["frames"], values["dtype"]) == (0, "int16")


def test_a_run_without_an_epoch_can_be_inspected(run_folder, tmp_path):
    """Also if the best checkpoint, which is written first, is there without its line of metrics."""
    shutil.copy(run_folder / runs.CONFIG, tmp_path)
    expected = {"path": str(tmp_path), "kind": "run", "epochs": 0, "remark": ""}
    assert inspect_run(tmp_path, None) == expected
    (tmp_path / runs.DRAWS).mkdir()
    assert "has not finished its search" in inspect_run(tmp_path, None)["remark"]
    draw = partial(inspect_run, tmp_path, tmp_path / "plot.png")
    refused(draw, "no complete epoch to draw yet")
    shutil.copy(run_folder / runs.BEST, tmp_path)
    values = inspect_run(tmp_path, None)
    assert (values["epochs"], "best" in values, "model" in values) == (0, False, True)


def test_kinds_are_told_apart(run_folder, dataset, tmp_path):
    for name in ("a.mid", "a.FLAC", "a.NPY", "SONG.MID", "text.txt"):
        (tmp_path / name).touch()
    for path, kind in (
        *((run_folder, "run"), (dataset.folder, "dataset"), (tmp_path / "a.mid", "midi")),
        *((tmp_path / "a.FLAC", "audio"), (tmp_path / "a.NPY", "roll")),
        (tmp_path / "SONG.MID", "midi"),
    ):
        assert kind_of(path) == kind
    for path in (tmp_path, tmp_path / "text.txt"):
        refused(lambda path=path: kind_of(path), f"{path} is neither")
    refused(lambda: kind_of(tmp_path / "nowhere"), "no such file")
