"""Units as torch modules: weights, state, ragged lengths and stacks, whatever backend runs them."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from seqmodel.errors import UsageError
from seqmodel.units.backends import find_backend
from seqmodel.units.dropout import Dropout
from seqmodel.units.registry import TERMS, UnitSpec, unit_spec
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS
from seqmodel.units.weights import StackedWeights


class State(NamedTuple):
    """The state of a unit without a cell: h (B, H)."""

    h: Tensor


class CellState(NamedTuple):
    """The state of a unit with a cell: h and c, both (B, H)."""

    h: Tensor
    c: Tensor


UnitState = State | CellState
StackState = tuple[UnitState, ...]
AnyState = UnitState | StackState


class Unit(nn.Module):
    """One layer of a recurrent unit.

    The weights of all gates are stacked along the first dimension, one parameter a term: W
    (gates x H, I), U (gates x H, H), V (gates, H), b and bU (gates x H); `gates()` names the parts.
    The equations stand in `seqmodel.units.registry`, their meaning in `specification`.
    """

    spec: UnitSpec
    U: nn.Parameter  # the one term that every unit has

    def __init__(
        self,
        name: str,
        input_size: int,
        hidden_size: int,
        *,
        backend: str = "auto",
        gate_activation: str = "sigmoid",
        activation: str = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.spec = unit_spec(name)
        if input_size < 1 or hidden_size < 1:
            raise UsageError(f"a unit needs sizes of 1 or more, not {input_size} and {hidden_size}")
        for option, value, choices in (
            ("gate activation", gate_activation, GATE_ACTIVATIONS),
            ("activation", activation, ACTIVATIONS),
        ):
            if value not in choices:
                names = ", ".join(choices)
                raise UsageError(f"there is no {option} {value!r}; choose one of {names}")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.gate_activation, self.activation, self.bias = gate_activation, activation, bias
        self.backend, self._run = backend, find_backend(backend)
        for term in TERMS:
            count = len(self.spec.gates_with(term))
            shape = {
                "W": (count * hidden_size, input_size),
                "U": (count * hidden_size, hidden_size),
                "V": (count, hidden_size),
            }.get(term, (count * hidden_size,))
            exists = count > 0 and (bias or term not in ("b", "bU"))
            self.register_parameter(term, nn.Parameter(torch.empty(shape)) if exists else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """W uniform (Glorot), U orthogonal, gate by gate; V and biases zero, forget gate's 1.

        The forget gate's bias of 1 lets the cell remember from the start (Jozefowicz et al. 2015).
        """
        with torch.no_grad():
            for gate, terms in self.gates().items():
                if terms["W"] is not None:
                    nn.init.xavier_uniform_(terms["W"])
                if terms["U"] is not None:
                    nn.init.orthogonal_(terms["U"])
                for term in ("V", "b", "bU"):
                    weight = terms.get(term)
                    if weight is not None:
                        remembers = term == "b" and gate == "f" and "c" in self.spec.state
                        weight.fill_(1.0 if remembers else 0.0)

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """Gate -> {"W": (H, I), "U": (H, H), "V": (H,), "b": (H,)}, None where there is none.

        The tensors are views of the parameters. `gru-reset-after` has a further "bU" (H,) at n.
        """
        parts: dict[str, dict[str, Tensor | None]] = {
            gate: dict.fromkeys(("W", "U", "V", "b")) for gate in self.spec.gates
        }
        for term in TERMS:
            weight = cast(Tensor | None, getattr(self, term))
            owners = self.spec.gates_with(term)
            for k, gate in enumerate(owners):
                if weight is None:
                    parts[gate][term] = None
                elif term == "V":
                    parts[gate][term] = weight[k]
                else:
                    rows = slice(k * self.hidden_size, (k + 1) * self.hidden_size)
                    parts[gate][term] = weight[rows]
        return parts

    def parameter_count(self) -> int:
        """The number of weights."""
        return self.spec.parameter_count(self.input_size, self.hidden_size, bias=self.bias)

    def zero_state(self, batch_size: int) -> UnitState:
        """The state before the first frame, zeros (B, H) of the weights' type and device."""
        return self._state([self.U.new_zeros(batch_size, self.hidden_size)] * len(self.spec.state))

    def forward(
        self, x: Tensor, state: UnitState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, UnitState]:
        """Run over x (T, B, I) from `state` (zeros if None) and return h (T, B, H) and the state.

        With `lengths` (B,) the rows are ragged: h is zero from a row's length on, and its final
        state is the one at its own length (the initial state for a length of 0).
        """
        if x.dim() != 3 or x.shape[0] < 1 or x.shape[2] != self.input_size:
            raise ValueError(f"x must be (T >= 1, B, {self.input_size}), not {tuple(x.shape)}")
        start = self.zero_state(x.shape[1]) if state is None else state
        self._check(x.shape[0], x.shape[1], start, lengths)
        weights = StackedWeights(self.spec, {term: getattr(self, term) for term in TERMS})
        h, final = self._run(
            self.spec,
            weights,
            x,
            start,
            None if lengths is None else lengths.cpu().long(),
            self.gate_activation,
            self.activation,
        )
        return h, self._state(final)

    def step(self, x: Tensor, state: UnitState | None = None) -> tuple[Tensor, UnitState]:
        """Run over one frame x (B, I); returns h (B, H) and the state."""
        h, after = self(x.unsqueeze(0), state)
        return h[0], after

    def _check(self, frames: int, rows: int, state: UnitState, lengths: Tensor | None) -> None:
        shapes = [tuple(tensor.shape) for tensor in state]
        if shapes != [(rows, self.hidden_size)] * len(self.spec.state):
            parts = ", ".join(self.spec.state)
            raise ValueError(f"state must be {parts}, each ({rows}, {self.hidden_size}): {shapes}")
        if lengths is not None and (
            tuple(lengths.shape) != (rows,) or ((lengths < 0) | (lengths > frames)).any()
        ):
            raise ValueError(f"lengths must be {rows} of 0..{frames}, not {lengths.tolist()}")

    def _state(self, tensors: Sequence[Tensor]) -> UnitState:
        return CellState(*tensors) if "c" in self.spec.state else State(*tensors)

    def extra_repr(self) -> str:
        """What `print(unit)` says beside the class."""
        return f"{self.spec.name}, {self.input_size} -> {self.hidden_size}"


