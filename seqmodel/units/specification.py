"""The specification: every unit in plain PyTorch, readable, slow, correct in float32 and float64.

This file is the ground truth that every faster backend is tested against, in outputs, final state
and every gradient. The step of each unit is in `families`.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodel.units.contract import Backend, Case
from seqmodel.units.definition import Function, State, UnitSpec
from seqmodel.units.weights import StackedWeights

Weights = Mapping[str, Mapping[str, Tensor | None]]
"""Gate -> term -> weight, None where the gate has no such term."""


def _hard_sigmoid(x: Tensor) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1).

    F.hardsigmoid is the same forward, but its slope is 1/6 in float32 even where x is float64.
    """
    return F.relu6(x + 3) / 6


GATE_ACTIVATIONS: Mapping[str, Function] = {"sigmoid": torch.sigmoid, "hard-sigmoid": _hard_sigmoid}
ACTIVATIONS: Mapping[str, Function] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
}


class NetInput:
    """W x_t + U h + V (.) c + b of each gate, with the terms that the gate has.

    W x + b does not depend on the state, so it is one matrix product over all frames, split into
    steps with unbind. (Indexing it at each step would make the backward pass quadratic in T.)
    """

    def __init__(self, weights: Weights, x: Tensor) -> None:
        self._weights = dict(weights)  # split into gates once, not at each step
        self._steps: dict[str, Sequence[Tensor | None]] = {}
        self._t = 0
        for gate, w in self._weights.items():
            if w["W"] is not None:
                self._steps[gate] = F.linear(x, w["W"], w["b"]).unbind(0)
            else:
                self._steps[gate] = [w["b"]] * x.shape[0]

    def at(self, t: int) -> "NetInput":
        """Move to frame `t`."""
        self._t = t
        return self

    def __call__(self, gate: str, h: Tensor, c: Tensor | None = None) -> Tensor:
        """The net input (B, H) of `gate` from h (B, H) and, through its peephole, c (B, H)."""
        w = self._weights[gate]
        total = self._steps[gate][self._t]
        if w["U"] is not None:
            total = h @ w["U"].T if total is None else torch.addmm(total, h, w["U"].T)
        if w["V"] is not None and c is not None:
            total = c * w["V"] if total is None else torch.addcmul(total, c, w["V"])
        return torch.zeros_like(h) if total is None else total.expand_as(h)

    def reset_after(self, gate: str, h: Tensor, r: Tensor) -> Tensor:
        """W x + b + r (.) (U h + bU): the reset gate acts on the product, as in torch.nn.GRU."""
        w, given = self._weights[gate], self._steps[gate][self._t]
        assert w["U"] is not None
        assert given is not None
        return torch.addcmul(given, r, F.linear(h, w["U"], w["bU"]))


def run(
    spec: UnitSpec,
    weights: StackedWeights,
    x: Tensor,
    state: State,
    lengths: Tensor | None,
    gate_activation: str,
    activation: str,
) -> tuple[Tensor, State]:
    """Run one layer over x (T, B, I) from `state`; see `contract.Run`."""
    s, phi = GATE_ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
    running = None
    if lengths is not None:
        running = (torch.arange(len(x)).unsqueeze(1) < lengths).unsqueeze(2).to(x.device)
        x = _where(running, x)
    net_input = NetInput(weights, x)
    outputs = []
    for t in range(len(x)):
        if running is None:
            state = spec.step(net_input.at(t), state, s, phi)
            outputs.append(state[0])
        else:
            # Rows that have ended compute on zeros: their own state could overflow, and the
            # gradient of the discarded result would be 0 * inf.
            before = tuple(_where(running[t], old) for old in state)
            after = spec.step(net_input.at(t), before, s, phi)
            state = tuple(torch.where(running[t], *pair) for pair in zip(after, state, strict=True))
            outputs.append(_where(running[t], state[0]))
    return torch.stack(outputs), state


def _where(condition: Tensor, values: Tensor) -> Tensor:
    """The values, or 0 where the condition is false; unlike multiplying by 0, this stops nan."""
    return torch.where(condition, values, 0)


def cost(case: Case) -> float:
    """Estimated seconds per time step.

    Measured on the CPU: about 50 us per gate for calls on small tensors, which is all that
    matters below H 200. Launching kernels on a GPU takes about as long.
    """
    return 50e-6 * len(case.spec.gates) + case.step_flops / 5e10


BACKEND = Backend("reference", lambda case: None, cost, run)
