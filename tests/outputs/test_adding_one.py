"""Adding an output takes a folder and a row: the README's example, from training to sampling."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from seqmodel.data.bundled import FRAMES
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.model.build import build_model
from seqmodel.outputs import registry
from seqmodel.runs.folder import load_run
from seqmodel.sampling.sampler import Sampler

README = Path(registry.__file__).with_name("README.md")


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """The example of the README, as a module with a row in the registry."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "chain_output.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    entry = registry.OutputEntry("binary", {"frame-wise": "chain_output:ChainOutput"})
    monkeypatch.setitem(registry.OUTPUTS, "chain", entry)
    yield
    sys.modules.pop("chain_output", None)


def test_its_likelihood_sums_to_one(chain):
    """Guards the example: were a note to see itself or those above it, the sum would not be 1."""
    torch.manual_seed(0)
    output = registry.OUTPUTS["chain"].load("frame-wise")(5, 6).double()
    torch.nn.init.normal_(output.below)
    frames = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6)), dtype=torch.float64)
    h = torch.randn(1, 5, dtype=torch.float64).expand(len(frames), 5)
    assert float((-output.score(h, frames, frames)).exp().sum().detach()) == pytest.approx(
        1, abs=1e-12
    )


def test_it_trains_evaluates_and_samples(chain, make_config, dataset, train, tmp_path):
    """Guards against code that still asks which output it has."""
    config = make_config(output="chain", epochs=12, learning_rate=0.05, batch_size=2, patience=12)
    train(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    untrained = likelihood(build_model(config, FRAMES), dataset["valid"]).nats_per_frame
    scores = likelihood(run.model, dataset["valid"])
    assert scores.nats_per_frame < untrained / 3
    assert scores.figures == {}
    roll = np.concatenate(list(Sampler(run.model).piece(40, seed=1)))
    assert roll.shape == (40, 88)
    assert set(np.unique(roll)) == {0, 1}


def test_its_draws_are_as_likely_as_its_score_says(chain, make_config):
    """Guards against a draw and a score that disagree: frequencies against exp(-nats)."""
    torch.manual_seed(1)
    output = registry.OUTPUTS["chain"].load("frame-wise")(3, 3).double()
    torch.nn.init.normal_(output.below)
    h = torch.randn(1, 3, dtype=torch.float64).expand(40_000, 3)
    uniforms = torch.rand(40_000, 3, dtype=torch.float64)
    with torch.no_grad():
        drawn = output.draw_frame(h, h, uniforms, 1.0).frame
        for frame in itertools.product((0.0, 1.0), repeat=3):
            expected = torch.tensor([frame], dtype=torch.float64)
            chance = float((-output.score(h[:1], expected, expected)).exp())
            share = float((drawn == expected).all(1).double().mean())
            assert share == pytest.approx(chance, abs=4 * (chance / 40_000) ** 0.5)
