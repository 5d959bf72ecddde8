"""Units: one operator over time for the nine that have one, otherwise a scan of their equations.

ONNX's GRU weights the old state by z, whereas ours weight the candidate: 1 - s(x) = s(-x), so z's
weights are negated. A gate that lacks a term has zeros there. The minimal gated unit is a gru with
two equal gates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.export.onnx.graph import Graph, Step, Symbol, Value
from seqmodel.units import UNITS
from seqmodel.units.language import Node, Weight
from seqmodel.units.module import Unit


class Operator(NamedTuple):
    """ONNX's operator for a unit."""

    op: str
    gates: tuple[str, ...]
    """Our gates in the operator's order."""
    reset_after: int = 0
    """`linear_before_reset` of a GRU."""
    negated: tuple[int, ...] = ()
    """The indices of gates that are one minus the operator's."""


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
    "+": "Add", "-": "Sub", "*": "Mul", "/": "Div",
}  # fmt: skip
_SLOPE = {"alpha": 1 / 6, "beta": 0.5}
"""Parameters of our hard sigmoid; ONNX's default is steeper."""


def array(weight: Tensor) -> NDArray[np.float32]:
    """A weight as stored in the graph."""
    return weight.detach().cpu().float().numpy()


def over_time(
    g: Graph, unit: Unit, x: Symbol, state: Sequence[Symbol]
) -> tuple[Sequence[Symbol], Symbol]:
    """Run a layer over x (T, B, I) from its states (B, H): the new states, and h (T, B, H)."""
    if unit.case(1).spec is UNITS.get(unit.spec.name):  # not a text that only shares its name
        return _operator(g, unit, x, state)

    def body(*values: Symbol) -> Step:
        new = _equations(g, unit, values[-1], values[:-1])
        return new, new[:1]

    after, (h,) = g.scan(body, state, [x @ g.constant(array(unit.W).T, "W")])
    return after, h


def on_changes(
    g: Graph, unit: Unit, x: Symbol, state: Sequence[Symbol], steps: Symbol
) -> tuple[Sequence[Symbol], Symbol]:
    """Like `over_time`, for a layer that steps only where `steps` (T, 1), and otherwise keeps h."""

    def body(*values: Symbol) -> Step:
        *old, row, steps = values
        after, _ = over_time(g, unit, g.unsqueeze(row, 0), old)
        new = [g("Where", steps, *both) for both in zip(after, old, strict=True)]
        return new, new[:1]

    after, (h,) = g.scan(body, state, [x, steps])
    return after, h


def _operator(
    g: Graph, unit: Unit, x: Symbol, state: Sequence[Symbol]
) -> tuple[Sequence[Symbol], Symbol]:
    operator, H, gates = OPERATORS[unit.spec.name], unit.hidden_size, unit.gates()

    def stacked(term: str, *shape: int) -> NDArray[np.float32]:
        weights = [gates[gate].get(term) for gate in operator.gates]
        arrays = [np.zeros(shape, np.float32) if w is None else array(w) for w in weights]
        for place in operator.negated:
            arrays[place] = -arrays[place]
        return np.concatenate(arrays)[np.newaxis]

    inputs = [
        g.constant(stacked("W", H, unit.input_size), "W"),
        g.constant(stacked("U", H, H), "U"),
        g.constant(np.concatenate([stacked("b", H), stacked("bU", H)], 1), "b"),
        None,  # lengths: all rows are equally long
        *(g.unsqueeze(each, 0) for each in state),
    ]
    attributes: dict[str, object] = {"hidden_size": H}
    functions = [_FUNCTIONS[unit.activation]]
    if operator.op != "RNN":
        functions.insert(0, _FUNCTIONS[unit.gate_activation])
    if operator.op == "LSTM":
        functions.append(functions[1])
        if unit.weights()["V"] is not None:
            inputs.append(g.constant(stacked("V", H)[:, : 3 * H], "V"))  # c's is zero
    if operator.op == "GRU":
        attributes["linear_before_reset"] = operator.reset_after
    if "HardSigmoid" in functions:
        attributes |= {f"activation_{name}": [value] for name, value in _SLOPE.items()}
    attributes["activations"] = functions
    h, *after = g.several(1 + len(state), operator.op, x, *inputs, **attributes)
    return [g.squeeze(each, 0) for each in after], g.squeeze(h, 1)


def _equations(g: Graph, unit: Unit, products: Symbol, state: Sequence[Symbol]) -> list[Symbol]:
    """The states (B, H) after a unit's equations, taken in order as in `units.specification`.

    `products` (B, gates H) holds W x of all gates side by side.
    """
    gates, spec, with_x = unit.gates(), unit.case(1).spec, unit.spec.gates_with("W")
    parts = g.split(products, [unit.hidden_size] * len(with_x), 1)
    inputs, old = dict(zip(with_x, parts, strict=True)), dict(zip(spec.state, state, strict=True))
    now, with_rows = dict[str, Value](), set[str]()

    def has_rows(node: Node) -> bool:
        """Whether a value is (B, H), rather than (H,), (B, 1) for means, or a number."""
        if node.op == "now":
            return node.args[0] in with_rows
        inside = (arg for arg in node.args if isinstance(arg, Node) and node.op != "mean")
        return node.op in ("W", "old") or any(map(has_rows, inside))

    def expanded(value: Value) -> Symbol:
        return g("Expand", value, g("Shape", old["h"]))

    def stored(weight: Weight) -> Value:
        tensor = gates[weight.gate].get(weight.term)
        if tensor is None:
            return 0.0  # a unit without biases
        return g.constant(array(tensor).T, "".join(weight))

    leaves: Mapping[str, Callable[..., Value]] = {
        "number": float,
        "now": now.__getitem__,
        "old": old.__getitem__,
        "W": lambda weight: inputs[weight.gate],
        "vector": stored,
    }

    def value(node: Node) -> Value:
        if node.op in leaves:
            return leaves[node.op](node.args[0])
        if node.op == "U":
            return g("MatMul", value(node.args[1]), stored(node.args[0]))
        args = list(map(value, node.args))
        if node.op == "mean":
            return g("ReduceMean", expanded(*args), axes=[-1])
        if node.op == "where":
            return g("Where", g("Less", *args[:2]), *args[2:])
        name = {"s": unit.gate_activation, "phi": unit.activation}.get(node.op, node.op)
        return g(_FUNCTIONS[name], *args, **(_SLOPE if name == "hard-sigmoid" else {}))

    for name, node, *_ in spec.equations:
        now[name] = value(node)
        if has_rows(node):
            with_rows.add(name)
    return [
        after if isinstance(after := now[name], Symbol) and name in with_rows else expanded(after)
        for name in spec.state
    ]
