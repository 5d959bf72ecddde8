"""A unit's equations as a graph, with sums of matrix products as leaves, and its derivative.

Nodes are numbered so that each comes after those that it reads. Equal nodes are shared.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from seqmodel.units.definition import BIASES, UnitSpec
from seqmodel.units.language import FUNCTIONS, Node

Id = int
"""The number of a node."""
_OPERATIONS = ("+", "-", "*", "/", "mean", "where")


class Graph:
    """Nodes (op, *args).

    | op | args |
    |---|---|
    | number | a float |
    | +, -, *, / | two nodes |
    | a function, mean | a node |
    | where | four nodes a, b, c, d: c where a < b, else d |
    | slope | a function, and the node that is its value |
    | any other | those of a leaf, defined by whoever adds it |
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, ...]] = []
        self.uniform: list[bool] = []
        """Whether all H numbers of each node are equal, like those of a constant or a mean."""
        self._scaled: list[bool] = []
        """Whether `mean` can take something out of each node."""
        self._means: dict[Id, Id] = {}
        self._numbers: dict[tuple[Any, ...], Id] = {}

    def node(self, op: str, *args: Any) -> Id:
        """The node with this operation and these arguments, added if there is none."""
        key = op, *args
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(key)
            uniform = [self.uniform[n] for n in self.reads(len(self.nodes) - 1)]
            self.uniform.append(op in ("number", "mean") or (bool(uniform) and all(uniform)))
            scaled = op in ("+", "-") and any(self.uniform[n] or self._scaled[n] for n in args)
            scaled |= (op == "*" and any(uniform)) or (op == "/" and uniform[1])
            self._scaled.append(scaled and not self.uniform[-1])
        return self._numbers[key]

    def number(self, value: float) -> Id:
        return self.node("number", value)

    def reads(self, n: Id) -> tuple[Id, ...]:
        """The nodes that a node reads."""
        op, *args = self.nodes[n]
        if op in FUNCTIONS or op in _OPERATIONS:
            return tuple(args)
        return (args[1],) if op == "slope" else ()

    def arithmetic(self, op: str, a: Id, b: Id) -> Id:
        """a + b, a - b, a * b or a / b, simplified."""
        x, y = self._constant(a), self._constant(b)
        if (op in "+-" and y == 0) or (op in "*/" and y == 1):
            return a
        if (op == "+" and x == 0) or (op == "*" and x == 1):
            return b
        if op == "*" and 0 in (x, y):
            return self.number(0.0)
        if op == "+":
            return self._sum(a, b)
        return self.node(op, a, b)

    def mean(self, n: Id) -> Id:
        """The mean of a node's H numbers: of k x, if all numbers of k are equal, k times that of x.

        Gradients' means thus wait for one another less often: that of a - mean(a) is zero.
        """
        waiting = [n]
        while waiting:  # not recursive, since recursion has a limit
            op, *args = self.nodes[m := waiting[-1]]
            mean = m
            if self._scaled[m]:
                if missing := [a for a in args if a not in self._means]:
                    waiting += missing
                    continue
                a, b = (self._means[a] for a in args)
                mean = self.number(0.0) if op == "-" and a == b else self.arithmetic(op, a, b)
            elif not self.uniform[m]:
                mean = self.node("mean", m)
            self._means[waiting.pop()] = mean
        return self._means[n]

    def gradients(self, seeds: Mapping[Id, Id]) -> dict[Id, Id]:
        """The gradient of each leaf, from the gradients of some nodes."""
        gradient, leaves = dict(seeds), dict[Id, Id]()
        for n in range(max(seeds, default=-1), -1, -1):
            if n not in gradient:
                continue
            if not self.reads(n):
                leaves[n] = gradient[n]
            for read, d in zip(self.reads(n), self._partials(n, gradient[n]), strict=True):
                gradient[read] = self.arithmetic("+", gradient[read], d) if read in gradient else d
        return leaves

    def _partials(self, n: Id, d: Id) -> list[Id]:  # noqa: PLR0911
        """What the gradient d of node n adds to the gradients of the nodes that n reads."""
        op, *args = self.nodes[n]
        match op:
            case "+":
                return [d, d]
            case "-":
                return [d, self._negated(d)]
            case "*":
                a, b = args
                return [self.arithmetic("*", d, b), self.arithmetic("*", d, a)]
            case "/":
                first = self.arithmetic("/", d, args[1])
                return [first, self._negated(self.arithmetic("*", first, n))]
            case "mean":
                return [self.mean(d)]
            case "where":
                (a, b, *_), zero = args, self.number(0.0)
                chosen = [self.node("where", a, b, *both) for both in ((d, zero), (zero, d))]
                return [zero, zero, *chosen]
        return [self.arithmetic("*", d, self.node("slope", op, n)) for _ in self.reads(n)]

    def _sum(self, a: Id, b: Id) -> Id:
        op, *args = self.nodes[b]
        if op == "-" and self._constant(args[0]) == 0:  # a + (0 - p) is a - p
            return self.arithmetic("-", a, args[1])
        for one, other in ((a, b), (b, a)):
            if (mixed := self._as_mixture(one, other)) is not None:
                return mixed
        return self.node("+", a, b)

    def _as_mixture(self, a: Id, b: Id) -> Id | None:
        """a + b as p + z (q - p) if it is (1 - z) p + z q: fewer instructions; None otherwise."""
        if self.nodes[a][0] != "*" or self.nodes[b][0] != "*":
            return None
        for rest, p in (self.reads(a), self.reads(a)[::-1]):
            op, *args = self.nodes[rest]
            if op == "-" and self._constant(args[0]) == 1 and args[1] in self.reads(b):
                z, (left, right) = args[1], self.reads(b)
                difference = self.arithmetic("-", right if left == z else left, p)
                return self.arithmetic("+", p, self.arithmetic("*", z, difference))
        return None

    def _negated(self, n: Id) -> Id:
        return self.arithmetic("-", self.number(0.0), n)

    def _constant(self, n: Id) -> float | None:
        op, *args = self.nodes[n]
        return args[0] if op == "number" else None


