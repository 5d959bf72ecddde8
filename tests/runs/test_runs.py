"""Run folders, and zips from strangers: found and loaded, or an error of one line."""

import errno
import os
import re
import shutil
import struct
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import refusals as errors
from allocation import peak_of
from refusals import refused

from seqmodel.errors import SeqmodelError
from seqmodel.runs import folder as runs
from seqmodel.runs.content import newest_run, unfinished
from seqmodel.runs.files import BEST, CARD, METRICS, checkpoint_of, newest_resumable_run
from seqmodel.runs.folder import RUN_FOLDER, load_run, new_run_folder, read_metrics, stored_run


def test_nll_takes_any_zeros_and_ones_of_the_runs_shape(run, rolls):
    """Without dropout. Guards against torch's own error for a roll of the wrong width."""
    assert not run.model.training
    roll = rolls["valid"][2]
    nats = run.nll(roll)
    assert (nats.shape, nats.dtype) == ((26,), np.float64)
    for dtype in (bool, np.float64):
        np.testing.assert_array_equal(run.nll(roll.astype(dtype)), nats)
    assert run.nll(roll[:1]) == pytest.approx(nats[:1], rel=1e-6)
    for shape in ((5, 50), (0, 88), (88,)):
        with pytest.raises(ValueError, match="frames must be"):
            run.nll(np.zeros(shape))
    metres = run.frame.metres({})
    np.testing.assert_array_equal(run.nll(roll, metres), nats)
    for wrong in (metres[:4], np.stack([metres] * 2)):
        with pytest.raises(ValueError, match=r"metres must be \(256,\), not \("):
            run.nll(roll, wrong)


@pytest.mark.parametrize("number", [127, 127 / 128, -1, -32768, np.inf, np.nan])
def test_nll_refuses_velocities_and_16_bit_samples(run, audio_run_folder, number):
    """Their nats looked like any others; those of sound are of samples from -1 to 1."""
    with pytest.raises(ValueError, match="frames must be"):
        run.nll(np.full((5, 88), number))
    audio = load_run(audio_run_folder)
    size = audio.frame.frame_size
    assert np.isfinite(audio.nll(np.linspace(-1, 0.99, 3 * size).reshape(3, size))).all()
    if abs(number) > 1:
        with pytest.raises(ValueError, match="frames must be"):
            audio.nll(np.full((3, size), number))


GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def test_a_run_that_still_trains_is_taken_only_if_no_other_has_finished(tmp_path, run_folder):
    """A sample once came from the second epoch of a run that another process was training."""
    stopped = GOLDEN / "stopped"
    for k, (name, folder) in enumerate((("older", run_folder), ("a", run_folder), ("b", stopped))):
        shutil.copytree(folder, tmp_path / name)
        shutil.copy(run_folder / runs.BEST, tmp_path / name)
        os.utime(tmp_path / name / runs.BEST, (1000 + k, 1000 + k))
    a, b = tmp_path / "a", tmp_path / "b"
    again = "`seqmodel train --resume --run {}` continues it".format
    unfinished = f"{b} has not finished training: {again(b)}"
    assert newest_run(tmp_path) == (a, f"{unfinished}; using {a}")
    assert newest_run(tmp_path, {"music"}) == (a, f"{unfinished}; using {a}")
    os.utime(a / runs.BEST, (2000, 2000))
    assert newest_run(tmp_path) == (a, "")
    for name in ("older", "a"):
        shutil.copy(stopped / runs.LAST, tmp_path / name)
    assert newest_run(tmp_path) == (a, "")
    assert stored_run(a).remark == f"{a} has not finished training: {again(a)}"
    (a / runs.LAST).write_bytes(b"")
    says = f"{a} may not have finished training: {a / runs.LAST} is damaged"
    assert stored_run(a).remark.startswith(says)


