"""JAX's step of every unit, where JAX is installed (`pip install 'seqmodel[bench]'`)."""

import pytest
import torch

from seqmodel import units
from seqmodel.bench import jax_peer
from seqmodel.units.specification import by_gate

pytest.importorskip("jax", reason="JAX is not installed; pip install 'seqmodel[bench]'")


@pytest.mark.parametrize("name", units.UNITS)
def test_it_computes_what_the_unit_does(name):
    """Guards against giving JAX less, or other, work: equal weights, equal h and gradients."""
    torch.manual_seed(3)
    unit = units.make(name, 5, 4)
    with torch.no_grad():
        for weight in unit.parameters():
            weight.normal_(0, 0.5)
    x, d_h = torch.randn(7, 3, 5, requires_grad=True), torch.randn(7, 3, 4)
    expected = unit(x)[0]
    expected.backward(d_h)
    h, d_weights, d_x = jax_peer.step(unit, x, d_h)()
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(torch.tensor(h.tolist()), expected, **close)
    torch.testing.assert_close(torch.tensor(d_x.tolist()), x.grad, **close)
    gradients = {term: w if w is None else w.grad for term, w in unit.weights().items()}
    for gate, terms in by_gate(unit.spec, gradients).items():
        for term, expected in terms.items():
            if expected is not None:
                found = torch.tensor(d_weights[gate][term].tolist())
                torch.testing.assert_close(found, expected, msg=f"{term}{gate}", **close)
