"""Units in ONNX: operators and scans compute what the specification does."""

import copy

import numpy as np
import onnx
import pytest
import torch
from onnx_sessions import Session, heard, music_frames, run_of, song

from seqmodel.export.onnx.model import export_graph
from seqmodel.units import UNITS, zoo

OPERATORS = {
    "tanh": "RNN", "lstm": "LSTM", "lstm-nopeephole": "LSTM", "gru": "GRU", "gru1": "GRU",
    "gru2": "GRU", "gru3": "GRU", "mgu": "GRU", "gru-reset-after": "GRU",
}  # fmt: skip
# Every function and operation; k is a state that depends on weights alone.
ODD = """unit: odd
k = s(bk) * 2
a = softplus(Wa x + Ua h' + ba) / (1 + exp(-k'))
n = phi(W x + U (a (.) h') + V (.) m' + b)
m = tanh(a) - 0.5 * relu(n)
h = sigmoid(a) (.) n + 0.1 - m + 0.1 * sqrt(mean(where(m < a, k, 2)))
Ua has rank 2
U has 3 heads
"""
IMPOSTOR = "unit: gru\nh = phi(W x + U h' + b)\n"
OPTIONS = [
    {"layers": 2, "bias": False, "zoneout": 0.3},
    {"gate_activation": "hard-sigmoid", "activation": "sigmoid"},
    {"activation": "relu"},
]


def expected(run, frames):
    """The logits by the specification in float64."""
    model = copy.deepcopy(run.model).double()
    for layer in model.layers():
        layer.backend = "reference"
    with torch.inference_mode():
        h = model.read(torch.from_numpy(frames).unsqueeze(1), model.start(1)).h
        return model.output.note_logits(h).squeeze(1).numpy()


def check(unit, **options):
    """Within 1e-5 for 200 frames, at once and in steps; the final states too."""
    run, frames = run_of(music_frames(), unit=unit, output="bernoulli", **options), song(200)
    session = Session(run)
    at_once = session(heard(frames))["logits"]
    after = session.state
    # With relu h grows without bound.
    near = {"rtol": 1e-5 if options.get("activation") == "relu" else 0, "atol": 1e-5}
    np.testing.assert_allclose(at_once, expected(run, frames), **near)
    session.restart()
    np.testing.assert_allclose(session.steps(heard(frames))["logits"], at_once, **near)
    for name, value in after.items():
        np.testing.assert_allclose(session.state[name], value, **near)


@pytest.mark.parametrize("unit", [*UNITS, *zoo(), ODD, IMPOSTOR], ids=lambda unit: unit[:12])
def test_a_unit_is_that_of_the_specification(unit):
    """Guards gates in the wrong order, a z that weighs the other side, peepholes that see old c,
    states that are swapped between calls; and operators for a text that only has the name of one.
    """
    check(unit)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("unit", ["lstm", "gru-reset-after", "mgu", ODD])
def test_options_of_units_hold(unit, options):
    """Guards ONNX's own hard sigmoid, which is steeper, and layers that share a state."""
    check(unit, **options)


def test_the_nine_units_are_operators():
    """Guards speed: a unit that falls back to a scan would still be exact."""
    for unit, operator in OPERATORS.items():
        model = onnx.load_from_string(export_graph(run_of(music_frames(), unit=unit)))
        ops = [node.op_type for node in model.graph.node]
        assert operator in ops
        assert "Scan" not in ops
    assert {*OPERATORS} == {*UNITS}
