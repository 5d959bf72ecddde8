"""The compiled backend's equations over NumPy arrays, against autograd of the specification."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from by_hand import Run

from seqmodel.units import UNITS, make, specification
from seqmodel.units.registry import TERMS


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "biasless"])
@pytest.mark.parametrize("phi", specification.ACTIVATIONS)
@pytest.mark.parametrize("s", specification.GATE_ACTIVATIONS)
@pytest.mark.parametrize("name", UNITS)
def test_values_and_gradients(name, s, phi, bias):
    """Guards against wrong equations that would show only in the compiled code."""
    torch.manual_seed(0)
    unit = make(
        name, 3, 5, backend="reference", gate_activation=s, activation=phi, bias=bias
    ).double()
    with torch.no_grad():
        for weight in unit.parameters():
            weight.normal_(0, 0.5)
    x = torch.randn(6, 4, 3, dtype=torch.float64, requires_grad=True)
    state = [torch.randn_like(part).requires_grad_() for part in unit.zero_state(4)]
    d_h, *d_final = torch.randn(6, 4, 5).double(), *(torch.randn(4, 5).double() for _ in state)
    h, final = unit(x, type(unit.zero_state(4))(*state))
    weights = {term: getattr(unit, term) for term in TERMS}
    leaves = {"x": x} | {term: w for term, w in weights.items() if w is not None}
    leaves |= {f"first_{n}": part for n, part in zip(unit.spec.state, state, strict=True)}
    gradients = torch.autograd.grad([h, *final], list(leaves.values()), [d_h, *d_final])
    run = Run(
        name,
        {term: None if w is None else w.detach().numpy() for term, w in weights.items()},
        x.detach().numpy(),
        tuple(part.detach().numpy() for part in state),
        s,
        phi,
    )
    np.testing.assert_allclose(run.h, h.detach(), rtol=0, atol=1e-12)
    for ours, right in zip(run.final, final, strict=True):
        np.testing.assert_allclose(ours, right.detach(), rtol=0, atol=1e-12)
    found = run.backward(d_h.numpy(), tuple(g.numpy() for g in d_final))
    assert found.keys() == leaves.keys()
    for (leaf, _), right in zip(leaves.items(), gradients, strict=True):
        scale = max(1.0, float(right.abs().max()))
        np.testing.assert_allclose(found[leaf] / scale, right / scale, atol=1e-12, err_msg=leaf)


def test_equations_load_no_compiler():
    code = "import sys, seqmodel.units.cpu.cell_plan; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
