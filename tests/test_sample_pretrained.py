"""The bundled runs: small, as good as stated, and made by the documented commands."""

import json
import re
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from calling import call_ok

import seqmodel
from seqmodel.data.bundled import PREPARED, PRETRAINED, pretrained_run
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.runs.files import BEST, CARD, CONFIG, METRICS

ROOM = Path(__file__).resolve().parent.parent / "sample_data"


def members(medium):
    with zipfile.ZipFile(pretrained_run(medium)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_they_are_small():
    """Guards the wheel and every clone."""
    sizes = [path.stat().st_size for path in (ROOM / "pretrained").iterdir()]
    assert len(sizes) == len(PRETRAINED)
    assert sum(sizes) < 600_000


@pytest.mark.parametrize("medium", PRETRAINED)
def test_they_score_what_was_recorded(medium, tmp_path, monkeypatch):
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
def test_they_were_trained_as_documented(medium, tmp_path, monkeypatch):
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
