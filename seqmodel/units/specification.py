"""The interface of a backend, and the specification: every unit in plain PyTorch.

The specification is readable, slow, and correct in float32 and float64: the ground truth that every
faster backend is tested against, in outputs, final state and every gradient. It evaluates the
equations of a unit's text one by one.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodel.kernels.device import transformed
from seqmodel.units.definition import UnitSpec
from seqmodel.units.language import Node, Weight

Weights = Mapping[str, Tensor | None]
"""Term -> the weights of all its gates, stacked as in `module.Unit`; None if there are none.

Fast backends use them as they are: slicing out every gate at each call, and adding up the gradients
of the slices, costs more than a small layer's arithmetic.
"""
State = tuple[Tensor, ...]


class Case(NamedTuple):
    """Everything that decides whether a backend can run, and how fast.

    A tuple, since one is created on every call: a frozen dataclass takes five times as long.
    """

    spec: UnitSpec
    dtype: torch.dtype
    device: torch.device
    batch_size: int
    input_size: int
    hidden_size: int
    gate_activation: str = "sigmoid"
    activation: str = "tanh"
    bias: bool = True

    @property
    def step_flops(self) -> int:
        """Floating-point operations of one time step's matrix products, forward and backward.

        Each matrix takes part in three products: forward, backward to its input, and for its own
        gradient. All other work is linear in H.
        """
        spec, H = self.spec, self.hidden_size
        elements = len(spec.gates_with("W")) * H * self.input_size
        elements += len(spec.gates_with("U")) * H * H
        return 3 * 2 * self.batch_size * elements


@dataclass(frozen=True)
class Backend:
    """One implementation of the units."""

    name: str
    unsupported_reason: Callable[[Case], str | None]
    """Why it cannot run the case; None if it can. Called on every run, so it must be cheap."""
    run: Callable[..., tuple[Tensor, State]]
    """Runs one layer over time; see `run` below."""


def opaque_reason(case: Case) -> str | None:
    """Why a backend that does not consist of plain torch operations cannot run the case now, if so.

    torch.compile is not a reason: it leaves such backends out of its graphs; see `uncompiled`.
    """
    if case.dtype is not torch.float32 and case.dtype is not torch.float64:
        return f"it computes in float32 and float64, not in {case.dtype}"
    if transformed() and not torch.compiler.is_dynamo_compiling():
        return "torch.func, forward-mode differentiation and exports need plain torch operations"
    return None


def by_gate(spec: UnitSpec, weights: Weights) -> dict[str, dict[str, Tensor | None]]:
    """Views: gate -> {"W": (H, I), "U": (H, H), "V": (H,), "b": (H,)}, None if absent; any "bU"."""
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


def _hard_sigmoid(x: Tensor) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1).

    F.hardsigmoid is the same forward, but its slope is 1/6 in float32 even where x is float64.
    """
    return F.relu6(x + 3) / 6


Function = Callable[..., Tensor]

FUNCTIONS: Mapping[str, Function] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "mean": lambda x: x.mean(-1, keepdim=True),
    "where": lambda a, b, c, d: torch.where(a < b, c, d),
}
GATE_ACTIVATIONS: Mapping[str, Function] = {"sigmoid": torch.sigmoid, "hard-sigmoid": _hard_sigmoid}
ACTIVATIONS: Mapping[str, Function] = {
    name: FUNCTIONS[name] for name in ("tanh", "sigmoid", "relu")
}
ARITHMETIC: Mapping[str, Function] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


def run(
    case: Case, weights: Weights, x: Tensor, state: State, lengths: Tensor | None,
    zones: Tensor | None = None,
) -> tuple[Tensor, State]:  # fmt: skip
    """Run one layer over x (T, B, I), T >= 1, from `state`: tensors (B, H) in the unit's order.

    Returns the output h (T, B, H) and the final state, each (B, H); differentiable in x, the
    weights and the initial state.

    `lengths` (B,), int64 on the CPU, each 0..T, makes the rows ragged; None means that all have
    length T. From a row's length on, h is exactly zero; its final state is the one at its length,
    the initial state for 0. Nothing in x at or beyond a row's length, not even nan, reaches an
    output, a final state or a gradient, and x's own gradient is zero there.

    `zones` (S, T, B, H) holds numbers for each of the S states of a unit that reads them; see
    `definition.with_zoneout`. They have no gradient.

    An empty batch gives empty outputs and zero gradients.
    """
    gates: Mapping[str, Mapping[str, Any]] = by_gate(case.spec, weights)
    names = case.spec.state
    functions = {**FUNCTIONS, **ARITHMETIC}
    functions["s"] = GATE_ACTIVATIONS[case.gate_activation]
    functions["phi"] = ACTIVATIONS[case.activation]
    rows: Tensor | None = None
    running = None
    if lengths is not None:
        running = (torch.arange(len(x)).unsqueeze(1) < lengths).to(x.device)
        x = torch.where(running.unsqueeze(2), x, 0)  # unlike multiplying by 0, this stops nan
    # W x does not depend on the state, so each is one product over all frames, split into steps
    # with unbind: indexing it at each step would make the backward pass quadratic in T.
    inputs: dict[Weight | str, tuple[Tensor, ...]] = {
        Weight("W", gate): F.linear(x, terms["W"]).unbind()
        for gate, terms in gates.items()
        if terms["W"] is not None
    }
    if zones is not None:
        inputs |= {name: zone.unbind() for name, zone in zip(names, zones, strict=True)}

    def value(node: Node, t: int, old: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> Tensor:
        """A tensor (B, H) or (H,); for means (B, 1) or (1,); for numbers ()."""
        args = node.args
        match node.op:
            case "number":
                return x.new_tensor(args[0])
            case "now" | "old":
                return (now if node.op == "now" else old)[args[0]]
            case "W" | "zone":
                inputs_now = inputs[args[0]][t]
                return inputs_now if rows is None else inputs_now.index_select(0, rows)
            case "U":
                return F.linear(value(args[1], t, old, now), gates[args[0].gate]["U"])
            case "vector":
                weight = gates[args[0].gate][args[0].term]
                return old["h"].new_zeros(case.hidden_size) if weight is None else weight
        return functions[node.op](*(value(arg, t, old, now) for arg in args))

    outputs = []
    for t in range(len(x)):
        before = state
        if running is not None:
            # Rows that have ended take no part: the gradient of a discarded nan would be nan.
            rows = running[t].nonzero()[:, 0]
            before = tuple(old.index_select(0, rows) for old in state)
        now: dict[str, Tensor] = {}
        old = dict(zip(names, before, strict=True))
        for equation in case.spec.equations:
            now[equation.name] = value(equation.value, t, old, now)
        after = tuple(now[name].expand_as(before[0]) for name in names)
        if rows is None:
            state = after
            outputs.append(after[0])
        else:
            state = tuple(s.index_copy(0, rows, new) for s, new in zip(state, after, strict=True))
            outputs.append(torch.zeros_like(state[0]).index_copy(0, rows, after[0]))
    return torch.stack(outputs), state


BACKEND = Backend("reference", lambda case: None, run)