class Stack(nn.Module):
    """Layers of one unit, each reading the one below; itself a unit, its state a tuple of states.

    Dropout acts between layers, on the outputs of all but the last (Zaremba et al. 2014).
    """

    def __init__(self, layers: Sequence[Unit], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)
        self.input_size, self.hidden_size = layers[0].input_size, layers[-1].hidden_size

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """The gates of all layers, "0.i" being gate i of the first."""
        return {
            f"{k}.{gate}": terms
            for k, layer in enumerate(self.units())
            for gate, terms in layer.gates().items()
        }

    def parameter_count(self) -> int:
        """The number of weights."""
        return sum(layer.parameter_count() for layer in self.units())

    def zero_state(self, batch_size: int) -> StackState:
        """The state before the first frame."""
        return tuple(layer.zero_state(batch_size) for layer in self.units())

    def forward(
        self, x: Tensor, state: StackState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        """As `Unit.forward`, layer upon layer."""
        if state is not None and len(state) != len(self.layers):
            raise ValueError(f"state must be that of {len(self.layers)} layers, not {len(state)}")
        after: list[UnitState] = []
        for k, layer in enumerate(self.units()):
            x, final = layer(
                x if k == 0 else self.dropout(x), None if state is None else state[k], lengths
            )
            after.append(final)
        return x, tuple(after)

    def step(self, x: Tensor, state: StackState | None = None) -> tuple[Tensor, StackState]:
        """As `Unit.step`, layer upon layer."""
        h, after = self(x.unsqueeze(0), state)
        return h[0], after

    def units(self) -> list[Unit]:
        """The layers, the lowest first."""
        return cast(list[Unit], list(self.layers))
