"""The specification: every unit in plain PyTorch, readable, slow, correct in float32 and float64.

This file is the ground truth that every faster backend is tested against, in outputs, final state
and every gradient. It goes through the equations of a unit's text one by one.
"""

import operator
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodel.units.contract import Backend, Case
from seqmodel.units.definition import UnitSpec
from seqmodel.units.language import Node
from seqmodel.units.weights import Weights, by_gate


def _hard_sigmoid(x: Tensor) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1).

    F.hardsigmoid is the same forward, but its slope is 1/6 in float32 even where x is float64.
    """
    return F.relu6(x + 3) / 6


Function = Callable[[Tensor], Tensor]
States = Mapping[str, Tensor]

FUNCTIONS: Mapping[str, Function] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "exp": torch.exp,
}
GATE_ACTIVATIONS: Mapping[str, Function] = {"sigmoid": torch.sigmoid, "hard-sigmoid": _hard_sigmoid}
ACTIVATIONS: Mapping[str, Function] = {
    name: FUNCTIONS[name] for name in ("tanh", "sigmoid", "relu")
}
OPERATIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "U": F.linear,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class _Step:
    """The equations of a unit at one frame.

    W x does not depend on the state, so each is one product over all frames, split into steps with
    unbind. (Indexing it at each step would make the backward pass quadratic in T.)
    """

    def __init__(
        self, spec: UnitSpec, weights: Weights, x: Tensor, functions: Mapping[str, Function]
    ) -> None:
        self._spec, self._like = spec, x
        self._operations: Mapping[str, Callable[..., Tensor]] = {**OPERATIONS, **functions}
        self._weights = by_gate(spec, weights)
        self._inputs: dict[str, Sequence[Tensor]] = {
            gate: F.linear(x, terms["W"]).unbind(0)
            for gate, terms in self._weights.items()
            if terms["W"] is not None
        }
        self._rows: Tensor | None = None

    def __call__(
        self, t: int, state: Sequence[Tensor], rows: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The state after frame `t` from that before it, each (B, H); of these rows of x alone."""
        now: dict[str, Tensor] = {}
        self._rows = rows
        old, h = dict(zip(self._spec.state, state, strict=True)), state[0]
        for equation in self._spec.equations:
            now[equation.name] = self._value(equation.value, t, old, now)
        return tuple(now[state].expand_as(h) for state in self._spec.state)

    def _value(self, node: Node, t: int, old: States, now: States) -> Tensor:
        """A tensor (B, H), (H,) or, of numbers, ()."""
        args = node.args
        if node.op == "number":
            return self._like.new_tensor(args[0])
        if node.op in ("now", "old"):
            return (now if node.op == "now" else old)[args[0]]
        if node.op == "W":
            product = self._inputs[args[0].gate][t]
            return product if self._rows is None else product.index_select(0, self._rows)
        if node.op == "vector":
            weight = self._weights[args[0].gate][args[0].term]
            return old["h"].new_zeros(old["h"].shape[1]) if weight is None else weight
        values: list[Tensor | None]
        values = [self._value(arg, t, old, now) for arg in args if isinstance(arg, Node)]
        if node.op == "U":
            values.append(self._weights[args[0].gate]["U"])
        return self._operations[node.op](*values)


def run(
    case: Case, weights: Weights, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one layer over x (T, B, I) from `state`; see `contract.Run`."""
    chosen = {"s": GATE_ACTIVATIONS[case.gate_activation], "phi": ACTIVATIONS[case.activation]}
    running = None
    if lengths is not None:
        running = (torch.arange(len(x)).unsqueeze(1) < lengths).unsqueeze(2).to(x.device)
        x = torch.where(running, x, 0)  # unlike multiplying by 0, this stops nan
    step = _Step(case.spec, weights, x, {**FUNCTIONS, **chosen})
    outputs = []
    for t in range(len(x)):
        if running is None:
            state = step(t, state)
            outputs.append(state[0])
        else:
            # Rows that have ended take no part: the gradient of a discarded nan would be nan.
            rows = running[t, :, 0].nonzero()[:, 0]
            after = step(t, tuple(old.index_select(0, rows) for old in state), rows)
            state = tuple(
                old.index_copy(0, rows, new) for old, new in zip(state, after, strict=True)
            )
            outputs.append(torch.zeros_like(state[0]).index_copy(0, rows, after[0]))
    return torch.stack(outputs), state


def cost(case: Case) -> float:
    """Estimated seconds per time step.

    Measured on the CPU: about 50 us per gate for calls on small tensors, which is all that
    matters below H 200. Launching kernels on a GPU takes about as long.
    """
    return 50e-6 * len(case.spec.gates) + case.step_flops / 5e10


BACKEND = Backend("reference", lambda case: None, cost, run)
