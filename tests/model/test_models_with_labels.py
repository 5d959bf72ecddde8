"""Labels: what the unit and the output are told of a whole piece."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from models import random_model
from refusals import refused

from seqmodel.config import Config
from seqmodel.data.batches import Batch
from seqmodel.data.bundled import FRAMES
from seqmodel.media.labels import combinations, natsorted
from seqmodel.model import sequence
from seqmodel.model.sequence import LABEL_DROPOUT
from seqmodel.training.update import window_gradient

KNOWN = {"who": ("ann", "bob"), "digit": ("1", "2", "10")}
LABELLED = replace(FRAMES, known_labels=KNOWN)


def test_a_label_is_a_bias_of_the_unit_and_of_the_output():
    """By a model without, to whose biases the weights of two values are added."""
    both = [random_model({"model": "frame-wise"}, frame).double() for frame in (LABELLED, FRAMES)]
    told, plain = both
    with torch.no_grad():
        for name, bias in (("unit.W", "unit.b"), ("output.linear.weight", "output.linear.bias")):
            weight, own = told.get_parameter(name), plain.get_parameter(name)
            own.copy_(weight[:, : own.shape[1]])
            columns = weight[:, own.shape[1] :][:, [1, 4]]  # bob, who says 10
            plain.get_parameter(bias).copy_(told.get_parameter(bias) + columns.sum(1))
        plain.unit.U.copy_(told.unit.U)

    def nats(model, carry, frames):
        reading = model.read(frames, carry)
        return model.output.score(reading.h, reading.frames, reading.past)

    frames = torch.rand(30, 2, 88, dtype=torch.float64).round()
    with torch.no_grad():
        expected = nats(plain, plain.start(2), frames)
        found = nats(told, told.with_labels(told.start(2), np.array([[2, 3], [0, 0]])), frames)
        of_all = nats(told, told.conditioned([2, 3]).start(2), frames)
        untold = nats(told, told.start(2), frames)
    assert torch.allclose(found[:, 0], expected[:, 0], rtol=1e-12)
    assert torch.equal(found[:, 1], untold[:, 1])
    assert not torch.allclose(found[:, 0], untold[:, 0], rtol=1e-3)
    assert torch.allclose(of_all, expected, rtol=1e-12)


def test_in_training_a_tenth_of_each_label_is_left_out():
    """Half of them with all others: else a model of several would know no piece without any."""
    model = random_model({"model": "frame-wise"}, LABELLED)
    labels = np.tile([2, 3], (20_000, 1))
    torch.manual_seed(3)
    columns = model.with_labels(model.start(20_000), labels, dropout=True).labels
    shares = [float((columns[:, place] == 0).float().mean()) for place in (1, 4)]
    assert shares == pytest.approx([1 - (1 - LABEL_DROPOUT) ** 2] * 2, abs=0.006)
    assert float((columns.sum(1) == 0).float().mean()) == pytest.approx(LABEL_DROPOUT, abs=0.006)
    assert model.with_labels(model.start(2), labels[:2]).labels.sum() == 4


def test_a_window_goes_on_with_the_labels_of_its_pieces(monkeypatch):
    """Where a batch is joined to the one before, whose pieces were others; later windows keep."""
    monkeypatch.setattr(sequence, "LABEL_DROPOUT", 0.0)
    model = random_model({"model": "frame-wise"}, LABELLED).train()
    carries = {0: model.with_labels(model.start(2), np.array([[1, 0], [2, 2]]))}
    config = Config(weight_noise=0.0)
    state = SimpleNamespace(model=model, config=config, device="cpu", carries=carries)
    frames, lengths = np.zeros((5, 2, 88), np.uint8), np.array([9, 4])
    own = np.array([[2, 3], [0, 1]])
    for labels, expected in ((own, [[0, 1, 0, 0, 1], [0, 0, 1, 0, 0]]), (None, carries[0].labels)):
        _, after = window_gradient(state, Batch(frames, lengths, labels=labels), 0)
        assert after.labels.tolist() == torch.as_tensor(expected).tolist()


def test_what_is_asked_for():
    """Guards ranges by the alphabet, where 10 comes before 2, and values with signs of ours."""
    known = {"n": natsorted(["10", "2", "1", "x"]), "odd": ("a..b", "a=b", "a,b", "🎹")}
    assert known["n"] == ("1", "2", "10", "x")
    assert natsorted(["10", "3", "02"]) == ("02", "3", "10")
    assert natsorted(["1" * 101, "2" * 100]) == ("2" * 100, "1" * 101)
    asked = combinations(["n=1..10"], known, "run")
    assert asked == [{"n": "1"}, {"n": "2"}, {"n": "10"}]
    for value in known["odd"]:
        assert combinations([f"odd={value}"], known, "run") == [{"odd": value}]
    both = combinations(["odd=🎹", "n=x,1"], known, "run")
    assert both == [{"odd": "🎹", "n": "x"}, {"odd": "🎹", "n": "1"}]
    assert combinations([], known, "run") == [{}]
    refused(
        lambda: combinations(["n=3"], known, "run"), "--label n=3", "no n '3'", "1, 2, 10 and x"
    )
    refused(lambda: combinations(["m=3"], known, "run"), "no label 'm'", "knows n, odd")
    refused(lambda: combinations(["m=3"], {}, "run"), "knows none")
    refused(lambda: combinations(["n=10..2"], known, "run"), "10 comes after 2")
    assert combinations(["n=2", "n=1,2"], known, "run") == [{"n": "2"}, {"n": "1"}]
    refused(lambda: random_model({"labels": "none"}, FRAMES), "--labels none is for data")
