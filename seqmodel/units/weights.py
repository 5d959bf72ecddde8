"""A unit's weights, stacked as they are stored and as backends get them, or gate by gate."""

from collections.abc import Mapping

from torch import Tensor

from seqmodel.units.definition import UnitSpec

Weights = Mapping[str, Tensor | None]
"""Term -> the weights of all its gates, stacked as in `module.Unit`; None if there are none.

Fast backends use them as they are: slicing out every gate at each call, and adding up the gradients
of the slices, costs more than a small layer's arithmetic.
"""


def by_gate(spec: UnitSpec, weights: Weights) -> dict[str, dict[str, Tensor | None]]:
    """Gate -> {"W": (H, I), "U": (H, H), "V": (H,), "b": (H,)}, None for terms it lacks; any "bU".

    The tensors are views.
    """
    gates: dict[str, dict[str, Tensor | None]] = {
        gate: dict.fromkeys(("W", "U", "V", "b", *terms)) for gate, terms in spec.gates.items()
    }
    for term, stacked in weights.items():
        if stacked is not None:
            owners = spec.gates_with(term)
            parts = stacked.unbind() if term == "V" else stacked.chunk(len(owners))
            for gate, part in zip(owners, parts, strict=True):
                gates[gate][term] = part
    return gates
