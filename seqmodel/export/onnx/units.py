"""Units: one operator over time for the nine that have one, else a scan over their equations.

ONNX's GRU weighs the old state with z, where ours weigh the candidate: 1 - s(x) = s(-x), so their z
has its weights negated. A gate that lacks a term has zeros there. The minimal gated unit is a gru
whose two gates are one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.export.onnx.graph import Graph, Symbol, Value
from seqmodel.units import UNITS
from seqmodel.units.language import Node, Weight
from seqmodel.units.module import Unit


class Operator(NamedTuple):
    """ONNX's operator for a unit."""

    op: str
    gates: tuple[str, ...]
    """Our gates in the operator's order."""
    reset_after: int = 0
    """Of a GRU, `linear_before_reset`."""
    negated: tuple[int, ...] = ()
    """The places of gates that are one minus the operator's."""


OPERATORS: Mapping[str, Operator] = {
    "tanh": Operator("RNN", ("h",)),
    "lstm": Operator("LSTM", ("i", "o", "f", "c")),
    "lstm-nopeephole": Operator("LSTM", ("i", "o", "f", "c")),
    **dict.fromkeys(("gru", "gru1", "gru2", "gru3"), Operator("GRU", ("z", "r", "n"), 0, (0,))),
    "mgu": Operator("GRU", ("f", "f", "n"), 0, (0,)),
    "gru-reset-after": Operator("GRU", ("z", "r", "n"), 1),
}
_FUNCTIONS = {
    "sigmoid": "Sigmoid", "hard-sigmoid": "HardSigmoid", "tanh": "Tanh", "relu": "Relu",
    "softplus": "Softplus", "exp": "Exp", "sqrt": "Sqrt",
}  # fmt: skip
_SLOPE = {"alpha": 1 / 6, "beta": 0.5}
"""Of our hard sigmoid; ONNX's own is steeper."""
_ARITHMETIC = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div"}


def array(weight: Tensor) -> NDArray[np.float32]:
    """A weight as the graph stores it."""
    found: NDArray[np.float32] = weight.detach().cpu().float().numpy()
    return found


def over_time(
    g: Graph, unit: Unit, x: Symbol, state: Sequence[Symbol]
) -> tuple[Symbol, list[Symbol]]:
    """Run a layer over x (T, B, I) from its state, each (B, H): h (T, B, H), the new state."""
    if unit.case(1).spec is UNITS.get(unit.spec.name):  # not a text that only has the name of one
        return _operator(g, unit, x, state)

    def body(old: list[Symbol], rows: list[Symbol]) -> tuple[list[Symbol], list[Symbol]]:
        new = _Step(g, unit, rows[0], old).after()
        return new, new[:1]

    after, (h,) = g.scan(body, state, [x @ g.constant(array(unit.W).T, "W")])
    return h, after


def resting(
    g: Graph, unit: Unit, x: Symbol, moves: Symbol, state: Sequence[Symbol]
) -> tuple[Symbol, list[Symbol]]:
    """The same of a layer that makes a step only where it `moves` (T, 1), and keeps its h."""

    def body(old: list[Symbol], rows: list[Symbol]) -> tuple[list[Symbol], list[Symbol]]:
        _, after = over_time(g, unit, g.unsqueeze(rows[0], 0), old)
        new = [g("Where", rows[1], *both) for both in zip(after, old, strict=True)]
        return new, new[:1]

    after, (h,) = g.scan(body, state, [x, moves])
    return h, after


