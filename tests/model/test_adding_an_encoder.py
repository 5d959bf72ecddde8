"""Adding an encoder takes a file and a row: the README's example, from training to a page."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from seqmodel import config, model
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.export.onnx.model import export_graph
from seqmodel.export.page.render import export_page
from seqmodel.runs.folder import load_run
from seqmodel.sampling.sampler import Sampler

README = Path(model.__file__).with_name("README.md")


@pytest.fixture
def fading(tmp_path, monkeypatch):
    """The example of the README, as a module with a row among the models."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "fading.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    entry = config.ModelEntry("fading:FadingEncoder", {}, like="frame-wise")
    monkeypatch.setitem(config.MODELS, "fading", entry)
    import fading

    yield fading
    sys.modules.pop("fading", None)


def test_the_compiled_text_does_what_python_does(fading):
    random = np.random.default_rng(1)
    frames, x, trace = random.random((3, 7, 2, 5))
    expected, after = np.empty_like(x), trace[0].copy()
    fading.fade(*(a.reshape(-1) for a in (frames, after, expected)), 0, 2, 7, 2, 5)
    encoder = fading.FadingEncoder(5)
    found, last = encoder.read(torch.from_numpy(frames), torch.from_numpy(trace[0]))
    assert torch.equal(found, torch.from_numpy(expected))
    assert torch.equal(last, torch.from_numpy(after))


def test_it_trains_evaluates_samples_and_is_exported(
    fading, make_config, dataset, train, tmp_path, monkeypatch
):
    """Guards against code that still asks which encoder it has."""
    given = {"model": "fading", "output": "nade", "nade_hidden": 4, "epochs": 2}
    train(make_config(**given), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert type(run.model.encoder) is fading.FadingEncoder
    assert np.isfinite(likelihood(run.model, dataset["valid"]).nats_per_frame)
    sampler = Sampler(run.model)
    assert sampler.is_compiled
    roll = np.concatenate(list(sampler.piece(40, seed=1)))
    monkeypatch.setattr("seqmodel.sampling.sampler.stepper", lambda layers: None)
    plain = Sampler(run.model)
    assert not plain.is_compiled
    np.testing.assert_array_equal(roll, np.concatenate(list(plain.piece(40, seed=1))))
    assert b"fading" in export_page(run)
    with pytest.raises(SeqmodelError, match="fading model, which has no form in ONNX"):
        export_graph(run)
