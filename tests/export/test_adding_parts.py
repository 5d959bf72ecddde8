"""Adding an encoder or an output takes a file and a row: from training to a page that plays."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from playing import drawn, sampled

from seqmodel import config, model
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.export.onnx.model import export_graph
from seqmodel.outputs import registry
from seqmodel.outputs.draws import NotesDraw, below
from seqmodel.runs.folder import load_run
from seqmodel.sampling.filling import Filler
from seqmodel.sampling.sampler import Sampler


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A function that makes a module of the one example in a README."""
    made = []

    def example(readme, name):
        (code,) = re.findall(
            r"^```python\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL
        )
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        made.append(name)
        return importlib.import_module(name)

    yield example
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def fading(example, monkeypatch):
    """The encoder of the README, with a row among the models."""
    entry = config.ModelEntry("fading:FadingEncoder", {}, like="frame-wise")
    monkeypatch.setitem(config.MODELS, "fading", entry)
    return example(Path(model.__file__).with_name("README.md"), "fading")


def draw_chain(f):
    """Each note given those below it; no piece ends."""
    for k in range(f.D):
        logit = f.c[k]
        for j in range(f.H):
            logit += f.V[k * f.H + j] * f.h[j]
        for j in range(k):
            logit += f.A[k * f.D + j] * f.x[j]
        logit = logit * f.factor[0]
        f.x[k] = float(logit > 0.0 if f.at_zero else below(f.uniforms[k], logit))
    return False


def compiled_draw(output, setting):
    V, c = (part.detach().double() for part in output.linear.parameters())
    A = output.below.detach().double().tril(-1)
    fields = {"H": V.shape[1], "h": setting.h, "V": V, "c": c, "A": A}
    return NotesDraw(output, setting, draw_chain, fields)


@pytest.fixture
def chain(example, monkeypatch):
    """The output of the README, with a row in the registry."""
    entry = registry.OutputEntry("binary", {"frame-wise": "chain_of_notes:ChainOutput"})
    monkeypatch.setitem(registry.OUTPUTS, "chain", entry)
    return example(Path(registry.__file__).with_name("README.md"), "chain_of_notes").ChainOutput


@pytest.mark.usefixtures("unoptimised")
def test_both_train_evaluate_sample_and_play_on_a_page(
    fading, chain, make_config, dataset, train, tmp_path, monkeypatch, request, write_page
):
    """Guards against code that still asks which encoder or output it has."""
    train(make_config(model="fading", output="chain", epochs=2), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert type(run.model.encoder) is fading.FadingEncoder
    torch.nn.init.normal_(run.model.output.below, std=0.5)
    scores = likelihood(run.model, dataset["valid"])
    assert np.isfinite(scores.nats_per_frame)
    assert scores.figures == {}
    with pytest.raises(SeqmodelError, match="fading model, which ONNX cannot represent"):
        export_graph(run)
    plain = [sampled(run, 1, 0, temperature) for temperature in (1, 0.5, 0)]
    assert not Sampler(run.model).is_compiled
    monkeypatch.setattr(chain, "compiled_draw", compiled_draw)
    page = write_page(run)
    compiled = [sampled(run, 1, 0, temperature) for temperature in (1, 0.5, 0)]
    assert Sampler(run.model).is_compiled
    assert compiled == plain
    with pytest.raises(UsageError, match="cannot fill"):
        Filler(run.model, particles=4)
    chrome = request.getfixturevalue("chrome")  # which skips the rest where there is none
    chrome.open(page)
    assert compiled == [drawn(chrome, 1, 0, temperature) for temperature in (1, 0.5, 0)]
