"""Zoneout: numbers of every state that keep their value in training, and the mean over them."""

import pytest
import torch
from drawing import (
    assert_agree,
    assert_backends_agree,
    assert_same,
    random_state,
    random_tensor,
    random_unit,
    results,
    weighted_sum,
)

from seqmodel.errors import UsageError
from seqmodel.units import make, module

# A state that is read in its step, one that delays, means, and a product of a product.
MEMORY = """
c = s(Wf x + Uf h' + bf) (.) c' + norm(W x + U (h' (.) m'))
m = c'
h = phi(V (.) c) + 0.1 * h'
"""


def stepwise(unit, x, state, share):
    """h and the last state, from single steps of the unit without zoneout."""
    outputs = []
    for t, frame in enumerate(x):
        _, new = unit.step(frame, state)
        kept = [share(t, k) for k in range(len(state))]
        state = type(state)(
            *(k * old + (1 - k) * fresh for k, old, fresh in zip(kept, state, new, strict=True))
        )
        outputs.append(state[0])
    return torch.stack(outputs), state


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("known", ["lstm", MEMORY], ids=["lstm", "memory"])
def test_states_keep_their_values_as_krueger_et_al_have_it(known, training, monkeypatch):
    """States swapped, a mask of another step, equations that read the mixed value of this step."""
    drawn, draw = [], module.dropout_factors
    monkeypatch.setattr(module, "dropout_factors", lambda *a: drawn.append(draw(*a)) or drawn[-1])
    unit = random_unit(known, 3, 7, zoneout=0.3).train(training)
    plain = random_unit(known, 3, 7, backend="reference")
    x, start = random_tensor(9, 4, 3), random_state(unit, 4)
    found = unit(x, start)
    right = stepwise(plain, x, start, lambda t, k: (drawn[0][k, t] == 0) * 1.0 if training else 0.3)
    assert_same([found[0], *found[1]], [right[0], *right[1]])
    slopes = [
        torch.autograd.grad(weighted_sum(*run), [*of.parameters()])
        for run, of in ((found, unit), (right, plain))
    ]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    assert len(drawn) == training
    if training:
        assert (drawn[0] == 0).double().mean() == pytest.approx(0.3, abs=0.07)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("known", ["lstm-layer-norm", MEMORY], ids=["normalised", "memory"])
def test_compiled_is_the_specification(known):
    """Ragged rows, several layers, float32, and second derivatives."""
    unit = random_unit(known, 3, 5, zoneout=0.4, layers=2)
    x, lengths = random_tensor(11, 5, 3), torch.tensor([11, 0, 4, 9, 1])
    agreed = []
    for backend in ("cpu", "reference"):
        for layer in unit.units():
            layer.backend = backend
        torch.manual_seed(1)
        agreed.append(results(unit, x, lengths=lengths))
    assert_agree(*agreed, 1e-9)
    single = random_unit(known, 3, 5, zoneout=0.4)
    start, second = random_state(single, 5), []
    for single.backend in ("cpu", "reference"):
        torch.manual_seed(1)
        given = [part.clone().requires_grad_() for part in (x, *start)]
        total = weighted_sum(*single(given[0], tuple(given[1:]), lengths))
        slopes = torch.autograd.grad(total, given, create_graph=True)
        squares = sum(slope.square().sum() for slope in slopes)
        second.append(torch.autograd.grad(squares, [*given, *single.parameters()]))
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert_backends_agree(random_unit(known, 3, 20, zoneout=0.4).eval(), x, lengths=lengths)


def test_a_share_outside_of_its_range_is_refused():
    with pytest.raises(UsageError, match="zoneout must be at least 0 and below 1, not 1"):
        make("gru", 3, 4, zoneout=1.0)
