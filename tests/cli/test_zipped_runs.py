"""Runs as zips, wherever a run is taken, and the bundled ones, taken where there is no other."""

import json
import shutil
from pathlib import Path

import pytest
from calling import call_ok

from seqmodel.data import bundled

BUNDLED = bundled.sample_sources().parent / "pretrained"


@pytest.fixture
def zipped(call, run):
    """The run as ./r.zip, made where its dataset is not; a zip of it is the same again."""
    result = call("export", run, "r.zip")
    size = Path("r.zip").stat().st_size
    said = f"r.zip: zip of {run}, {size / 1000:,.0f} kB\n"
    assert (result.status, result.out, result.err) == (0, "", said)
    call_ok("export", "r.zip", "again.zip", "-q")
    assert Path("again.zip").read_bytes() == Path("r.zip").read_bytes()
    Path("again.zip").unlink()
    return "r.zip"


def test_a_zip_samples_and_scores_as_its_folder(call, run, data, zipped):
    """Guards `sample`, `eval` and --best-of, which reads the figures of training."""
    options = ("--length", 12, "--best-of", 2)
    of_zip = call("sample", "a.mid", "--run", zipped, *options)
    of_run = call("sample", "b.mid", "--run", run, *options)
    assert of_zip.status == 0
    assert of_zip.err == of_run.err.replace("b.mid", "a.mid").replace(str(run), zipped)
    assert Path("a.mid").read_bytes() == Path("b.mid").read_bytes()
    ours, theirs = (
        json.loads(call_ok("eval", each, "--data", data, "--json").out) for each in (zipped, run)
    )
    assert ours == {**theirs, "run": zipped}


def test_a_zip_is_inspected_and_reported(call, run, zipped):
    ours, theirs = (call_ok("inspect", each).out.splitlines() for each in (zipped, run))
    assert ours[0] == "r.zip: run of 2 epochs"
    assert ours[1:-2] == theirs[1:-2]
    assert ours[-2] == "  trained on data, 88 notes, 4 steps per beat"
    assert ours[-1] == theirs[-1]
    assert "  unchanged: best.safetensors\n" in call_ok("inspect", zipped, "--verify").out
    assert call("inspect", zipped, "--plot", "c.png").err == "drawn to c.png\n"
    result = call("report", zipped, run, "--out", "r.html", "--samples", 0)
    assert result.status == 0, result.err
    assert "r.zip" in Path("r.html").read_text()


def test_training_starts_from_a_zip_but_never_goes_on_in_it(call, data, run, zipped):
    """Guards the zip's bytes too."""
    before = Path(zipped).read_bytes()
    small = ("--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end", "--json")
    first, second = (
        json.loads(call_ok("train", data, *small, "--init-from", each, "--run", name).out)["best"]
        for each, name in ((zipped, "a"), (run, "b"))
    )
    assert first["valid_nats_per_frame"] == second["valid_nats_per_frame"]
    result = call("train", "--resume", "--run", zipped)
    assert (result.status, result.err) == (
        1,
        "seqmodel: r.zip is a file, which holds no training state: start from its weights with "
        "--init-from r.zip\n",
    )
    result = call("train", data, *small, "--run", zipped, "--force")
    assert (result.status, result.err) == (
        1,
        "seqmodel: r.zip is not a run folder, so it is never replaced; choose another path\n",
    )
    assert Path(zipped).read_bytes() == before


def test_a_strangers_zip_is_refused_in_one_line(call, zipped, here):
    """Guards every command that takes a run."""
    content = Path(zipped).read_bytes()
    Path(zipped).write_bytes(content[:-30])
    before = sorted(here.rglob("*"))
    for command in (
        ("eval", zipped),
        ("sample", "o.mid", "--run", zipped),
        ("report", zipped),
        ("inspect", zipped),
        ("export", zipped, "o.zip"),
        ("train", "--init-from", zipped, "--hidden", 4, "--model", "frame-wise", "--run", "r"),
    ):
        result = call(*command)
        said = "seqmodel: r.zip is damaged (cut short or changed); get it again\n"
        assert (result.status, result.out, result.err) == (1, "", said), command
        assert [path for path in sorted(here.rglob("*")) if "runs" not in path.parts] == before


# ---- without any run ----------------------------------------------------------------------------


def test_music_and_speech_before_any_training(call, here):
    """Guards the first command that a newcomer types, and the choice of the medium."""
    music, speech = BUNDLED / "music.zip", BUNDLED / "speech.zip"
    result = call("sample", "out.mid", "--length", 40, "--no-end")
    assert (result.status, result.err) == (
        0,
        f"no run of music in runs/: using {music}, trained on the bundled music\n"
        f"out.mid: 40 frames from {music}, cut off at the limit\n",
    )
    result = call("sample", "out.wav", "--seconds", 0.1)
    assert (result.status, result.err) == (
        0,
        f"no run of audio or music in runs/: using {speech}, trained on the bundled speech\n"
        f"out.wav: 0.1 s (800 samples at 8,000 Hz) from {speech}\n",
    )
    for name, taken in (("o.mp3", music), ("o.png", music), ("o.flac", speech)):
        assert f"using {taken}, " in call_ok("sample", name, "--seconds", 0.5).err
    assert call_ok("sample", "q.mid", "--length", 9, "-q").err == ""
    assert sorted(path.name for path in here.iterdir()) == sorted(
        ["out.mid", "out.wav", "o.mp3", "o.png", "o.flac", "q.mid"]
    )


def test_a_run_of_ones_own_comes_first(call, run):
    """Guards against the bundled run taken in place of the one just trained."""
    shutil.copytree(run, "runs/mine")
    for name in ("o.mid", "o.wav"):
        said = call("sample", name, "--length", 9).err
        assert said.startswith(f"{name}: 9 frames")
        assert said.endswith(" from runs/mine\n")
    result = call("sample", "-", "--format", "raw", "--seconds", 0.1)  # no music
    assert result.err.startswith("no run of audio in runs/: using ")
    assert len(result.raw) == 1600


def test_eval_without_any_run(call):
    """Guards the bundled run's data, prepared on first use as `train` does."""
    result = call("eval", "--json")
    assert result.status == 0, result.err
    assert result.err.startswith("no run in runs/: using ")
    values = json.loads(result.out)
    assert (values["pieces"], Path(values["data"]).name) == (20, "sample-music")
    assert [path.name for path in Path("runs").iterdir()] == ["sample-music"]


def test_a_run_without_onsets_goes_on_from_music_without(call, run):
    """Guards earlier runs: by default the music now has onsets."""
    small = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--epochs", 1, "--run", "r", "-q")
    call_ok("train", "--init-from", run, *small)
    assert [path.name for path in Path("runs").iterdir()] == ["sample-data"]


def test_an_installation_without_the_bundled_runs_says_so(call, monkeypatch, here):
    monkeypatch.setattr(bundled, "__file__", str(here / "seqmodel" / "data" / "bundled.py"))
    result = call("sample", "o.mid")
    assert (result.status, result.err) == (
        1,
        "seqmodel: this installation has no sample_data/pretrained/music.zip in or next to "
        f"{here}/seqmodel; name a run\n",
    )
