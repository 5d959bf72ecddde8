"""Adding a unit takes one file and one row: the test suite, on the unit of `coupled`."""

import copy
import pickle
from dataclasses import replace

import pytest
import test_by_hand
import test_equations
import test_module
import test_registry
import test_sequences
import torch
from coupled import LSTM_COUPLED
from recomputation import STEPS

from seqmodel.errors import UsageError
from seqmodel.units import UNITS, hidden_size_for, make
from seqmodel.units.backends import BACKENDS, why
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS

NAME = LSTM_COUPLED.name
each_backend = pytest.mark.parametrize("backend", ["cpu", "reference"])


def coupled_step(w, x, h, c, s, phi):
    i = s(w.i.W @ x + w.i.U @ h + w.i.V * c + w.i.b)
    new_c = (1.0 - i) * c + i * phi(w.c.W @ x + w.c.U @ h + w.c.b)
    o = s(w.o.W @ x + w.o.U @ h + w.o.V * new_c + w.o.b)
    return o * phi(new_c), new_c


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The row, and for the tests the unit's step in NumPy."""
    monkeypatch.setitem(UNITS, NAME, LSTM_COUPLED)
    monkeypatch.setitem(STEPS, NAME, coupled_step)


@each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_computes_its_equations(backend, dtype):
    """Guards against a unit that takes more than a file and a row."""
    equations = test_equations.test_outputs_and_final_state_at_odd_sizes
    for frames, rows, hidden in ((1, 1, 1), (63, 7, 33)):
        equations(NAME, backend, frames, rows, hidden, dtype)
    for s in GATE_ACTIVATIONS:
        for phi in ACTIVATIONS:
            test_equations.test_every_activation_with_and_without_bias(NAME, s, phi, True, dtype)
    test_sequences.test_padded_batch_equals_its_rows_alone(NAME, backend, dtype)
    test_sequences.test_step_by_step_equals_one_run(NAME, backend, dtype)


@each_backend
@pytest.mark.parametrize("bias", [True, False])
def test_every_gradient_is_the_derivative(backend, bias):
    test_equations.test_every_gradient_is_the_derivative(NAME, backend, "sigmoid", "tanh", bias)
    test_equations.test_every_weight_matters(NAME, backend)


@pytest.mark.parametrize("bias", [True, False])
def test_its_cell_runs_over_numpy_too(bias):
    test_by_hand.test_values_and_gradients(NAME, "sigmoid", "tanh", bias)


def test_its_size_and_equations_follow_from_its_definition():
    """Counts, sizes and the printed equations all follow from the one definition."""
    H, I = 5, 3  # noqa: E741
    expected = 3 * (H * I + H * H + H) + 2 * H
    assert make(NAME, I, H).parameter_count() == expected
    assert hidden_size_for(NAME, I, expected) == H
    test_registry.test_counts_are_those_of_the_module(NAME, 3, True)
    test_equations.test_printed_equations_are_those_computed(NAME)
    test_module.test_gates_are_views_that_cover_each_weight_once(NAME, "cpu")


def test_a_unit_works_with_its_specification_alone(monkeypatch):
    """Guards against a new unit that needs a backward pass before it can be tried."""
    monkeypatch.setitem(UNITS, NAME, replace(LSTM_COUPLED, cell=None))
    unit = make(NAME, 3, 4)
    h, _ = unit(torch.randn(5, 2, 3))
    h.sum().backward()
    assert torch.isfinite(unit.U.grad).all()
    name, reason = why(unit.case(2))
    assert name == "reference"
    assert f"not cpu: {NAME} defines no cell for it" in reason
    with pytest.raises(UsageError, match="defines no cell"):
        make(NAME, 3, 4, backend="cpu")(torch.randn(5, 2, 3))


@pytest.mark.parametrize("name", [*UNITS, NAME])
def test_units_can_be_copied_and_pickled(name):
    """Guards against a lambda in a definition: the model could not go to another process."""
    unit = make(name, 3, 4)
    x = torch.randn(5, 2, 3)
    for other in (copy.deepcopy(unit), pickle.loads(pickle.dumps(unit))):  # noqa: S301
        assert torch.equal(other(x)[0], unit(x)[0])


def test_torch_nn_declines_a_unit_it_does_not_know():
    assert BACKENDS["torch-nn"].why_not(make(NAME, 3, 4).case(1)) is not None
