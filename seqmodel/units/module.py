"""Units as torch modules: weights, state, ragged batches and stacks, for any backend."""

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn

from seqmodel.errors import UsageError
from seqmodel.kernels.dropout import Dropout
from seqmodel.units.backends import backend_for, check_backend
from seqmodel.units.contract import Case
from seqmodel.units.definition import TERMS, UnitSpec
from seqmodel.units.language import Weight
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS
from seqmodel.units.weights import Weights, by_gate

UnitState = tuple[Tensor, ...]
"""A named tuple: h (B, H), then a unit's other states (B, H), such as c."""
StackState = tuple[UnitState, ...]
AnyState = UnitState | StackState


def is_stack(state: AnyState) -> TypeGuard[StackState]:
    """Whether it is the state of a stack."""
    return not isinstance(state[0], Tensor)


class Unit(nn.Module):
    """One layer of a recurrent unit.

    The weights of all gates are stacked along the first dimension, one parameter per term: W
    (gates x H, I), U (gates x H, H), V (gates, H), b and bU (gates x H); `gates()` splits them.
    """

    spec: UnitSpec
    W: nn.Parameter  # the only term that every unit has
    U: nn.Parameter | None

    def __init__(
        self,
        spec: UnitSpec,
        input_size: int,
        hidden_size: int,
        *,
        backend: str = "auto",
        gate_activation: str = "sigmoid",
        activation: str = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.spec = spec
        if input_size < 1 or hidden_size < 1:
            raise UsageError(f"unit sizes must be at least 1, not {input_size} and {hidden_size}")
        for option, value, choices in (
            ("gate activation", gate_activation, GATE_ACTIVATIONS),
            ("activation", activation, ACTIVATIONS),
        ):
            if value not in choices:
                names = ", ".join(choices)
                raise UsageError(f"there is no {option} {value!r}; choose one of {names}")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.gate_activation, self.activation, self.bias = gate_activation, activation, bias
        self.backend = check_backend(backend)
        shapes = self.spec.shapes(input_size, hidden_size, bias=bias)
        for term in TERMS:
            weight = nn.Parameter(torch.empty(shapes[term])) if term in shapes else None
            self.register_parameter(term, weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Per gate: W uniform (Glorot), U orthogonal; V and biases zero unless the unit says so."""
        with torch.no_grad():
            for gate, terms in self.gates().items():
                if terms["W"] is not None:
                    nn.init.xavier_uniform_(terms["W"])
                if terms["U"] is not None:
                    nn.init.orthogonal_(terms["U"])
                for term in ("V", "b", "bU"):
                    weight = terms.get(term)
                    if weight is not None:
                        weight.fill_(self.spec.starts.get(Weight(term, gate), 0.0))

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """See `weights.by_gate`; views of the parameters."""
        return by_gate(self.spec, self.weights())

    def weights(self) -> Weights:
        """The stacked weights of each term; None for those that the unit lacks."""
        return {term: getattr(self, term) for term in TERMS}

    def parameter_count(self) -> int:
        """The number of weights."""
        return self.spec.parameter_count(self.input_size, self.hidden_size, bias=self.bias)

    def zero_state(self, batch_size: int) -> UnitState:
        """The initial state: zeros (B, H) of the weights' dtype and device."""
        return self._state([self.W.new_zeros(batch_size, self.hidden_size)] * len(self.spec.state))

    def forward(
        self, x: Tensor, state: UnitState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, UnitState]:
        """Run over x (T, B, I) from `state` (zeros if None); returns h (T, B, H) and the state.

        `lengths` (B,), each 0..T, makes the rows ragged: h is zero from a row's length on, its
        final state is the one at its length (the initial state for 0), and nothing in x from there
        on affects any result, not even a gradient.

        Raises:
            ValueError: if shapes, dtypes or devices do not match, or a length is out of range.
            UsageError: if the backend requested by name cannot run this.
        """
        if x.dim() != 3 or x.shape[0] < 1 or x.shape[2] != self.input_size:
            raise ValueError(f"x must be (T >= 1, B, {self.input_size}), not {tuple(x.shape)}")
        T, B, _ = x.shape
        case = self.case(B)
        start = self.zero_state(B) if state is None else state
        self._check(case, x, start)
        run = backend_for(self.backend, case).run
        h, final = run(case, self.weights(), x, start, _checked_lengths(lengths, T, B))
        return h, self._state(final)

    def step(self, x: Tensor, state: UnitState | None = None) -> tuple[Tensor, UnitState]:
        """Run over one frame x (B, I); returns h (B, H) and the state."""
        h, after = self(x.unsqueeze(0), state)
        return h[0], after

    def case(self, batch_size: int) -> Case:
        """The case to choose a backend for: this layer with its current dtype and device."""
        weight = self.W
        return Case(
            self.spec, weight.dtype, weight.device, batch_size, self.input_size, self.hidden_size,
            self.gate_activation, self.activation, self.bias,
        )  # fmt: skip

    def _check(self, case: Case, x: Tensor, state: UnitState) -> None:
        expected = (case.batch_size, self.hidden_size)
        if len(state) != len(self.spec.state) or any(s.shape != expected for s in state):
            shapes = [tuple(tensor.shape) for tensor in state]
            raise ValueError(
                f"state must be {', '.join(self.spec.state)}, each {expected}: {shapes}"
            )
        for what, tensor in (("x", x), *zip(self.spec.state, state, strict=True)):
            if tensor.dtype is not case.dtype or tensor.device != case.device:
                raise ValueError(
                    f"{what} must be {case.dtype} on {case.device} as the weights are, "
                    f"not {tensor.dtype} on {tensor.device}"
                )

    def _state(self, tensors: Sequence[Tensor]) -> UnitState:
        state: UnitState = _state_type(self.spec.state)(*tensors)
        return state

    def extra_repr(self) -> str:
        """What `print(unit)` shows inside the parentheses."""
        return f"{self.spec.name}, {self.input_size} -> {self.hidden_size}"


@cache
def _state_type(names: tuple[str, ...]) -> Any:
    return namedtuple("State", names, rename=True)


def _checked_lengths(lengths: Tensor | None, T: int, B: int) -> Tensor | None:
    """The lengths, int64 on the CPU; None if all rows have length T."""
    if lengths is None:
        return None
    lengths = lengths.to("cpu", torch.int64)
    values = lengths.tolist()  # plain integers: torch operations on so few take longer
    if lengths.shape != (B,) or (values and not 0 <= min(values) <= max(values) <= T):
        raise ValueError(f"lengths must be {B} of 0..{T}, not {values}")
    return lengths if values and min(values) < T else None


class Stack(nn.Module):
    """Layers of one unit, each reading the output of the one below; the state is a tuple of states.

    Dropout acts between layers, on the outputs of all but the last (Zaremba et al. 2014).
    """

    def __init__(self, layers: Sequence[Unit], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)
        self.input_size, self.hidden_size = layers[0].input_size, layers[-1].hidden_size

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """The gates of all layers; "0.i" is gate i of the first."""
        return {
            f"{k}.{gate}": terms
            for k, layer in enumerate(self.units())
            for gate, terms in layer.gates().items()
        }

    def parameter_count(self) -> int:
        """The number of weights."""
        return sum(layer.parameter_count() for layer in self.units())

    def case(self, batch_size: int) -> Case:
        """The case of the top layer; those below differ from it at most in their input size."""
        return self.units()[-1].case(batch_size)

    def zero_state(self, batch_size: int) -> StackState:
        """The initial state of every layer."""
        return tuple(layer.zero_state(batch_size) for layer in self.units())

    def forward(
        self, x: Tensor, state: StackState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        """As `Unit.forward`, layer by layer."""
        if state is not None and len(state) != len(self.layers):
            raise ValueError(f"state must have {len(self.layers)} layers, not {len(state)}")
        after: list[UnitState] = []
        for k, layer in enumerate(self.units()):
            x, final = layer(
                x if k == 0 else self.dropout(x), None if state is None else state[k], lengths
            )
            after.append(final)
        return x, tuple(after)

    def step(self, x: Tensor, state: StackState | None = None) -> tuple[Tensor, StackState]:
        """As `Unit.step`, layer by layer."""
        h, after = self(x.unsqueeze(0), state)
        return h[0], after

    def units(self) -> list[Unit]:
        """The layers, bottom first."""
        return cast(list[Unit], list(self.layers))
