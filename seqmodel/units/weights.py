"""A unit's weights as a backend receives them: stacked as they are stored, or gate by gate."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from seqmodel.units.definition import UnitSpec


class StackedWeights(Mapping[str, Mapping[str, Tensor | None]]):
    """Gate -> term -> weight, None where the gate has no such term.

    `stacked` maps each term to the weights of all gates, stacked along the first dimension as in
    `module.Unit`. Fast backends use it directly: slicing out every gate at each call, and adding up
    the gradients of the slices, costs more than a small layer's arithmetic.
    """

    def __init__(self, spec: UnitSpec, stacked: Mapping[str, Tensor | None]) -> None:
        self.spec, self.stacked = spec, stacked

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
        """The number of gates."""
        return len(self.spec.gates)
