"""What a state_dict says of the unit whose weights it holds, so that no other takes them.

Weights are named by their terms, so those of another text, or of gates in another order, may have
the same names and shapes.
"""

import json

import torch
from torch import Tensor

from seqmodel.units.definition import TERMS, UnitSpec, define
from seqmodel.units.lines import UnitError

KEY = "_extra_state"
"""The key of torch.nn.Module.get_extra_state."""


def identity(spec: UnitSpec, gate_activation: str, activation: str) -> Tensor:
    """Equations and activations, as bytes of JSON: safetensors takes tensors only."""
    told = json.dumps([spec.name, spec.statements, gate_activation, activation])
    return torch.tensor(list(told.encode()), dtype=torch.uint8, device="cpu")


def difference(told: Tensor, spec: UnitSpec, *activations: str) -> str | None:
    """What a unit of that `identity` has other than this one; None if their weights are alike."""
    try:
        name, statements, *others = json.loads(bytes(told.to(torch.uint8).tolist()))
        there = _meaning(define("\n".join(statements), name), *others)
    except (ValueError, TypeError, UnitError):
        return "what they say of it cannot be read"
    here = _meaning(spec, *activations)
    for part in there | here:
        them, us = (side.get(part, (None, f"no {part}")) for side in (there, here))
        if them[0] != us[0]:
            return f"{name} has {them[1]} where this one has {us[1]}"
    return None


def _meaning(spec: UnitSpec, s: str, phi: str) -> dict[str, tuple[object, str]]:
    """All that the meaning of a unit's weights depends on, to compare and to show."""
    meaning: dict[str, tuple[object, str]] = {e.name: (e.value, e.written) for e in spec.equations}
    for name, chosen in (("s", s), ("phi", phi)):
        meaning[name] = chosen, f"{name} = {chosen}"
    for term in TERMS:
        gates = spec.gates_with(term)
        meaning[term] = gates, f"the gates {' '.join(gates)}"
    return meaning
