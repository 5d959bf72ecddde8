"""Units as torch modules: weights, state, ragged batches and stacks, for any backend."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqmodel.errors import UsageError
from seqmodel.kernels.dropout import Dropout, dropout_factors
from seqmodel.units.backends import check_backend, choose_device, run
from seqmodel.units.definition import TERMS, UnitSpec, define, state_of, with_zoneout
from seqmodel.units.language import Start, UnitError, Weight
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS, Case, Weights, by_gate

UnitState = tuple[Tensor, ...]
"""A named tuple: h (B, H), then the unit's other states (B, H), such as c."""
StackState = tuple[UnitState, ...]
AnyState = UnitState | StackState

torch.serialization.add_safe_globals([state_of])  # torch.load needs it to read states


def is_stack(state: AnyState) -> TypeGuard[StackState]:
    """Whether this is the state of a stack."""
    return not isinstance(state[0], Tensor)


class Recurrent(nn.Module, ABC):
    """What layers and stacks share: how sequences are laid out."""

    batch_first = False
    """Whether x and h are (B, T, ...), like torch.nn's option of this name."""

    def forward(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """Like `over`; a PackedSequence instead of x and lengths gives h as one, as in torch.nn."""
        if not isinstance(x, Tensor):
            return _of_packed(self, x, state, lengths)
        if not self.batch_first or x.dim() != 3:
            return self.over(x, state, lengths)
        h, after = self.over(x.transpose(0, 1), state, lengths)
        return h.transpose(0, 1), after

    @abstractmethod
    def units(self) -> "list[Layer]":
        """The layers, bottom first."""

    def parameter_count(self) -> int:
        """The number of weights."""
        return sum(weight.numel() for weight in self.parameters())

    @abstractmethod
    def over(self, x: Tensor, state: Any = None, lengths: Any = None) -> tuple[Tensor, Any]:
        """Run over x (T, B, I) from `state`; returns h (T, B, H) and the state after."""

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run over one frame x (B, I); returns h (B, H) and the state."""
        time = int(self.batch_first)
        h, after = self(x.unsqueeze(time), state)
        return h.select(time, 0), after


class Layer(Recurrent):
    """One layer: a unit with equations, or the user's own module."""

    input_size: int
    hidden_size: int

    def units(self) -> "list[Layer]":
        return [self]

    @abstractmethod
    def noisy_weights(self) -> list[Tensor]:
        """The weights that weight noise is added to."""

    @abstractmethod
    def zero_state(self, batch_size: int) -> UnitState:
        """The initial state: tensors (B, ...) in the weights' dtype and on their device."""

    @abstractmethod
    def choose_device(self, option: str, batch_size: int) -> torch.device:
        """The device that `--device` auto, cpu or cuda selects.

        Raises:
            UsageError: if the device is not available, or the unit cannot run on it.
        """

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """The weights of each gate by term, if it has any."""
        return {}


class Unit(Layer):
    """One layer of a recurrent unit with equations.

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
        zoneout: float = 0.0,
    ) -> None:
        super().__init__()
        self.spec = spec
        if not 0 <= zoneout < 1:
            raise UsageError(f"zoneout must be at least 0 and below 1, not {zoneout}")
        self.zoneout = zoneout
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
        """Per gate: W uniform (Glorot), parts of U orthogonal; V and biases zero by default."""
        with torch.no_grad():
            for gate, terms in self.gates().items():
                if terms["W"] is not None:
                    nn.init.xavier_uniform_(terms["W"])
                for part in self._parts().get(gate, []):
                    nn.init.orthogonal_(part)
                for term in ("V", "b", "bU"):
                    if (weight := terms.get(term)) is not None:
                        _start(weight, self.spec.starts.get(Weight(term, gate)))

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """Views of the parameters, but for a U that is not whole; see `specification.by_gate`."""
        return by_gate(self.spec, self.weights())

    def weights(self) -> Weights:
        """The stacked weights of each term, every U whole; None for terms that the unit lacks."""
        own = self._parameters  # without those that a parametrization computes
        weights = {term: own[term] if term in own else getattr(self, term) for term in TERMS}
        if self.spec.forms:
            weights["U"] = torch.cat([self._dense(*parts) for parts in self._parts().items()])
        return weights

    def _parts(self) -> dict[str, tuple[Tensor, ...]]:
        """Gate -> the matrices that make up its U; views of the parameter."""
        if self.U is None:
            return {}
        gates = self.spec.gates_with("U")
        shapes = {gate: self.spec.matrices(gate, self.hidden_size) for gate in gates}
        sizes = [math.prod(shape) for gate_shapes in shapes.values() for shape in gate_shapes]
        flat = iter(self.U.view(-1).split_with_sizes(sizes))
        return {
            gate: tuple(next(flat).view(shape) for shape in gate_shapes)
            for gate, gate_shapes in shapes.items()
        }

    def _dense(self, gate: str, parts: tuple[Tensor, ...]) -> Tensor:
        """U (H, H) from the matrices that make it up."""
        form = self.spec.forms.get(Weight("U", gate))
        if form is None:
            return parts[0]
        if form.kind == "rank":
            return parts[0] @ parts[1]
        return torch.block_diag(*parts)  # type: ignore[no-untyped-call]

    def get_extra_state(self) -> Tensor:
        """The unit's equations and activations as bytes, since safetensors stores only tensors."""
        description = [self.spec.name, self.spec.statements, self.gate_activation, self.activation]
        return torch.tensor(list(json.dumps(description).encode()), dtype=torch.uint8, device="cpu")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Refuse another unit's weights; accept those of versions that stored no equations."""
        key, (*_, errors) = prefix + KEY, args
        own = self.spec, self.gate_activation, self.activation
        differs = difference(state_dict.pop(key), *own) if key in state_dict else None
        if differs is None:
            super()._load_from_state_dict(state_dict, prefix, *args)
        else:
            advice = f"make it so, or delete {key!r} to take them as they are"
            errors.append(f"these are the weights of another unit: {differs}; {advice}")

    def zero_state(self, batch_size: int) -> UnitState:
        W, size = self.W, (batch_size, self.hidden_size)
        return self.spec.state_type(*(W.new_zeros(size) for _ in self.spec.state))

    def over(
        self, x: Tensor, state: UnitState | None = None, lengths: Any = None
    ) -> tuple[Tensor, UnitState]:
        """Run over x (T, B, I) from `state` (zeros if None); returns h (T, B, H) and the state.

        `lengths` (B,), integers of any kind, each 0..T, make the rows ragged: h is zero from a
        row's length on, its final state is the one at its length (the initial state for 0), and
        nothing in x from there on affects any result, not even a gradient.

        Under autocast this computes in the type of the weights, whatever the float type of x.

        Raises:
            ValueError: if shapes, dtypes or devices do not match, or a length is out of range.
            UsageError: if the backend requested by name cannot run this.
        """
        if x.dim() != 3 or x.shape[0] < 1 or x.shape[2] != self.input_size:
            raise ValueError(f"x must be (T >= 1, B, {self.input_size}), not {tuple(x.shape)}")
        T, B, _ = x.shape
        case = self.case(B)
        kind = case.device.type
        # torch raises an error where a kind of device, such as meta, has no autocast.
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                if isinstance(state, tuple | list):
                    state = tuple(map(self._cast, state))
                return self.over(self._cast(x), state, lengths)
        start = self.zero_state(B) if state is None else state
        self._check(case, x, start)
        lengths = checked_lengths(lengths, T, B)
        zones: list[Tensor] = []
        if self.zoneout and self.training:
            case = case._replace(spec=with_zoneout(self.spec, None))
            shape = len(self.spec.state), T, B, self.hidden_size
            zones = [dropout_factors(x.new_empty(shape), self.zoneout)]
        h, final = run(self.backend, case, self.weights(), x, start, lengths, *zones)
        return h, self.spec.state_type(*final)

    def case(self, batch_size: int) -> Case:
        """The case to choose a backend for: this layer with its current dtype and device.

        The spec is for evaluation: with zoneout, states are mixed with the previous ones.
        """
        weight, spec = self.W, with_zoneout(self.spec, self.zoneout) if self.zoneout else self.spec
        return Case(
            spec, weight.dtype, weight.device, batch_size, self.input_size, self.hidden_size,
            self.gate_activation, self.activation, self.bias,
        )  # fmt: skip

    def choose_device(self, option: str, batch_size: int) -> torch.device:
        return choose_device(option, self.case(batch_size), self.backend)

    def noisy_weights(self) -> list[Tensor]:
        """The matrices and peepholes."""
        return [weight for term in "WUV" if (weight := getattr(self, term)) is not None]

    def _check(self, case: Case, x: Tensor, state: UnitState) -> None:
        expected = (case.batch_size, self.hidden_size)
        names = self.spec.state
        fits = len(state) == len(names) and all(s.shape == expected for s in state)
        if not fits or isinstance(state, Tensor):  # like torch.nn's, for all layers
            given = f"{type(state).__name__} of {[tuple(tensor.shape) for tensor in state]}"
            expected_text = f"a tuple of {', '.join(names)}, each {expected}"
            raise ValueError(f"state must be {expected_text}, not a {given}")
        for what, tensor in (("x", x), *zip(names, state, strict=True)):
            if tensor.dtype is not case.dtype or tensor.device != case.device:
                raise ValueError(
                    f"{what} must be {case.dtype} on {case.device} as the weights are, "
                    f"not {tensor.dtype} on {tensor.device}"
                )

    def _cast(self, tensor: Tensor) -> Tensor:
        """Convert like autocast: floats, except doubles, to the type of the weights."""
        eligible = tensor.is_floating_point() and tensor.dtype is not torch.float64
        return tensor.to(self.W.dtype) if eligible else tensor

    def extra_repr(self) -> str:
        return f"{self.spec.name}, {self.input_size} -> {self.hidden_size}"


def _start(vector: Tensor, start: Start | None) -> None:
    """Fill a vector with its initial values: zeros unless the unit states others."""
    if start is None or start.first == start.last:
        vector.fill_(0.0 if start is None else start.first)
    elif start.how == "uniform":
        vector.uniform_(min(start.first, start.last), max(start.first, start.last))
    else:
        ends = math.log10(start.first), math.log10(start.last)
        vector.copy_(torch.logspace(*ends, len(vector)))


def checked_lengths(lengths: Any, T: int, B: int) -> Tensor | None:
    """The lengths, int64 on the CPU; None if all rows have length T."""
    if lengths is None:
        return None
    if torch.compiler.is_dynamo_compiling():
        from seqmodel.units.uncompiled import uncompiled

        return uncompiled(checked_lengths, lengths, T, B)
    lengths = torch.as_tensor(lengths, device="cpu")
    values = lengths.tolist()  # plain integers: torch operations on so few take longer
    if B and (lengths.is_floating_point() or lengths.dtype is torch.bool):
        raise ValueError(f"lengths must be whole numbers, not {values}")
    if lengths.shape != (B,) or (values and not 0 <= min(values) <= max(values) <= T):
        raise ValueError(f"lengths must be {B} of 0..{T}, not {values}")
    # Copied, for the backward pass: the caller may change them.
    return lengths.to(torch.int64, copy=True) if values and min(values) < T else None


def _of_packed(
    unit: Recurrent, x: Any, state: AnyState | None, lengths: Any
) -> tuple[PackedSequence, Any]:
    """Run a unit or stack over a PackedSequence, as in torch.nn; states are in batch order."""
    if not isinstance(x, PackedSequence) or lengths is not None:
        kind = type(x).__name__
        raise ValueError(f"x must be a tensor, or a PackedSequence without lengths, not {kind}")
    padded, ends = pad_packed_sequence(x)
    h, after = unit.over(padded, state, ends)
    if x.sorted_indices is not None:
        h, ends = h.index_select(1, x.sorted_indices), ends[x.sorted_indices.cpu()]
    return x._replace(data=pack_padded_sequence(h, ends).data), after


class Stack(Recurrent):
    """Layers of one unit, each reading the output of the one below; the state is a tuple of states.

    Dropout acts between layers, on the outputs of all but the last (Zaremba et al. 2014).
    """

    def __init__(self, layers: Sequence[Layer], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)
        self.input_size, self.hidden_size = layers[0].input_size, layers[-1].hidden_size

    def gates(self) -> dict[str, dict[str, Tensor | None]]:
        """The gates of all layers; "0.i" is gate i of the first layer."""
        return {
            f"{k}.{gate}": terms
            for k, layer in enumerate(self.units())
            for gate, terms in layer.gates().items()
        }

    def choose_device(self, option: str, batch_size: int) -> torch.device:
        """The top layer's choice; the layers below differ at most in their input size."""
        return self.units()[-1].choose_device(option, batch_size)

    def zero_state(self, batch_size: int) -> StackState:
        """The initial state of every layer."""
        return tuple(layer.zero_state(batch_size) for layer in self.units())

    def over(
        self, x: Tensor, state: StackState | None = None, lengths: Any = None
    ) -> tuple[Tensor, StackState]:
        if state is not None and len(state) != len(self.layers):
            raise ValueError(f"state must have {len(self.layers)} layers, not {len(state)}")
        after: list[UnitState] = []
        for k, layer in enumerate(self.units()):
            x, final = layer(
                x if k == 0 else self.dropout(x), None if state is None else state[k], lengths
            )
            after.append(final)
        return x, tuple(after)

    def units(self) -> list[Layer]:
        return cast(list[Layer], list(self.layers))


def units_of(unit: Layer | Stack) -> list[Unit]:
    """The layers of a unit, bottom first; UsageError if one is a module without equations."""
    found = [layer for layer in unit.units() if isinstance(layer, Unit)]
    if len(found) < len(unit.units()):
        raise UsageError("the unit is a torch module, without the equations that this needs")
    return found


KEY = "_extra_state"
"""The key of torch.nn.Module.get_extra_state."""


def difference(description: Tensor, spec: UnitSpec, *activations: str) -> str | None:
    """How a `get_extra_state`'s unit differs from this one; None if weights mean the same."""
    try:
        name, statements, *others = json.loads(bytes(description.to(torch.uint8).tolist()))
        theirs = _meaning(define("\n".join(statements), name), *others)
    except (ValueError, TypeError, UnitError):
        return "what they say of it cannot be read"
    ours = _meaning(spec, *activations)
    for part in theirs | ours:
        them, us = (side.get(part, (None, f"no {part}")) for side in (theirs, ours))
        if them[0] != us[0]:
            return f"{name} has {them[1]} where this one has {us[1]}"
    return None


def _meaning(spec: UnitSpec, s: str, phi: str) -> dict[str, tuple[object, str]]:
    """Everything that the meaning of a unit's weights depends on, to compare and to show."""
    meaning: dict[str, tuple[object, str]] = {}
    for e in spec.equations:
        meaning[e.defines] = (meaning.get(e.defines), e.value), e.written
    for name, chosen in (("s", s), ("phi", phi)):
        meaning[name] = chosen, f"{name} = {chosen}"
    for term in TERMS:
        gates = spec.gates_with(term)
        meaning[term] = gates, f"the gates {' '.join(gates)}"
    for gate in spec.gates_with("U"):
        form = spec.forms.get(Weight("U", gate))
        meaning[f"U{gate}"] = form, f"a U{gate} of {form.text()}" if form else f"a whole U{gate}"
    return meaning