class Slot(NamedTuple):
    """W x + U v + ... in a sum, for which every row of every frame has H numbers of memory."""

    input: str | None
    """The gate of W, if any."""
    recurrent: tuple[tuple[str, Id], ...]
    """The gate of each U, and the node v that it multiplies."""

    @property
    def name(self) -> str:
        """A name unique in the unit."""
        return f"U{self.recurrent[0][0]}" if self.input is None else f"W{self.input}"


class Step(NamedTuple):
    """A unit's step as a graph with these leaves:

    | op | args |
    |---|---|
    | number | a float |
    | old | a state; its value before the step |
    | vector | a weight V, b or bU |
    | zone | a state; the numbers given for it |
    | slot | a slot |
    """

    graph: Graph
    states: Mapping[str, Id]
    """The node of each state after the step, h first."""


def step_of(spec: UnitSpec, *, bias: bool) -> Step:
    """The graph of a unit's equations; without `bias`, its biases are zero."""
    builder = _Builder(bias)
    for equation in spec.equations:
        builder.names[equation.name] = builder.build(equation.value)
    return Step(builder.graph, {state: builder.names[state] for state in spec.state})


class _Builder:
    def __init__(self, bias: bool) -> None:
        self.graph, self._bias = Graph(), bias
        self.names: dict[str, Id] = {}

    def build(self, node: Node) -> Id:
        """The node for an expression."""
        op, args = node
        if op == "now":
            return self.names[args[0]]
        if op == "vector" and args[0].term in BIASES and not self._bias:
            return self.graph.number(0.0)
        if op in ("+", "W", "U"):
            return self._sum(list(_addends(node)))
        if op in ("-", "*", "/"):
            return self.graph.arithmetic(op, *map(self.build, args))
        if op == "mean":
            return self.graph.mean(self.build(args[0]))
        applied = op in FUNCTIONS or op == "where"
        return self.graph.node(op, *(map(self.build, args) if applied else args))

    def _sum(self, addends: list[Node]) -> Id:
        """The sum of the products among the addends, in slots, and of the others."""
        inputs = [a.args[0].gate for a in addends if a.op == "W"]
        products = [a.args for a in addends if a.op == "U"]
        recurrent = tuple((weight.gate, self.build(v)) for weight, v in products)
        slots = [Slot(next(iter(inputs), None), recurrent)] if inputs or recurrent else []
        slots += [Slot(gate, ()) for gate in inputs[1:]]
        terms = [self.graph.node("slot", slot) for slot in slots]
        terms += [self.build(a) for a in addends if a.op not in ("W", "U")]
        total, *rest = terms
        for term in rest:
            total = self.graph.arithmetic("+", total, term)
        return total


def _addends(node: Node) -> Iterator[Node]:
    if node.op != "+":
        yield node
        return
    for arg in node.args:
        yield from _addends(arg)
