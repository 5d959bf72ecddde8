"""A unit's weights as a backend receives them: stacked as they are stored, or gate by gate."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from seqmodel.units.registry import TERMS, UnitSpec


class StackedWeights(Mapping[str, Mapping[str, Tensor | None]]):
    """Gate -> term -> weight, cut from the stacked weights only where somebody asks.

    A fast backend takes `stacked`: cutting views for every gate at every call, and adding up their
    gradients, costs more than a small layer's arithmetic.
    """

    def __init__(self, spec: UnitSpec, stacked: Mapping[str, Tensor | None]) -> None:
        self.spec, self.stacked = spec, stacked

    @classmethod
    def of(
        cls, spec: UnitSpec, gates: Mapping[str, Mapping[str, Tensor | None]]
    ) -> "StackedWeights":
        """The same weights, stacked if they are not."""
        if isinstance(gates, cls):
            return gates
        stacked: dict[str, Tensor | None] = {}
        for term in TERMS:
            parts = [gates[gate].get(term) for gate in spec.gates_with(term)]
            there = [part for part in parts if part is not None]
            join = torch.stack if term == "V" else torch.cat
            stacked[term] = join(there) if there else None
        return cls(spec, stacked)

    def __getitem__(self, gate: str) -> Mapping[str, Tensor | None]:
        """The terms of a gate, as views."""
        terms: dict[str, Tensor | None] = dict.fromkeys(("W", "U", "V", "b"))
        for term in self.spec.gates[gate]:
            weight, owners = self.stacked[term], self.spec.gates_with(term)
            if weight is not None:
                k = owners.index(gate)
                terms[term] = weight[k] if term == "V" else weight.chunk(len(owners))[k]
            else:
                terms[term] = None
        return terms

    def __iter__(self) -> Iterator[str]:
        """The gates."""
        return iter(self.spec.gates)

    def __len__(self) -> int:
        """How many gates there are."""
        return len(self.spec.gates)
