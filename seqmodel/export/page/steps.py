"""The step of a unit in JavaScript, generated from its equations; `unit.js` calls it."""

import json
import math
from collections.abc import Iterator

from seqmodel.units.definition import BIASES, UnitSpec
from seqmodel.units.language import Equation, Node, Weight

GATE_ACTIVATIONS = {"sigmoid": "sigmoid", "hard-sigmoid": "hardSigmoid"}
"""The functions of `unit.js` for s; those for phi have the names of the settings."""


def step_script(spec: UnitSpec, *, gate_activation: str, activation: str, bias: bool) -> str:
    """A JavaScript object: the unit's names, and step(x, old, now, w, to) for one row.

    x (I,) is the input, `old` and `now` hold arrays (H,) by name, w the weights, and `to` arrays
    for what the step computes in between. A text is data: all that reaches the script are names of
    the language, as properties, and numbers.
    """
    step = _Step(spec, {"s": GATE_ACTIVATIONS[gate_activation], "phi": activation}, bias=bias)
    return "\n".join(step.lines())


def weight_name(weight: Weight) -> str:
    """The name of a weight in the script, such as Wi."""
    return f"{weight.term}{weight.gate}"


class _Step:
    def __init__(self, spec: UnitSpec, chosen: dict[str, str], *, bias: bool) -> None:
        self._spec, self._chosen, self._bias = spec, chosen, bias
        self._products: list[str] = []

    def lines(self) -> Iterator[str]:
        body = [line for equation in self._spec.equations for line in self._equation(equation)]
        names = {
            "names": [equation.name for equation in self._spec.equations],
            "states": self._spec.state,
            "products": self._products,
        }
        yield "{"
        yield from (f"  {name}: {json.dumps(listed)}," for name, listed in names.items())
        yield "  step(x, old, now, w, to) {"
        yield "    const H = now.h.length;"
        yield from (f"    {line}" for line in body)
        yield "  },"
        yield "}"

    def _equation(self, equation: Equation) -> Iterator[str]:
        yield f"/* {' '.join(equation.written.split())} */"
        yield from self._matrices(equation.value)
        yield self._loop(f"now.{equation.name}", equation.value)

    def _matrices(self, node: Node) -> Iterator[str]:
        """The products of matrices in an expression, the inner ones first."""
        for arg in node.args:
            if isinstance(arg, Node):
                yield from self._matrices(arg)
        if node.op not in ("W", "U"):
            return
        name, factor = weight_name(node.args[0]), "x"
        self._products.append(name)
        if node.op == "U":
            inner = node.args[1]
            factor = f"{inner.op}.{inner.args[0]}"
            if inner.op not in ("now", "old"):
                factor = f"to.of{name}"
                self._products.append(f"of{name}")
                yield self._loop(factor, inner)
        yield f"multiply(w.{name}, {factor}, to.{name});"

    def _loop(self, target: str, value: Node) -> str:
        return f"for (let j = 0; j < H; j += 1) {target}[j] = {self._value(value)};"

    def _value(self, node: Node) -> str:
        op, args = node.op, node.args
        if op == "number":
            return "Infinity" if math.isinf(args[0]) else repr(args[0])
        if op in ("now", "old"):
            return f"{op}.{args[0]}[j]"
        if op in ("W", "U"):
            return f"to.{weight_name(args[0])}[j]"
        if op == "vector":
            there = self._bias or args[0].term not in BIASES
            return f"w.{weight_name(args[0])}[j]" if there else "0"
        values = [self._value(arg) for arg in args]
        if len(values) == 1:
            return f"{self._chosen.get(op, op)}({values[0]})"
        return f"({values[0]} {op} {values[1]})"
