"""A unit's equations as a graph, in which sums of matrix products are leaves."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from seqmodel.units.cpu.graph import Graph, Id
from seqmodel.units.definition import BIASES, UnitSpec
from seqmodel.units.language import FUNCTIONS, Node


class Slot(NamedTuple):
    """W x + U v + ... of a sum, for which every row of every frame has H numbers of memory."""

    input: str | None
    """The gate of W, if there is one."""
    recurrent: tuple[tuple[str, Id], ...]
    """The gate of each U, and the node v that it multiplies."""

    @property
    def name(self) -> str:
        """Unique in the unit."""
        return f"U{self.recurrent[0][0]}" if self.input is None else f"W{self.input}"


class Step(NamedTuple):
    """A unit's step as a graph, whose leaves are

    | op | args |
    |---|---|
    | number | a float |
    | old | a state; its value before the step |
    | vector | a weight V, b or bU |
    | slot | a slot |
    """

    graph: Graph
    states: Mapping[str, Id]
    """The node of each state after the step, h first."""


def step_of(spec: UnitSpec, *, bias: bool) -> Step:
    """The graph of a unit's equations; without biases these are zero."""
    builder = _Builder(bias)
    for equation in spec.equations:
        builder.named[equation.name] = builder.build(equation.value)
    return Step(builder.graph, {state: builder.named[state] for state in spec.state})


class _Builder:
    def __init__(self, bias: bool) -> None:
        self.graph, self._bias = Graph(), bias
        self.named: dict[str, Id] = {}

    def build(self, node: Node) -> Id:
        """The node that an expression becomes."""
        op, args = node
        if op == "now":
            return self.named[args[0]]
        if op == "vector" and args[0].term in BIASES and not self._bias:
            return self.graph.number(0.0)
        if op in ("+", "W", "U"):
            return self._sum(list(_addends(node)))
        if op in ("-", "*", "/"):
            return self.graph.calculate(op, *map(self.build, args))
        return self.graph.node(op, *(map(self.build, args) if op in FUNCTIONS else args))

    def _sum(self, addends: list[Node]) -> Id:
        """The slots of the products among the addends, and then the others."""
        inputs = [a.args[0].gate for a in addends if a.op == "W"]
        products = [a.args for a in addends if a.op == "U"]
        recurrent = tuple((weight.gate, self.build(v)) for weight, v in products)
        slots = [Slot(next(iter(inputs), None), recurrent)] if inputs or recurrent else []
        slots += [Slot(gate, ()) for gate in inputs[1:]]
        terms = [self.graph.node("slot", slot) for slot in slots]
        terms += [self.build(a) for a in addends if a.op not in ("W", "U")]
        total, *rest = terms
        for term in rest:
            total = self.graph.calculate("+", total, term)
        return total


def _addends(node: Node) -> Iterator[Node]:
    if node.op != "+":
        yield node
        return
    for arg in node.args:
        yield from _addends(arg)