def _operator(
    g: Graph, unit: Unit, x: Symbol, state: Sequence[Symbol]
) -> tuple[Symbol, list[Symbol]]:
    chosen, H, gates = OPERATORS[unit.spec.name], unit.hidden_size, unit.gates()

    def stacked(term: str, *shape: int) -> NDArray[np.float32]:
        weights = [gates[gate].get(term) for gate in chosen.gates]
        arrays = [np.zeros(shape, np.float32) if w is None else array(w) for w in weights]
        for place in chosen.negated:
            arrays[place] = -arrays[place]
        return np.concatenate(arrays)[np.newaxis]

    inputs = [
        g.constant(stacked("W", H, unit.input_size), "W"),
        g.constant(stacked("U", H, H), "U"),
        g.constant(np.concatenate([stacked("b", H), stacked("bU", H)], 1), "b"),
        None,  # lengths: all rows are as long
        *(g.unsqueeze(each, 0) for each in state),
    ]
    attributes: dict[str, object] = {"hidden_size": H}
    functions = [_FUNCTIONS[unit.activation]]
    if chosen.op != "RNN":
        functions.insert(0, _FUNCTIONS[unit.gate_activation])
    if chosen.op == "LSTM":
        functions.append(functions[1])
        if unit.weights()["V"] is not None:
            inputs.append(g.constant(stacked("V", H)[:, : 3 * H], "V"))  # c's is zero
    if chosen.op == "GRU":
        attributes["linear_before_reset"] = chosen.reset_after
    if "HardSigmoid" in functions:
        attributes |= {f"activation_{name}": [value] for name, value in _SLOPE.items()}
    attributes["activations"] = functions
    h, *after = g.several(1 + len(state), chosen.op, x, *inputs, **attributes)
    return g.squeeze(h, 1), [g.squeeze(each, 0) for each in after]


class _Step:
    """A unit's equations, one by one, as in `units.specification`.

    `products` (B, gates H) holds W x of all gates side by side.
    """

    def __init__(self, g: Graph, unit: Unit, products: Symbol, state: Sequence[Symbol]) -> None:
        self._g, self._unit, self._gates = g, unit, unit.gates()
        self._old = dict(zip(unit.spec.state, state, strict=True))
        with_x = unit.spec.gates_with("W")
        parts = g.split(products, [unit.hidden_size] * len(with_x), 1)
        self._inputs = dict(zip(with_x, parts, strict=True))
        self._now: dict[str, Value] = {}
        self._with_rows: set[str] = set()

    def after(self) -> list[Symbol]:
        """The state, each (B, H)."""
        for name, value, *_ in self._unit.case(1).spec.equations:
            self._now[name] = self._value(value)
            if self._has_rows(value):
                self._with_rows.add(name)
        return [self._state(name) for name in self._unit.spec.state]

    def _state(self, name: str) -> Symbol:
        value = self._now[name]
        if isinstance(value, Symbol) and name in self._with_rows:
            return value
        return self._expanded(value)

    def _expanded(self, value: Value) -> Symbol:
        """A value as (B, H)."""
        return self._g("Expand", value, self._g("Shape", self._old["h"]))

    def _has_rows(self, node: Node) -> bool:
        """Whether a value is (B, H), rather than (H,), of means (B, 1), or a number."""
        if node.op == "now":
            return node.args[0] in self._with_rows
        inside = (arg for arg in node.args if isinstance(arg, Node) and node.op != "mean")
        return node.op in ("W", "old") or any(map(self._has_rows, inside))

    def _value(self, node: Node) -> Value:
        g, args = self._g, node.args
        match node.op:
            case "number":
                value: Value = float(args[0])
            case "now" | "old":
                value = (self._now if node.op == "now" else self._old)[args[0]]
            case "W":
                value = self._inputs[args[0].gate]
            case "vector":
                value = self._weight(args[0])
            case "U":
                value = g("MatMul", self._value(args[1]), self._weight(args[0]))
            case "+" | "-" | "*" | "/":
                value = g(_ARITHMETIC[node.op], *map(self._value, args))
            case "mean":
                value = g("ReduceMean", self._expanded(self._value(args[0])), axes=[-1])
            case "where":
                a, b, *both = map(self._value, args)
                value = g("Where", g("Less", a, b), *both)
            case _:
                chosen = {"s": self._unit.gate_activation, "phi": self._unit.activation}
                name = chosen.get(node.op, node.op)
                slope = _SLOPE if name == "hard-sigmoid" else {}
                value = g(_FUNCTIONS[name], *map(self._value, args), **slope)
        return value

    def _weight(self, weight: Weight) -> Value:
        stored = self._gates[weight.gate].get(weight.term)
        if stored is None:
            return 0.0  # a unit without biases
        return self._g.constant(array(stored).T, "".join(weight))
