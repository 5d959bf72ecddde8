"""Runs a cell's equations over NumPy arrays, forward and backward, without LLVM: for debugging.

A breakpoint or a print in a family's cell shows numbers here, whereas the kernels only emit
instructions. It does what the kernels do, one step at a time, and is slow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmodel.units.cells import Value
from seqmodel.units.cpu.cell_plan import CellPlan
from seqmodel.units.registry import unit_spec

Array = NDArray[np.float64]
Weights = Mapping[str, Array | None]
"""Term -> weight, stacked as in `Unit`: W (gates H, I), U (gates H, H), V (gates, H), b, bU."""


@dataclass(frozen=True)
class ArrayActivation:
    """An activation over arrays, and its slope as a function of its value."""

    value: Callable[[Array], Array]
    slope: Callable[[Value], Value]

    def __call__(self, x: Array) -> Array:
        """The activation of x."""
        return self.value(x)


def _inside(low: float, high: float, slope: float) -> Callable[[Array], Array]:
    return lambda y: np.where((y > low) & (y < high), slope, 0.0)


_SIGMOID = ArrayActivation(lambda x: 0.5 + 0.5 * np.tanh(0.5 * x), lambda y: y * (1.0 - y))
GATE_ACTIVATIONS = {
    "sigmoid": _SIGMOID,
    "hard-sigmoid": ArrayActivation(lambda x: np.clip(x / 6 + 0.5, 0, 1), _inside(0, 1, 1 / 6)),
}
ACTIVATIONS = {
    "tanh": ArrayActivation(np.tanh, lambda y: 1.0 - y * y),
    "sigmoid": _SIGMOID,
    "relu": ArrayActivation(lambda x: np.maximum(x, 0.0), _inside(0, np.inf, 1.0)),
}


@dataclass
class Step:
    """One step's slots and states, each (B, H); see `cells.Forward` and `cells.Backward`."""

    plan: CellPlan
    s: ArrayActivation
    phi: ArrayActivation
    weights: Mapping[tuple[str, str], Array]
    """(term, gate) -> the gate's part of the weight."""
    slots: dict[str, Array]
    before: dict[str, Array]
    after: dict[str, Array]

    def net(self, gate: str, c: Array | None = None) -> Array:
        """W x + U h' + V c + b, with the terms that the gate has."""
        terms = self.plan.spec.gates[gate]
        total = self.slots[gate] if "W" in terms or "U" in terms else np.zeros_like(self.old("h"))
        if c is not None and ("V", gate) in self.weights:
            total = total + self.weights["V", gate] * c
        return total + self.weights.get(("b", gate), 0.0)

    def kept(self, slot: str) -> Array:
        """What the slot holds."""
        return self.slots[slot]

    def keep(self, slot: str, value: Array) -> None:
        """Store a value in the slot."""
        self.slots[slot] = value

    def old(self, state: str) -> Array:
        """The state before the step."""
        return self.before[state]

    def new(self, state: str, value: Array) -> None:
        """Set the state after the step."""
        self.after[state] = value

    def now(self, state: str) -> Array:
        """The state after the step."""
        return self.after[state]

    def second_bias(self, gate: str) -> Array | float:
        """The bias bU of the gate."""
        return self.weights.get(("bU", gate), 0.0)


@dataclass
class BackwardStep:
    """The gradients of a step; see `cells.Backward`."""

    step: Step
    d_after: dict[str, Array]
    d_before: dict[str, Array]
    d_slots: dict[str, Array]
    d_vectors: dict[tuple[str, str], Array]
    """(term, gate) -> the sum so far of the gradient of b, V or bU."""

    @property
    def s(self) -> ArrayActivation:
        """The gate activation."""
        return self.step.s

    @property
    def phi(self) -> ArrayActivation:
        """The activation."""
        return self.step.phi

    def kept(self, slot: str) -> Array:
        """What the forward pass kept."""
        return self.step.kept(slot)

    def old(self, state: str) -> Array:
        """The state before the step."""
        return self.step.old(state)

    def now(self, state: str) -> Array:
        """The state after the step."""
        return self.step.now(state)

    def d_now(self, state: str) -> Array:
        """The gradient of the state after the step."""
        return self.d_after[state]

    def d_net(self, gate: str, value: Array, c: Array | None = None) -> Array:
        """Set the gradient of the gate's net input; returns the gradient through the peephole."""
        self.d_slots[gate] = value
        self._add("b", gate, value)
        if c is None or ("V", gate) not in self.step.weights:
            return np.zeros_like(value)
        self._add("V", gate, value * c)
        return value * self.step.weights["V", gate]

    def d_slot(self, slot: str, value: Array) -> None:
        """Set the gradient of a slot."""
        self.d_slots[slot] = value

    def d_second_bias(self, gate: str, value: Array) -> None:
        """Add to the gradient of bU."""
        self._add("bU", gate, value)

    def d_kept(self, slot: str) -> Array:
        """The gradient of a slot."""
        return self.d_slots[slot]

    def passed(self, state: str) -> Array:
        """The gradient passed on so far to the state before the step."""
        return self.d_before[state]

    def pass_on(self, state: str, value: Array) -> None:
        """Set the gradient of the state before the step."""
        self.d_before[state] = value

    def _add(self, term: str, gate: str, value: Array) -> None:
        if (term, gate) in self.d_vectors:
            self.d_vectors[term, gate] = self.d_vectors[term, gate] + value.sum(0)


