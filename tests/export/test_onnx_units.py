"""Units in ONNX: operators and scans compute what the specification does."""

import copy

import numpy as np
import onnx
import pytest
import torch
from onnx_sessions import Session, heard, music_frames, run_of, song

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
LAYERS = {"layers": 2, "bias": False, "zoneout": 0.3}
HARD = {"gate_activation": "hard-sigmoid", "activation": "sigmoid"}
RELU = {"activation": "relu"}
CASES = [(unit, {}) for unit in (*UNITS, *[*zoo()][::4], ODD, IMPOSTOR)] + [
    *((unit, LAYERS) for unit in ("gru-reset-after", ODD)),
    *((unit, HARD) for unit in ("lstm", "mgu", ODD)),
    ("gru-reset-after", RELU),
]


@pytest.mark.parametrize(("unit", "options"), CASES, ids=lambda value: str(value)[:12])
def test_a_unit_is_that_of_the_specification(unit, options):
    """Guards gates' order, states between calls, ONNX's own hard sigmoid, and operators' speed."""
    run, frames = run_of(music_frames(), unit=unit, output="bernoulli", **options), song(60)
    session = Session(run)
    at_once, after = session(heard(frames))["logits"], session.state
    exact = copy.deepcopy(run.model).double()
    for layer in exact.layers():
        layer.backend = "reference"
    with torch.inference_mode():
        h = exact.read(torch.from_numpy(frames).unsqueeze(1), exact.start(1)).h
        expected = exact.output.note_logits(h).squeeze(1).numpy()
    # With relu h grows without bound.
    near = {"rtol": 1e-5 if options == RELU else 0, "atol": 1e-5}
    np.testing.assert_allclose(at_once, expected, **near)
    session.restart()
    np.testing.assert_allclose(session.steps(heard(frames))["logits"], at_once, **near)
    for name, value in after.items():
        np.testing.assert_allclose(session.state[name], value, **near)
    if not options:
        ops = {node.op_type for node in onnx.load_from_string(session.file).graph.node}
        assert unit not in UNITS or OPERATORS[unit] in ops
        assert ("Scan" in ops) == (unit not in UNITS)