def test_the_newest_run_of_a_medium_is_found_behind_newer_ones(
    tmp_path, run_folder, audio_run_folder
):
    """Guards against a MIDI file refused because the last thing trained was speech."""
    assert newest_run(tmp_path / "runs") is None
    (tmp_path / "begun").mkdir()  # without a model yet
    folders = {"old": run_folder, "music": run_folder, "audio": audio_run_folder}
    for k, (name, folder) in enumerate(folders.items()):
        (tmp_path / name).mkdir()
        shutil.copy(folder / runs.BEST, tmp_path / name)
        os.utime(tmp_path / name / runs.BEST, (1000 + k, 1000 + k))
    assert newest_run(tmp_path)[0].name == "audio"
    assert newest_run(tmp_path, {"audio"})[0].name == "audio"
    assert newest_run(tmp_path, {"audio", "music"})[0].name == "audio"
    assert newest_run(tmp_path, {"music"})[0].name == "music"
    shutil.rmtree(tmp_path / "audio")
    assert newest_run(tmp_path, {"audio"}) is None
    (tmp_path / "music" / runs.BEST).write_bytes(b"x")
    refused(lambda: newest_run(tmp_path, {"music"}), "music/best.safetensors is damaged")


def begun(folder, second, *names, config="learning_rate_draws: 0"):
    """A folder as training leaves it, last written to at `second`."""
    for name in (runs.CONFIG, *names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(config)
        os.utime(folder / name, (second, second))


def test_the_newest_run_to_resume_may_have_no_best_epoch_yet(tmp_path):
    """A run stopped in its first epoch used to be passed over for one finished days ago."""
    refused(lambda: newest_resumable_run(tmp_path), "no run in", "seqmodel train")
    begun(tmp_path / "finished", 1000, runs.LAST, runs.BEST)
    begun(tmp_path / "stopped", 2000, runs.LAST)
    begun(tmp_path / "nothing-saved", 3000)
    begun(tmp_path / "not-ours", 3000, config="{")
    assert newest_resumable_run(tmp_path).name == "stopped"
    assert newest_run(tmp_path)[0].name == "finished"
    begun(tmp_path / "search", 2500, "draws/3/last.safetensors")  # where it saves everything
    os.utime(tmp_path / "search" / runs.CONFIG, (900, 900))
    assert newest_resumable_run(tmp_path).name == "search"
    begun(tmp_path / "just-begun", 3000, config="learning_rate_draws: 10")
    assert newest_resumable_run(tmp_path).name == "just-begun"


def test_the_newest_run_of_a_dataset_is_resumed(tmp_path):
    """`train DATA --resume` used to take the newest run of any dataset."""
    for second, name, data in ((1000, "old", "a"), (2000, "new", "a"), (3000, "other", "b")):
        begun(tmp_path / name, second, runs.LAST, config=f"data: {tmp_path / data}")
    assert newest_resumable_run(tmp_path, tmp_path / "a").name == "new"
    assert newest_resumable_run(tmp_path).name == "other"
    refused(lambda: newest_resumable_run(tmp_path, tmp_path / "c"), "there is no run or dataset")
    (tmp_path / "c").mkdir()
    refused(lambda: newest_resumable_run(tmp_path, tmp_path / "c"), "no run on", "--run")


def test_an_interrupted_search_is_told_how_to_go_on(tmp_path):
    """Where `--force`, which would replace it, was all the advice."""
    (tmp_path / runs.DRAWS / "0").mkdir(parents=True)
    again = f"`seqmodel train --resume --run {tmp_path}` continues it"
    refused(lambda: checkpoint_of(tmp_path), "has no checkpoint", again)
    assert unfinished(tmp_path) == f"{tmp_path} has not finished its search: {again}"


# ---- what --force may replace -------------------------------------------------------------------


def test_a_run_folder_is_recognised_by_what_training_wrote(tmp_path, run_folder):
    # The last is a search killed before its first checkpoint.
    for kept in ((runs.LAST,), (runs.BEST, runs.METRICS), (runs.CONFIG,)):
        folder = tmp_path / kept[0]
        folder.mkdir()
        for name in kept:
            shutil.copy(run_folder / name, folder)
        RUN_FOLDER.check_target(folder, force=True)
    shutil.copytree(run_folder, tmp_path / "whole")
    RUN_FOLDER.check_target(tmp_path / "whole", force=True)
    shutil.copytree(run_folder, tmp_path / "whole" / "draws" / "0")
    RUN_FOLDER.check_target(tmp_path / "whole", force=True)


CONFIGS = ["", "unit: gru\nhidden: 30\n", "logging: {level: debug}\n", "\x00", "- a\n"]


def test_what_training_did_not_write_is_kept(tmp_path, run_folder):
    """Half of all programs have a config.yaml, and one written by hand is work to keep, too."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / runs.BEST).write_bytes(b"weights of another program")
    for config in CONFIGS:
        (tmp_path / "d" / runs.CONFIG).write_text(config)
        refused(lambda: RUN_FOLDER.check_target(tmp_path / "d", force=True), "is not a run folder")
    shutil.copytree(run_folder, tmp_path / "run")
    for name in ("thesis.tex", "draws/thesis.tex", "draws/0/draws.jsonl", "0"):
        foreign = tmp_path / "run" / name
        foreign.parent.mkdir(parents=True, exist_ok=True)
        foreign.touch()
        says = f"run holds {name}, which is not part of a run folder"
        refused(lambda: RUN_FOLDER.check_target(tmp_path / "run", force=True), says, "move it else")
        foreign.unlink()


def test_new_run_folders_never_clash(tmp_path):
    names = [new_run_folder("data", "lstm", tmp_path / "runs").name for _ in range(3)]
    assert names == ["data-lstm-1", "data-lstm-2", "data-lstm-3"]
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "runs"
    refused(lambda: new_run_folder("data", "lstm", below), str(below), "run folder")


def test_metrics_are_read_or_reported_as_damaged(run_folder, tmp_path):
    assert [line["epoch"] for line in read_metrics(run_folder)] == list(range(1, 31))
    assert read_metrics(tmp_path) == []
    (tmp_path / runs.METRICS).write_text('{"epoch": 1}\n{"epo')
    says = f"{tmp_path / runs.METRICS} is damaged: line 1: valid_nats_per_frame is missing; delete"
    refused(lambda: read_metrics(tmp_path), says, f"`seqmodel train --resume --run {tmp_path}`")
    good = (run_folder / runs.METRICS).read_text().splitlines()
    for wrong in ("[" * 9999, "3", good[1].replace(": 2,", ": " + "1" * 5001 + ","), good[1][:-1]):
        (tmp_path / runs.METRICS).write_text(f"{good[0]}\n{wrong}\n")
        refused(lambda: read_metrics(tmp_path), "is damaged: line 2: ")
    for figure in ("valid_accuracy", "updates", "seconds", "valid_nats_per_frame"):
        for value in ("null", '"text"', "NaN", "Infinity", "1" + "0" * 400, "true"):
            wrong = re.sub(f'("{figure}": )[^,}}]*', rf"\g<1>{value}", good[1])
            (tmp_path / runs.METRICS).write_text(f"{good[0]}\n{wrong}\n")
            refused(lambda: read_metrics(tmp_path), "is damaged: line 2: ")


CENTRAL, LOCAL = b"PK\1\2", b"PK\3\4"


@pytest.fixture(scope="module")
def weights(run_folder):
    return (run_folder / BEST).read_bytes()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in" / "run.zip"


@pytest.fixture
def make(path, weights):
    """A function that writes run.zip: the weights, and further members (name or ZipInfo, bytes)."""

    def make(*more, best=weights, packed=zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", packed) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names given twice
            for name, content in (((BEST, best),) if best is not None else ()) + more:
                archive.writestr(name, content)
        return path

    return make


def refused_twice(path, *parts):
    """Both ways in refuse it, and leave nothing behind."""
    before = sorted(path.parent.parent.rglob("*"))
    errors.refused(lambda: load_run(path), path, *parts)
    errors.refused(lambda: read_metrics(path), path, *parts)
    assert sorted(path.parent.parent.rglob("*")) == before


FOREIGN = [f"../{BEST}", f"/tmp/{BEST}", f"run/{BEST}", "run/", "payload.py", "a\nb", "x" * 5000]


@pytest.mark.parametrize(
    ("members", "options", "says"),
    [
        *(([(name, b"x")], {}, "it holds '") for name in FOREIGN),
        ([(BEST, b"x")], {}, "it holds best.safetensors twice"),
        ([(CARD, b"hello")], {"best": None}, "it holds no best.safetensors"),
        ([], {"packed": zipfile.ZIP_LZMA}, "best.safetensors is compressed in another way"),
    ],
)
def test_what_export_never_writes_is_refused(make, members, options, says):
    """Paths that lead elsewhere, files that nobody expects, LZMA, which can ask for gigabytes."""
    path = make(*members, **options)
    refused_twice(path, "is not a zip that `seqmodel export` wrote: ", says)


def test_names_in_a_zip_are_compared_beyond_a_zero_byte(make):
    """zipfile ends names there, so that two programs would see different files."""
    path = make((f"{CARD}_.py", b"x"))
    path.write_bytes(path.read_bytes().replace(f"{CARD}_".encode(), f"{CARD}\0".encode()))
    refused_twice(path, "it holds 'README.md\\x00.py'")


def patched(path, signature, at, form, value, which=0):
    """Change a field of the header of member `which`, counted from the last."""
    content = bytearray(path.read_bytes())
    place = len(content)
    for _ in range(which + 1):
        place = content.rindex(signature, 0, place)
    struct.pack_into(form, content, place + at, value)
    path.write_bytes(content)
    return path


def test_a_bomb_is_refused_before_it_is_unpacked(make):
    """50 MB of zeros in 50 kB, also if it claims to be small: zipfile unpacks, then compares."""
    path = make((METRICS, bytes(50_000_000)))
    assert path.stat().st_size < 75_000
    says = "bytes claim to hold 50,"
    assert peak_of(lambda: errors.refused(lambda: read_metrics(path), says)) < 2_000_000
    patched(patched(path, LOCAL, 22, "<I", 10), CENTRAL, 24, "<I", 10)
    says = "run.zip is damaged (cut short or changed)"
    assert peak_of(lambda: errors.refused(lambda: read_metrics(path), says)) < 2_000_000


def test_sizes_in_a_zip_are_what_they_claim_and_no_more_than_any_stream_packs(make):
    """Members that share their bytes count each time."""
    refused_twice(patched(make(), CENTRAL, 24, "<I", 2**32 - 2), "bytes claim to hold")
    path = make((METRICS, bytes(80_000)), (CARD, bytes(80_000)), best=bytes(80_000))
    refused_twice(path, "bytes claim to hold 240,000")
    path = patched(make((METRICS, b"{}\n" * 100)), CENTRAL, 24, "<I", 400)
    errors.refused(lambda: read_metrics(path), "is damaged")


def test_a_zip_cut_short_anywhere_is_refused(make):
    path = make()
    content = path.read_bytes()
    for cut in [*range(4, 60, 5), *range(60, len(content), 601), *range(-60, 0, 5)]:
        path.write_bytes(content[:cut])
        errors.refused(lambda: load_run(path), "run.zip is damaged (cut short or changed)")


def test_a_changed_byte_of_a_zip_changes_nothing_or_is_refused(make, weights, run, rolls):
    content = make(best=weights, packed=zipfile.ZIP_STORED).read_bytes()
    expected, path = run.nll(rolls["valid"][1]), make()
    for place in [*range(0, 80, 3), *range(80, len(content), 997), *range(-90, 0, 3)]:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with suppress(SeqmodelError):
            assert (load_run(path).nll(rolls["valid"][1]) == expected).all(), place


def test_what_is_no_zip_is_no_run(path):
    for content in (b"", b"P", b"hello\n", b"PK\5\6" + bytes(18), b"\x89PNG\r\n\x1a\n"):
        path.write_bytes(content)
        refused_twice(
            path, "is not a run: name a run folder, or a zip that `seqmodel export` wrote"
        )


def test_a_zip_on_a_broken_disk_is_not_called_damaged(path, monkeypatch):
    path.write_bytes(b"PK")
    broken = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr("seqmodel.runs.files.open_input", broken)
    refused_twice(path, f"cannot read {path}: input/output error")


def test_a_pipe_does_not_block(path):
    os.mkfifo(path)
    errors.refused(lambda: load_run(path), "there is no run")
