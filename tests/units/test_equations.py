"""Every unit on every backend computes its equations, and their derivatives."""

import re

import numpy as np
import pytest
import torch
from drawing import CHOICES, random_state, random_tensor, random_unit, weighted_sum
from recomputation import ACTIVATIONS, GATE_ACTIVATIONS, recompute
from torch.autograd import gradcheck
from torch.func import functional_call

from seqmodel.units import UNITS, zoo

# float32 rounds each of a few dozen sums per step by 6e-8, and a step's error feeds the next.
BOUND = {torch.float64: 1e-10, torch.float32: 1e-5}


def assert_as_recomputed(unit, x, state, bound):
    h, after = unit(x, state)
    expected_h, expected_after = recompute(
        unit.spec.name, unit.gates(), x.numpy(), state, unit.gate_activation, unit.activation
    )
    assert type(after) is type(state)
    for ours, theirs in zip((h, *after), (expected_h, *expected_after), strict=True):
        assert ours.dtype == x.dtype
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("frames", "rows", "hidden", "dtype"),
    [
        (1, 1, 1, torch.float64),
        (1, 7, 33, torch.float64),
        (63, 1, 1, torch.float64),
        (63, 7, 33, torch.float64),
        (63, 7, 33, torch.float32),
    ],
)
def test_outputs_and_final_state_at_odd_sizes(name, backend, frames, rows, hidden, dtype):
    """Guards against wrong equations, peepholes on the old cell, or loops for round sizes only."""
    unit = random_unit(name, 5, hidden, dtype=dtype, backend=backend)
    x = random_tensor(frames, rows, 5, dtype=dtype)
    assert_as_recomputed(unit, x, random_state(unit, rows), BOUND[dtype])


@pytest.mark.parametrize(("gate_activation", "activation", "bias", "dtype"), CHOICES)
def test_every_activation_with_and_without_bias(name, gate_activation, activation, bias, dtype):
    """Guards against an activation hard-wired in a gate, or a bias added though turned off.

    Of the specification, with which test_cpu and test_torch_nn compare the other backends.
    """
    options = {"gate_activation": gate_activation, "activation": activation, "bias": bias}
    unit = random_unit(name, 2, 5, dtype=dtype, backend="reference", **options)
    x = random_tensor(9, 3, 2, dtype=dtype)
    assert_as_recomputed(unit, x, random_state(unit, 3), BOUND[dtype])


@pytest.mark.parametrize(
    ("gate_activation", "activation", "bias"),
    [
        ("sigmoid", "tanh", True),
        ("sigmoid", "tanh", False),
        ("hard-sigmoid", "relu", True),
        ("hard-sigmoid", "sigmoid", True),
    ],
)
def test_every_gradient_is_the_derivative(name, backend, gate_activation, activation, bias):
    """Guards against a lost term in the gradient of x, the initial state or any weight."""
    options = {"gate_activation": gate_activation, "activation": activation, "bias": bias}
    unit = random_unit(name, 2, 3, backend=backend, **options)
    x, state = random_tensor(3, 2, 2), random_state(unit, 2)
    weights = dict(unit.named_parameters())

    def run(x, *values):
        given = type(state)(*values[: len(state)])
        replaced = dict(zip(weights, values[len(state) :], strict=True))
        h, after = functional_call(unit, replaced, (x, given))
        return h, *after

    inputs = [t.detach().clone().requires_grad_() for t in (x, *state, *weights.values())]
    assert gradcheck(run, inputs, eps=1e-6, rtol=1e-6, atol=1e-8)


def test_every_weight_matters(name, backend):
    """Guards against a weight that is counted and stored but never used."""
    unit = random_unit(name, 3, 4, backend=backend)
    h, after = unit(random_tensor(5, 3, 3), random_state(unit, 3))
    weighted_sum(h, after).backward()
    for key, weight in unit.named_parameters():
        assert weight.grad.abs().min() > 0, key


@pytest.mark.parametrize(
    ("gate_activation", "activation", "bias"),
    [choices[:3] for choices in CHOICES if choices[3] == torch.float32],
)
def test_saturated_input_stays_finite_and_right(name, backend, gate_activation, activation, bias):
    """Guards against exp overflowing: inf, then nan, in the output or only in a gradient."""
    options = {"gate_activation": gate_activation, "activation": activation, "bias": bias}
    unit = random_unit(name, 3, 4, dtype=torch.float32, backend=backend, **options)
    x = 1e4 * random_tensor(6, 4, 3, dtype=torch.float32).sign()
    state = random_state(unit, 4)
    with torch.no_grad():
        # Where a gate lets 1e4 through, its own slope can magnify float32's rounding.
        assert_as_recomputed(unit, x, state, 1e-3)
    x.requires_grad_()
    weighted_sum(*unit(x, state)).backward()
    for tensor in (x, *unit.parameters()):
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_saturated_weights_stay_finite(name, backend, sign):
    """The same, reached through U, V and the biases."""
    unit = random_unit(name, 3, 4, dtype=torch.float32, backend=backend)
    with torch.no_grad():
        for weight in unit.parameters():
            weight.copy_(sign * 1e4 * weight.sign())
    x = random_tensor(5, 3, 3, dtype=torch.float32).requires_grad_()
    h, after = unit(x, random_state(unit, 3))
    weighted_sum(h, after).backward()
    for tensor in (h, *after, x.grad, *(weight.grad for weight in unit.parameters())):
        assert torch.isfinite(tensor).all()


def by_its_equations(spec, gates, x, state):
    """One step of a unit: its equations, as they are written, run by Python."""
    names = {"x": x, **{f"{name}_": value for name, value in zip(spec.state, state, strict=True)}}
    names |= {"phi": ACTIVATIONS["tanh"], "tanh": np.tanh, "relu": ACTIVATIONS["relu"]}
    names |= {"s": GATE_ACTIVATIONS["sigmoid"], "exp": np.exp}
    weights = {gate: {term: t.detach().numpy() for term, t in terms.items() if t is not None}
               for gate, terms in gates.items()}  # fmt: skip
    for gate, terms in weights.items():
        names |= {f"{term}{gate}": weight for term, weight in terms.items()}
    for equation in spec.equations:
        target, formula = equation.written.replace("(.)", "*").replace("'", "_").split(" = ")
        formula = re.sub(r"\b([WU]\w*) (?=[\w(])", r"\1 @ ", formula)
        names[target] = eval(formula, names | weights.get(target, {}))
    return tuple(names[part] for part in spec.state)


@pytest.mark.parametrize("known", [*UNITS, *zoo()])
def test_each_text_is_what_is_computed(known):
    """Guards against a text that is read otherwise than it is written."""
    unit = random_unit(known, 2, 3)
    x, start = random_tensor(5, 1, 2), random_state(unit, 1)
    state = [part[0].numpy() for part in start]
    outputs, final = unit(x, start)
    for frame, output in zip(x[:, 0].numpy(), outputs[:, 0], strict=True):
        state = by_its_equations(unit.spec, unit.gates(), frame, state)
        np.testing.assert_allclose(output.detach().numpy(), state[0], rtol=0, atol=1e-12)
    for ours, theirs in zip(final, state, strict=True):
        np.testing.assert_allclose(ours[0].detach().numpy(), theirs, rtol=0, atol=1e-12)
