"""Runs as zips, wherever a run is taken, and the bundled ones, taken where there is no other."""

import json
import shutil
from pathlib import Path

import pytest
from calling import call_ok, call_refused, told

from seqmodel.cli import job
from seqmodel.data import bundled

BUNDLED = bundled.sample_sources().parent / "pretrained"


@pytest.fixture
def zipped(run):
    """The run as ./r.zip, made where its dataset is not; a zip of it is the same again."""
    call_ok("export", run, "r.zip", "-q")
    call_ok("export", "r.zip", "again.zip", "-q")
    assert Path("again.zip").read_bytes() == Path("r.zip").read_bytes()
    Path("again.zip").unlink()
    return "r.zip"


def test_a_zip_samples_scores_and_shows_as_its_folder(call, run, data, zipped):
    """Guards --best-of too, which reads the figures of training."""
    options = ("--length", 12, "--best-of", 2)
    of_zip = call_ok("sample", "a.mid", "--run", zipped, *options)
    of_run = call_ok("sample", "b.mid", "--run", run, *options)
    assert of_zip.err == of_run.err.replace("b.mid", "a.mid").replace(str(run), zipped)
    assert Path("a.mid").read_bytes() == Path("b.mid").read_bytes()
    ours, theirs = (told("eval", each, "--data", data) for each in (zipped, run))
    assert ours == {**theirs, "run": zipped}
    ours, theirs = (call_ok("inspect", each).out.splitlines() for each in (zipped, run))
    assert ours[0] == "r.zip: run of 2 epochs"
    assert (ours[1:-2], ours[-1]) == (theirs[1:-2], theirs[-1])
    assert ours[-2] == "  trained on data, 88 notes, 4 steps per beat"
    assert "  unchanged: best.safetensors\n" in call_ok("inspect", zipped, "--verify").out
    assert call("inspect", zipped, "--plot", "c.png").err == "drawn to c.png\n"
    call_ok("report", zipped, run, "--out", "r.html", "--samples", 0)
    assert "r.zip" in Path("r.html").read_text()


def test_another_dataset_of_the_same_name_gives_a_zip_no_baselines(call, data, zipped):
    """A zip has only the name of its data: trivial models were fitted to whatever had that name."""
    call_ok("sample", "a.mid", "--run", zipped, "--length", 100)
    call_ok("prepare", "a.mid", "--out", "data", "--no-onsets", "-q")
    assert told("eval", zipped, "--data", "a.mid")["baselines"] == {}
    shutil.rmtree("data")
    shutil.copytree(data, "data")
    assert told("eval", zipped, "--data", "a.mid")["baselines"]


def test_training_starts_from_a_zip_but_never_goes_on_in_it(data, run, zipped):
    """Guards the zip's bytes too."""
    before = Path(zipped).read_bytes()
    small = ("--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end", "-q")
    train = ("train", data, *small)
    one, other = (
        told(*train, "--init-from", start, "--run", f"{k}")["best"]
        for k, start in enumerate((zipped, run))
    )
    assert one["valid_nats_per_frame"] == other["valid_nats_per_frame"]
    says = "r.zip is a file, which holds no training state: start from its weights with --init-from"
    call_refused("train", "--resume", "--run", zipped, says=f"{says} r.zip")
    says = "r.zip is not a run folder, so it is never replaced; choose another path"
    call_refused(*train, "--force", "--run", zipped, says=says)
    assert Path(zipped).read_bytes() == before


@pytest.mark.parametrize(
    "command",
    ["eval", "sample o.mid --run", "report", "inspect", "export", "train --run r --init-from"],
)
def test_a_strangers_zip_is_refused_in_one_line(zipped, here, command):
    Path(zipped).write_bytes(Path(zipped).read_bytes()[:-30])
    words = (*command.split(), zipped, *["o.zip"] * (command == "export"))
    call_refused(*words, says="r.zip is damaged (cut short or changed); get it again")
    assert {path.name for path in here.iterdir()} <= {"r.zip", "runs"}


# ---- without any run ----------------------------------------------------------------------------


def test_music_and_speech_before_any_training(call, here):
    """Guards the first command that a newcomer types, and the choice of the medium."""
    music, speech = BUNDLED / "music.zip", BUNDLED / "speech.zip"
    assert call_ok("sample", "out.mid", "--length", 40, "--no-end").err == (
        f"no run of music in runs/: using {music}, trained on the bundled music\n"
        f"out.mid: 40 frames from {music}, cut off at the limit\n"
    )
    assert call_ok("sample", "out.wav", "--seconds", 0.1).err == (
        f"no run of audio or music in runs/: using {speech}, trained on the bundled speech\n"
        f"out.wav: 0.1 s (800 samples at 8,000 Hz) from {speech}\n"
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


def test_eval_without_any_run(call, monkeypatch):
    """Guards the bundled run's data, prepared on first use as `train` does."""
    scored = []
    monkeypatch.setattr(
        "seqmodel.evaluation.evaluate.evaluate",
        lambda run, dataset, name, **_: scored.append(dataset[name]) or {"of": dataset.folder.name},
    )
    result = call_ok("eval", "--json")
    assert result.err.startswith("no run in runs/: using ")
    assert (json.loads(result.out), len(scored[0])) == ({"of": "sample-music"}, 20)
    assert [path.name for path in Path("runs").iterdir()] == ["sample-music"]


def test_a_run_without_onsets_goes_on_from_music_without(call, run, monkeypatch):
    """Guards earlier runs: by default the music now has onsets."""
    monkeypatch.setattr(job.Job, "_train", lambda *_: None)
    small = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--epochs", 1, "--run", "r", "-q")
    call_ok("train", "--init-from", run, *small)
    assert [path.name for path in Path("runs").iterdir()] == ["sample-data"]


def test_an_installation_without_the_bundled_runs_says_so(monkeypatch, here):
    monkeypatch.setattr(bundled, "__file__", str(here / "seqmodel" / "data" / "bundled.py"))
    says = "this installation has no sample_data/pretrained/music.zip in or next to "
    call_refused("sample", "o.mid", says=f"{says}{here}/seqmodel; name a run")
