"""The sample music and speech, and the bundled runs: made by the documented commands."""

import importlib
import json
import re
import subprocess
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

import mido
import numpy as np
import pytest
import soundfile
import yaml
from calling import call_ok
from midi_tracks import sounding

import seqmodel
from seqmodel.data.bundled import PREPARED, PRETRAINED, pretrained_run
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.runs.files import BEST, CARD, CONFIG, METRICS

ROOM = Path(__file__).resolve().parent.parent / "sample_data"
EIGHTH = 240  # ticks
RATE = 8000
SPLITS = {"music": (100, 20, 20), "speech": (14, 3, 3)}
"""Pieces in train, valid and test."""
MOST = {"music": 400_000, "speech": 1_000_000}
"""Bytes."""


def notes(path):
    """A set of (voice, start and end in eighths, pitch less the first one's of all)."""
    found = []
    for voice, track in enumerate(mido.MidiFile(path).tracks[1:]):
        for first, last, pitch, _ in sounding(track):
            found.append((voice, first // EIGHTH, last // EIGHTH, pitch))
    return frozenset((v, begin, end, pitch - found[0][3]) for v, begin, end, pitch in found)


def samples(path):
    """The bytes around them carry the encoder's version."""
    info = soundfile.info(path)
    assert (info.samplerate, info.channels, info.subtype) == (RATE, 1, "PCM_16")
    return soundfile.read(path, dtype="int16")[0].tobytes()


READ = {"music": notes, "speech": samples}


@pytest.fixture(scope="module", params=SPLITS)
def sample(request):
    """Its name, and path within it -> piece."""
    kind = request.param
    paths = [path for path in (ROOM / kind).rglob("*.*") if path.is_file()]
    return kind, {path.relative_to(ROOM / kind): READ[kind](path) for path in paths}


def test_the_script_writes_what_is_committed(sample, tmp_path):
    """Guards against a script changed without its sample, and unseeded randomness."""
    kind, pieces = sample
    subprocess.run([sys.executable, ROOM / f"make_{kind}.py", tmp_path], check=True)
    made = {
        path.relative_to(tmp_path / kind): path
        for path in (tmp_path / kind).rglob("*")
        if path.is_file()
    }
    assert made.keys() == pieces.keys()
    for name, path in made.items():
        if kind == "music":
            assert path.read_bytes() == (ROOM / kind / name).read_bytes()
        else:
            assert samples(path) == pieces[name]


def test_enough_pieces_in_little_space_and_none_twice(sample):
    """Guards against a lost split, a corpus too large for the wheel, and names that draw the same
    music, even transposed, or babble: valid would not be unseen."""
    kind, pieces = sample
    assert sum((ROOM / kind / name).stat().st_size for name in pieces) < MOST[kind]
    counts = [sum(name.parent.name == s for name in pieces) for s in ("train", "valid", "test")]
    assert (tuple(counts), sum(counts)) == (SPLITS[kind], len(pieces))
    assert len({*pieces.values()}) == len(pieces)
    if kind == "speech":
        seconds = [len(piece) / 2 / RATE for piece in pieces.values()]
        assert 3.5 <= min(seconds) <= max(seconds) <= 6
        assert np.sum(seconds) == pytest.approx(89, rel=0.05)


def test_loading_a_run_does_not_load_torchs_compiler():
    """Guards against operations on the meta device that import it: each command took 1 s more."""
    code = (
        f"import sys, seqmodel; seqmodel.load_run({str(pretrained_run('music'))!r})\n"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_pretrained_run_has_seen_nothing_of_valid_or_test(tmp_path, monkeypatch):
    """In any key. Guards its figures, which are of valid; sample_data/README.md has the command.

    Every 25th of its pieces tells, since each is drawn by its name alone.
    """
    (count,) = re.findall(r"make_music\.py more (\S+) ", (ROOM / "README.md").read_text())
    monkeypatch.syspath_prepend(ROOM)
    make_music, train = importlib.import_module("make_music"), set()
    for number in range(1, int(count) + 1, 25):
        make_music.compose(f"train/{number:03}").save(path := tmp_path / f"{number:03}.mid")
        train.add(notes(path))
    assert len(train) == 40
    others = [ROOM / "music" / split for split in ("valid", "test")]
    assert not train & {notes(path) for folder in others for path in folder.iterdir()}


def members(medium):
    with zipfile.ZipFile(pretrained_run(medium)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_bundled_runs_are_small():
    """Guards the wheel and every clone."""
    sizes = [path.stat().st_size for path in (ROOM / "pretrained").iterdir()]
    assert len(sizes) == len(PRETRAINED)
    assert sum(sizes) < 600_000


@pytest.mark.parametrize("medium", PRETRAINED)
def test_the_bundled_runs_score_what_was_recorded(medium, tmp_path, monkeypatch):
    """Guards every figure about them: a change of model or data would make them another's."""
    monkeypatch.chdir(tmp_path)
    run = seqmodel.load_run(pretrained_run(medium))
    recorded = json.loads(members(medium)[METRICS].splitlines()[run.epoch - 1])
    scored = likelihood(run.model, run.dataset()["valid"], batch_size=32).to_json()
    for name in ("nats_per_frame", "accuracy", "bits_per_sample"):
        if name in scored:
            assert scored[name] == pytest.approx(recorded[f"valid_{name}"], abs=1e-4)
    figure = f"{scored['nats_per_frame']:.4f}"
    assert figure in (ROOM / "README.md").read_text()
    assert figure in members(medium)[CARD].decode()


@pytest.mark.parametrize("medium", PRETRAINED)
def test_the_bundled_runs_were_trained_as_documented(medium, tmp_path, monkeypatch):
    """Guards against settings changed without the runs, or runs without the commands.

    Of the music only the last epoch: the run that it goes on from does not come along.
    """
    sample = PRETRAINED[medium]
    text = (ROOM / "README.md").read_text().replace("\\\n", "")
    (line,) = (line for line in text.splitlines() if line.endswith(f"{sample}.zip"))
    commands = line.split(" && ")
    (train,) = (command for command in commands if command.startswith("seqmodel train "))
    options = re.sub(r" --run \S+", " --print-config", train).split()[1:]
    monkeypatch.chdir(tmp_path)
    for command in commands[: commands.index(train)]:
        call_ok(*(word.replace("sample_data/", f"{ROOM}/") for word in command.split()[1:]))
    printed = call_ok(*options).out
    stored = asdict(seqmodel.load_run(pretrained_run(medium)).config)
    without_marks = {"by_part": False, "nearby": False}  # without effect; the runs are older
    assert stored == {**yaml.safe_load(printed), **without_marks, "data": PREPARED[sample]}
    assert [*members(medium)] == [CARD, CONFIG, BEST, METRICS]
