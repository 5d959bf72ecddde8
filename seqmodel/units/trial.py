"""Whether a unit can learn: said of a user's text before training, not after."""

from functools import cache

import torch

from seqmodel.units.definition import UnitSpec
from seqmodel.units.lines import UnitError
from seqmodel.units.module import Unit
from seqmodel.units.weights import by_gate


@cache
def try_unit(
    spec: UnitSpec, gate_activation: str = "sigmoid", activation: str = "tanh", *, bias: bool = True
) -> None:
    """Run the unit over a few random frames, as training starts.

    Raises:
        UnitError: if a gradient is not finite, or that of a weight is zero.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        unit = Unit(
            spec.text, 3, 5, backend="reference", gate_activation=gate_activation,
            activation=activation, bias=bias,
        ).double()  # fmt: skip
        h, _ = unit(5 * torch.randn(16, 32, 3, dtype=torch.float64))
        (h * torch.randn_like(h)).sum().backward()
        gradients = {term: None if w is None else w.grad for term, w in unit.weights().items()}
        for gate, terms in by_gate(spec, gradients).items():
            for term, gradient in terms.items():
                if gradient is not None and not torch.isfinite(gradient).all():
                    raise UnitError(f"{spec.name}: the gradient of its {term}{gate} is not finite")
                if gradient is not None and not gradient.any():
                    raise UnitError(f"{spec.name}: its {term}{gate} has no effect on h at first")
