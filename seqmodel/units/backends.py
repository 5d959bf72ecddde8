"""Which code runs a unit: the specification, or a compiled backend proved against it."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from seqmodel.errors import UsageError
from seqmodel.units import specification
from seqmodel.units.registry import UnitSpec


class Backend(Protocol):
    """Runs one layer over time; see `specification.run` for the contract."""

    def __call__(
        self,
        spec: UnitSpec,
        weights: specification.Weights,
        x: Tensor,
        state: specification.State,
        gate_activation: str,
        activation: str,
    ) -> specification.State:
        """Every state tensor at every step, h first."""
        ...


BACKENDS: Mapping[str, Backend] = {"reference": specification.run}
FASTEST_FIRST = ("reference",)


def find_backend(name: str) -> Backend:
    """The backend called `name`, `auto` being the fastest there is; UsageError if it is unknown."""
    if name == "auto":
        return BACKENDS[FASTEST_FIRST[0]]
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}; choose one of auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]
