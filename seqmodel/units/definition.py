"""What defines a unit: its gates' terms, and the few lines that combine the gates.

A gate's net input is the sum of the terms it has,

    W x_t + U h' + V (.) c + b

with W (H, I), U (H, H), V (H,) a diagonal, b (H,). h' and c' are the previous step's; (.) is the
elementwise product; s is the gate activation and phi the activation. Torch is not needed to define
a unit, only to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from seqmodel.units.cells import Cell

if TYPE_CHECKING:
    from torch import Tensor

# Every kind of weight, in the order in which a unit's parameters are created and stored.
TERMS = ("W", "U", "V", "b", "bU")
CHUNG = "Chung, Gulcehre, Cho, Bengio 2014"

State: TypeAlias = "tuple[Tensor, ...]"
Function: TypeAlias = "Callable[[Tensor], Tensor]"


class NetInput(Protocol):
    """The gates' net inputs at one time step; see `specification.NetInput`."""

    def __call__(self, gate: str, h: Tensor, c: Tensor | None = None) -> Tensor:
        """W x + U h + V (.) c + b of the gate, with the terms that it has; all (B, H)."""
        ...

    def reset_after(self, gate: str, h: Tensor, r: Tensor) -> Tensor:
        """W x + b + r (.) (U h + bU), all (B, H)."""
        ...


Step: TypeAlias = "Callable[[NetInput, State, Function, Function], State]"
"""(net input, state before, s, phi) -> state after, in plain torch: the specification's step."""


@dataclass(frozen=True)
class UnitSpec:
    """One recurrent unit."""

    name: str
    gates: Mapping[str, tuple[str, ...]]
    """Gate -> its terms. `bU` is a second bias, added to U h' before the reset gate acts."""
    state: tuple[str, ...]
    """h, or h and c."""
    equations: tuple[str, ...]
    """As `seqmodel units` prints them."""
    source: str
    step: Step
    """The ground truth that every backend is tested against."""
    cell: Cell | None = None
    """The same step, forward and backward, which the compiled loops need to run the unit."""

    def __deepcopy__(self, memo: dict[int, object]) -> UnitSpec:
        """Return self: it is immutable, and sampling copies models."""
        return self

    def gates_with(self, term: str) -> list[str]:
        """The gates that have `term`, in the order in which their weights are stacked."""
        return [gate for gate, terms in self.gates.items() if term in terms]

    def parameter_count(self, input_size: int, hidden_size: int, *, bias: bool = True) -> int:
        """The number of weights of one layer, excluding the output layer."""
        size = {
            "W": hidden_size * input_size,
            "U": hidden_size * hidden_size,
            "V": hidden_size,
            "b": hidden_size if bias else 0,
            "bU": hidden_size if bias else 0,
        }
        return sum(size[term] for terms in self.gates.values() for term in terms)


def define(
    name: str,
    gates: Mapping[str, str],
    state: str,
    source: str,
    *equations: str,
    step: Step,
    cell: Cell | None = None,
) -> UnitSpec:
    """Define a unit, with its terms and states separated by spaces: {"z": "W U b"}, "h c"."""
    terms = {gate: tuple(text.split()) for gate, text in gates.items()}
    return UnitSpec(name, terms, tuple(state.split()), equations, source, step, cell)
