"""A unit as a module: gates as views, initial weights, state, and what it rejects."""

import copy
from dataclasses import replace

import pytest
import torch
from drawing import random_tensor, random_unit

from seqmodel.units import make
from seqmodel.units.backends import BACKENDS

CELLS = ("lstm", "lstm-nopeephole")


@pytest.mark.parametrize("bias", [True, False])
def test_gates_are_views_that_cover_each_weight_once(name, bias):
    """Guards against gates that overlap, that are copies, or that have terms or sizes swapped."""
    unit = make(name, 3, 4, bias=bias)
    shapes = {"W": (4, 3), "U": (4, 4), "V": (4,), "b": (4,), "bU": (4,)}
    weights = []
    for gate, terms in unit.gates().items():
        there = {term for term, weight in terms.items() if weight is not None}
        assert there == {term for term in unit.spec.gates[gate] if bias or term not in ("b", "bU")}
        assert all(terms[term].shape == shapes[term] for term in there)
        weights += [terms[term] for term in there]
    with torch.no_grad():
        for k, weight in enumerate(weights, start=1):
            weight.fill_(float(k))
    stored = torch.cat([p.flatten() for p in unit.parameters()])
    for k, weight in enumerate(weights, start=1):
        assert int((stored == k).sum()) == weight.numel()
    assert stored.min() == 1
    stack = make(name, 3, 4, layers=2, bias=bias)
    assert list(stack.gates()) == [f"{k}.{gate}" for k in (0, 1) for gate in unit.gates()]


def test_changed_weights_take_effect_at_once(pair):
    """Guards against a backend that keeps weights of an earlier run: training would stall."""
    known, backend = pair
    unit, other = (random_unit(known, 3, 4, seed=seed, backend=backend) for seed in (1, 2))
    x = random_tensor(5, 2, 3)
    before, _ = unit(x)
    with torch.no_grad():
        for ours, theirs in zip(unit.parameters(), other.parameters(), strict=True):
            ours.copy_(theirs)
    after, _ = unit(x)
    assert not torch.equal(before, after)
    assert torch.equal(after, other(x)[0])
    assert torch.equal(after, copy.deepcopy(unit)(x)[0])


def test_initial_weights(name):
    """Guards against a missing forget bias of 1, or W and U drawn for all gates at once."""
    hidden = 16
    torch.manual_seed(0)
    for gate, terms in make(name, 48, hidden).gates().items():
        if terms["W"] is not None:
            bound = (6 / (48 + hidden)) ** 0.5
            assert 0.9 * bound < terms["W"].abs().max() <= bound
        if terms["U"] is not None:
            torch.testing.assert_close(terms["U"] @ terms["U"].T, torch.eye(hidden))
        for term in ("V", "b", "bU"):
            remembers = name in CELLS and (gate, term) == ("f", "b")
            if terms.get(term) is not None:
                assert (terms[term] == (1.0 if remembers else 0.0)).all(), (gate, term)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"x": torch.zeros(shape)}, r"x must be .*3\), not \(")
          for shape in [(5, 3), (5, 2, 4), (5, 2, 2), (0, 2, 3), (5, 2, 3, 1), (3,)]),
        *(({"state": (torch.zeros(shape), torch.zeros(shape))}, "state must be")
          for shape in [(1, 4), (3, 4), (2, 5), (4,), (2, 2, 4)]),
        ({"state": make("gru", 3, 4).zero_state(2)}, "state must be"),
        *(({"lengths": torch.tensor(lengths)}, "lengths must be")
          for lengths in ([6, 2], [-1, 2], [2], [2, 3, 4], [[2, 3]])),
    ],
)  # fmt: skip
def test_bad_arguments_are_a_value_error(arguments, message):
    """Guards against what would be broadcast, counted from the end, or read out of bounds.

    All is checked before the choice of a backend.
    """
    with pytest.raises(ValueError, match=message):
        make("lstm", 3, 4)(**{"x": torch.zeros(5, 2, 3), **arguments})


def test_a_type_or_device_unlike_the_weights_is_a_value_error():
    """Guards against float64 data read as float32, or a state left on another device."""
    unit, x = make("lstm", 3, 4), torch.zeros(5, 2, 3)
    with pytest.raises(ValueError, match=r"x must be torch.float32 on cpu.* not torch.float64"):
        unit(x.double())
    with pytest.raises(ValueError, match=r"x must be torch.float32 on cpu.* on meta"):
        unit(x.to("meta"))
    state = unit.double().zero_state(2)
    with pytest.raises(ValueError, match=rf"{state._fields[-1]} must be torch.float32 on cpu"):
        unit.float()(x, type(state)(*(t.float() for t in state[:-1]), state[-1]))


def test_the_requested_backend_runs(monkeypatch):
    """Guards against a silent fallback to another backend."""
    ran = []

    def probe(*arguments):
        ran.append(arguments[0].spec.name)
        return reference.run(*arguments)

    reference = BACKENDS["reference"]
    monkeypatch.setitem(BACKENDS, "probe", replace(reference, name="probe", run=probe))
    for unit in (make("gru", 3, 4, backend="probe"), make("mgu", 3, 4, backend="reference")):
        unit(torch.zeros(2, 1, 3))
    assert ran == ["gru"]