class Run:
    """A unit run over x (T, B, I) from `state`, one array (B, H) for each of the unit's states.

    `h` (T, B, H) and `final` are its outputs; `steps` holds every slot and state of every step.
    """

    def __init__(
        self,
        name: str,
        weights: Weights,
        x: Array,
        state: tuple[Array, ...],
        gate_activation: str = "sigmoid",
        activation: str = "tanh",
    ) -> None:
        spec = unit_spec(name)
        self.plan = CellPlan(spec, weights.get("b") is not None)
        self.x, self._stacked, H = x, weights, state[0].shape[1]
        self._parts: dict[tuple[str, str], Array] = {}
        for term, weight in weights.items():
            if weight is not None:
                owners = self.plan.owners(term)
                shape = (len(owners), H) if weight.ndim == 1 else (len(owners), -1, weight.shape[1])
                parts = weight if term == "V" else weight.reshape(shape)
                self._parts |= {(term, gate): parts[k] for k, gate in enumerate(owners)}
        functions = GATE_ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
        now = dict(zip(spec.state, state, strict=True))
        self.steps: list[Step] = []
        for frame in x:
            step = Step(self.plan, *functions, self._parts, {}, now, {})
            for gate in self.plan.owners("W"):
                step.slots[gate] = frame @ self._parts["W", gate].T
            for stage in self.plan.cell.stages:
                for p in self.plan.kept(stage.projections):
                    source = step.old("h") if p.source == "h" else step.slots[p.source]
                    for gate, slot in zip(p.gates, self._targets(p.into, p.gates), strict=True):
                        projected = source @ self._parts["U", gate].T
                        adds = self.plan.adds(p)
                        step.slots[slot] = step.slots[slot] + projected if adds else projected
                stage.forward(step)
            self.steps.append(step)
            now = step.after
        self.h = np.stack([step.after["h"] for step in self.steps])
        self.final = tuple(now[state] for state in spec.state)

    def backward(self, d_h: Array, d_final: tuple[Array, ...]) -> dict[str, Array]:
        """Gradients by name: x, the weights' terms, and first_h (and first_c)."""
        state, gates = self.plan.spec.state, self.plan.spec.gates
        d_state = dict(zip(state, d_final, strict=True))
        d_parts = {key: np.zeros_like(part) for key, part in self._parts.items()}
        d_x = np.zeros_like(self.x)
        for t in reversed(range(len(self.steps))):
            step, d_before = self.steps[t], {name: np.zeros_like(d_h[t]) for name in state}
            d_state["h"] = d_state["h"] + d_h[t]
            back = BackwardStep(step, d_state, d_before, {}, d_parts)
            for stage in reversed(self.plan.cell.stages):
                stage.backward(back)
                for p in self.plan.kept(stage.projections):
                    source = step.old("h") if p.source == "h" else step.slots[p.source]
                    d_source = np.zeros_like(source)
                    for gate, slot in zip(p.gates, self._targets(p.into, p.gates), strict=True):
                        d_slot = back.d_slots[slot]
                        d_parts["U", gate] += d_slot.T @ source
                        d_source += d_slot @ self._parts["U", gate]
                    if p.source == "h":
                        d_before["h"] = d_before["h"] + d_source
                    else:
                        back.d_slots[p.source] = d_source
            for gate in self.plan.owners("W"):
                d_parts["W", gate] += back.d_slots[gate].T @ self.x[t]
                d_x[t] += back.d_slots[gate] @ self._parts["W", gate]
            d_state = d_before
        found = {f"first_{name}": d_state[name] for name in state} | {"x": d_x}
        for term, weight in self._stacked.items():
            if weight is not None:
                of_gates = [d_parts[term, gate] for gate in gates if (term, gate) in d_parts]
                found[term] = np.stack(of_gates).reshape(weight.shape)
        return found

    def _targets(self, into: str, gates: tuple[str, ...]) -> tuple[str, ...]:
        """The slots that a projection fills."""
        start = self.plan.slot(into)
        return self.plan.cell.slots[start : start + len(gates)]
