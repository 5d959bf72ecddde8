"""A unit, as defined by its text: states, gates, sizes, equations."""

from __future__ import annotations

import math
import re
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from seqmodel.unit_setting import SUFFIX
from seqmodel.units.language import Equation, Lines, Node, Text, UnitError, Weight, parse

TERMS = ("W", "U", "V", "b", "bU")
"""Every kind of weight, in the order in which a unit's parameters are created and stored."""
BIASES = ("b", "bU")


@dataclass(frozen=True, eq=False)
class UnitSpec(Text):
    """One recurrent unit, defined by its text; each has a single object. See `language`."""

    name: str
    text: str
    state: tuple[str, ...]
    """h, the output, then the other states in the order of their equations."""
    state_type: Any
    """A named tuple of the states' tensors; see `state_of`."""
    gates: Mapping[str, tuple[str, ...]]
    """Gate -> its terms. A weight's gate is its index, or else the name its equation defines."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copying or unpickling returns the same object."""
        return define, (self.text, self.name)

    @property
    def about(self) -> str:
        """The comment in the first line, if any."""
        first, *_ = self.text.splitlines()
        return first.lstrip("# ") if first.startswith("#") else ""

    @property
    def source(self) -> str:
        return self.fields.get("source", "")

    def gates_with(self, term: str, *, bias: bool = True) -> list[str]:
        """The gates that have `term`, in the order in which their weights are stacked."""
        has_term = bias or term not in BIASES
        return [gate for gate, terms in self.gates.items() if has_term and term in terms]

    def shapes(self, I: int, H: int, *, bias: bool = True) -> dict[str, tuple[int, ...]]:  # noqa: E741
        """The shape of each term's weights, all gates stacked; terms the unit lacks are left out.

        If any U is not whole, the numbers of all U are one vector; see `matrices`.
        """
        of_gate = {"W": (H, I), "U": (H, H), "V": (1, H), "b": (H,), "bU": (H,)}
        counts = {term: len(self.gates_with(term, bias=bias)) for term in TERMS}
        found: dict[str, tuple[int, ...]] = {
            term: (counts[term] * rows, *columns)
            for term, (rows, *columns) in of_gate.items()
            if counts[term]
        }
        if self.forms:
            parts = [part for gate in self.gates_with("U") for part in self.matrices(gate, H)]
            found["U"] = (sum(map(math.prod, parts)),)
        return found

    def matrices(self, gate: str, H: int) -> list[tuple[int, int]]:
        """The shapes of the matrices that make up a gate's U; see `Form`."""
        form = self.forms.get(Weight("U", gate))
        return form.parts(H) if form else [(H, H)]

    def parameter_count(self, input_size: int, hidden_size: int, *, bias: bool = True) -> int:
        """The number of weights of one layer, excluding the output layer."""
        return sum(map(math.prod, self.shapes(input_size, hidden_size, bias=bias).values()))


@cache
def with_zoneout(spec: UnitSpec, p: float | None) -> UnitSpec:
    """The unit with zoneout (Krueger et al. 2017): numbers of each state keep their previous value.

    With `p` None (training), those whose leaf `zone` is 0 keep it; otherwise (evaluation) all are
    mixed with the share `p` of it. Within the step every equation reads the new value.
    """
    new = {name: f"{name}.new" for name in spec.state}
    equations = [
        e._replace(name=new.get(e.name, e.name), value=_renamed(e.value, new))
        for e in spec.equations
    ]
    for e in spec.equations:
        if e.name in new:
            equations.append(Equation(e.name, _mixed(e.name, new[e.name], p), e.line, e.written))
    return replace(spec, equations=tuple(equations))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The expression with this step's values renamed."""
    if node.op == "now":
        (name,) = node.args
        return Node("now", (names.get(name, name),))
    args = (_renamed(arg, names) if isinstance(arg, Node) else arg for arg in node.args)
    return Node(node.op, tuple(args))


def _mixed(state: str, new: str, p: float | None) -> Node:
    before, after = Node("old", (state,)), Node("now", (new,))
    if p is None:
        half = Node("number", (0.5,))
        return Node("where", (Node("zone", (state,)), half, before, after))
    kept, fresh = (
        Node("*", (Node("number", (share,)), value))
        for share, value in ((p, before), (1 - p, after))
    )
    return Node("+", (kept, fresh))


def state_of(names: tuple[str, ...], tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """A named tuple of tensors; pickles as a call of this function."""
    return _state_type(names)(*tensors)


@cache
def _state_type(names: tuple[str, ...]) -> Any:
    kind = cast(Any, namedtuple("State", names, rename=True))
    kind.__reduce__ = lambda self: (state_of, (names, tuple(self)))
    return kind


@cache
def define(text: str, name: str) -> UnitSpec:
    """Define a unit by its text. A name given in the text takes precedence over `name`.

    Raises:
        UnitError: if the text defines no unit; the error shows the place.
    """
    file = f"{name}{SUFFIX}"
    parsed = parse(text, file)
    if parsed.fields.get("unit", name) != name:
        return define(text, parsed.fields["unit"])
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UnitError(
            f"{file}: {name!r} cannot name a unit: use a to z, digits, . - and _ for its file, "
            "or in a line such as unit: mine"
        )
    _check(parsed, Lines(text, file))
    names = [equation.name for equation in parsed.equations]
    state = "h", *(name for name in names if name in parsed.primed and name != "h")
    gates = {
        gate: tuple(term for term in TERMS if Weight(term, gate) in parsed.weights)
        for _, gate in parsed.weights
    }
    return UnitSpec(
        **vars(parsed), name=name, text=text, state=state, state_type=_state_type(state),
        gates=gates,
    )  # fmt: skip


def _check(parsed: Text, lines: Lines) -> None:
    """Check that h is defined and depends on x, and that everything else has an effect on h."""
    equations = {equation.name: equation for equation in parsed.equations}
    if "h" not in equations:
        raise UnitError(f"{lines.called}: no equation defines h, the output, such as h = phi(W x)")
    reached, found = {"h"}, ["h"]
    while found:
        new = set(_names(equations[found.pop()].value)) - reached
        reached |= new
        found += new
    for equation in parsed.equations:
        if equation.name not in reached:
            lines.fail(equation.line, 0, f"{equation.defines} has no effect on h")
    if not any(weight.term == "W" for weight in parsed.weights):
        lines.fail(equations["h"].line, 0, "h does not depend on x: some equation needs a W x")


def _names(node: Node) -> Iterator[str]:
    """The names in an expression."""
    if node.op in ("now", "old"):
        yield str(node.args[0])
    for arg in node.args:
        if isinstance(arg, Node):
            yield from _names(arg)
