"""Texts of `kernels.code.language` as nodes: the functions that kernels are compiled from.

A text's number is a value (rows, 1). The steps of a loop over `independent` are computed side by
side, as values (rows, n) of n steps; sums over them, minima and maxima are reduced. Other loops are
unrolled. So their bounds must be constants. Both branches of an `if` are computed, and what they
assign or store is chosen. Reals are float64.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.export.onnx.graph import BOOL, DOUBLE, INT64, Graph, Symbol
from seqmodel.kernels.code.language import (
    OPERATORS,
    Translation,
    clear,
    copy,
    side_by_side,
)

_TYPES: dict[int, Any] = {BOOL: np.bool_, INT64: np.int64, DOUBLE: np.float64}
_KINDS = {np.dtype(dtype).kind: kind for kind, dtype in _TYPES.items()}
_NODES: dict[Any, str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.FloorDiv: "Div",
    ast.Mod: "Mod", ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater",
    ast.GtE: "GreaterOrEqual", ast.Eq: "Equal", ast.NotEq: "Equal", min: "Min", max: "Max",
    round: "Round", log: "Log", exp: "Exp",
}  # fmt: skip
_FOLDED: dict[Any, Any] = {**OPERATORS, min: np.minimum, max: np.maximum}
_REDUCED: dict[Any, Any] = {ast.Add: np.sum, min: np.min, max: np.max}


@dataclass(frozen=True)
class Number:
    """A number in each row, or one for each step of a loop."""

    symbol: Symbol
    """(rows, 1 or n)"""
    kind: int
    steps: int = 1
    """n"""


@dataclass(frozen=True)
class Known:
    """Constants (n,), one for each step of a loop."""

    values: NDArray[Any]


class Array:
    """Numbers (rows, size), in stretches that follow each other."""

    def __init__(
        self, g: Graph, value: Symbol | None = None, sizes: Sequence[int] = (0,), kind: int = DOUBLE
    ) -> None:
        """`sizes` are those of its parts; without a value it is empty, and to be written."""
        self.kind, self._g = kind, g
        self._stretches = dict[int, tuple[int, Symbol]]()
        if value is not None:
            starts = accumulate(sizes, initial=0)
            parts = zip(sizes, g.split(value, sizes, 1), strict=True)
            self._stretches = dict(zip(starts, parts, strict=False))

    def all(self) -> Symbol:
        """(rows, size)"""
        if len(self._stretches) > 1:
            stretches = [self._stretches[start][1] for start in sorted(self._stretches)]
            self.replace(self._g.concat(stretches, 1))
        return self._stretches[0][1]

    def read(self, start: int, count: int) -> Symbol:
        for first, (size, value) in self._stretches.items():
            if (first, size) == (start, count):
                return value
            if first <= start and start + count <= first + size:
                return value[:, start - first : start - first + count]
        return self.all()[:, start : start + count]

    def write(self, start: int, count: int, value: Symbol) -> None:
        stop = start + count
        for first, (size, old) in list(self._stretches.items()):
            if first < stop and start < first + size:
                del self._stretches[first]
                if first < start:
                    self._stretches[first] = start - first, old[:, : start - first]
                if stop < first + size:
                    self._stretches[stop] = first + size - stop, old[:, stop - first :]
        self._stretches[start] = count, value

    def replace(self, value: Symbol) -> None:
        """Write all of it."""
        self._stretches = {0: (self.size, value)}

    @property
    def size(self) -> int:
        return sum(size for size, _ in self._stretches.values())


class View(NamedTuple):
    """An `Array`, or a constant one, from a place on."""

    array: Any
    start: Any = 0


def add_text(
    g: Graph, text: Callable[..., Any], *arguments: Any,
    instead: Mapping[Any, Callable[..., Any]] | None = None, where: Number | None = None,
) -> Any:  # fmt: skip
    """Add a text's nodes; returns the text's result.

    Arguments are a `View` for an array, a `Number`, or constants; texts in `instead` are replaced
    by functions of the same arguments that add nodes themselves. What the text assigns or stores
    takes effect only `where` that is true.

    Raises:
        SyntaxError: if the text is not in the language, or cannot be nodes.
    """
    return _Nodes(g, text, arguments, instead or {}, where).run()


class _Nodes(Translation):
    """One text, or one call of it, as nodes."""

    numbers, array = (Number, Known), View

    def __init__(
        self, g: Graph, text: Callable[..., Any], arguments: Any,
        instead: Mapping[Any, Callable[..., Any]], where: Number | None = None,
    ) -> None:  # fmt: skip
        super().__init__(text, inspect.signature(text).bind(*arguments).arguments)
        self._g, self._instead, self._where = g, instead, where

    # Statements

    def assign(self, node: ast.AST, name: str, value: Any) -> None:
        if self._where is not None and name in self.bound and not isinstance(value, View):
            value = self._chosen(self._where, value, self.bound[name])
        self.bound[name] = value

    def branch(self, node: ast.If, condition: Any) -> None:
        for body, truth in ((node.body, condition), (node.orelse, self.inverse(condition))):
            with self._only(node, truth):
                self.block(body)

    @contextmanager
    def _only(self, node: ast.AST, truth: Any) -> Iterator[None]:
        """Let what is written and called within take effect only where a condition is true."""
        outer = self._where
        self._where = truth if outer is None else self.all_of(node, [outer, truth])
        yield
        self._where = outer

    def loop(self, node: ast.For, name: str, start: Any, stop: Any, step: int) -> None:
        self.unroll(node, name, self._steps_of(node, start, stop, step))

    def independent_loop(self, node: ast.For, name: str, start: Any, stop: Any, step: int) -> None:
        steps = self._steps_of(node, start, stop, step)
        if len(steps) <= 1:
            self.unroll(node, name, steps)
            return
        before, self.bound[name] = {*self.bound}, Known(np.array(steps, np.int64))
        for statement in node.body:
            if (reduced := _reduction(statement)) is None:
                self.statement(statement)
            else:
                total, function, term = reduced
                value = self._reduced(function, self.value(term), len(steps))
                self.assign(node, total, self.binary(node, function, self.bound[total], value))
        for own in [n for n, one in self.bound.items() if n not in before or _steps(one) > 1]:
            del self.bound[own]

    def _steps_of(self, node: ast.For, start: Any, stop: Any, step: int) -> range:
        if not self.is_constant(start, stop):
            self.fail(node, "a loop in a graph has constant bounds")
        if any(_steps(value) > 1 for value in self.bound.values()):
            self.fail(node, "a loop is within independent steps")
        return range(start, stop, step)

    def _reduced(self, function: Any, value: Any, steps: int) -> Any:
        """The sum, minimum or maximum over a loop's steps."""
        if _steps(value) < steps:
            return value if function is not ast.Add else self.binary(None, ast.Mult, value, steps)
        if isinstance(value, Known):
            return _REDUCED[function](value.values).item()
        kind = INT64 if value.kind == BOOL else value.kind
        symbol = self._symbol(value, kind)
        if function is ast.Add:
            return Number(self._g.sum(symbol, 1), kind)
        return Number(self._g(f"Reduce{_NODES[function]}", symbol, axes=[1]), kind)

    # Expressions

    def _symbol(self, value: Any, kind: int) -> Symbol:
        """A number's symbol, of the kind."""
        if isinstance(value, Number):
            return value.symbol if value.kind == kind else self._g.cast(value.symbol, kind)
        values = np.atleast_1d(value.values if isinstance(value, Known) else value)
        return self._g.stored(values.astype(_TYPES[kind])[np.newaxis])

    def _node(self, op: str, kind: int, *values: Any, of: int | None = None) -> Number:
        """A node whose inputs are of one kind, by default that of the result."""
        symbols = [self._symbol(value, kind if of is None else of) for value in values]
        return Number(self._g(op, *symbols), kind, max(map(_steps, values)))

    def binary(self, node: Any, op: Any, x: Any, y: Any) -> Any:
        if not isinstance(x, Number) and not isinstance(y, Number):
            values = (each.values if isinstance(each, Known) else each for each in (x, y))
            found = _FOLDED[op](*values)
            return Known(found) if isinstance(found, np.ndarray) else found
        if op not in _NODES:
            self.fail(node, f"{op.__name__} has no node")
        kind = DOUBLE if op is ast.Div or DOUBLE in (_kind(x), _kind(y)) else INT64
        if isinstance(op, type) and issubclass(op, ast.cmpop):
            found = self._node(_NODES[op], BOOL, x, y, of=kind)
            return self.inverse(found) if op is ast.NotEq else found
        if op in (ast.FloorDiv, ast.Mod):
            if kind == DOUBLE:
                self.fail(node, "a real stands where an integer is needed")
            y = self._safe(y, 1)
        if op is ast.FloorDiv:  # ONNX rounds towards zero
            x = self.binary(node, ast.Sub, x, self.binary(node, ast.Mod, x, y))
        return self._node(_NODES[op], kind, x, y)

    def negative(self, value: Any) -> Any:
        return self.binary(None, ast.Sub, 0, value)

    def inverse(self, truth: Any) -> Any:
        return self._node("Not", BOOL, truth)

    def all_of(self, node: ast.AST, truths: Any) -> Any:
        first, *others = truths
        for other in others:
            first = self._node("And", BOOL, first, other)
        return first

    def truth_of(self, node: ast.AST, value: Any) -> Any:
        is_truth = _kind(value) == BOOL
        return value if is_truth else self.binary(node, ast.NotEq, value, 0)

    def conditional(
        self, node: ast.expr, condition: Any, yes: ast.expr, no: ast.expr, *, truth: bool
    ) -> Any:
        with self._only(node, condition):
            first = self.value(yes)
        if isinstance(no, ast.Constant | ast.Name):
            second = self.value(no)
        else:
            with self._only(node, self.inverse(condition)):
                second = self.value(no)
        if not truth:
            return self._chosen(condition, first, second)
        both = self.is_constant(second) and not second  # for `or`, `first` is true
        other = self.truth(node, first if both else second)
        return self._node("And" if both else "Or", BOOL, condition, other)

    def _chosen(self, condition: Any, yes: Any, no: Any) -> Number:
        kind = DOUBLE if DOUBLE in (_kind(yes), _kind(no)) else INT64
        symbols = (self._symbol(value, kind) for value in (yes, no))
        steps = max(map(_steps, (condition, yes, no)))
        return Number(self._g("Where", self._symbol(condition, BOOL), *symbols), kind, steps)

    def call(self, node: ast.Call, function: Any, args: list[Any]) -> Any:  # noqa: PLR0911
        if function in self._instead:
            if self._where is not None:
                self.fail(node, f"{ast.unparse(node.func)} cannot depend on a condition")
            return self._instead[function](*args)
        if function in (min, max) and len(args) == 2:
            return self.binary(node, function, *args)
        if function is float or function is int:
            kind = DOUBLE if function is float else INT64
            if isinstance(args[0], Known):
                return Known(args[0].values.astype(_TYPES[kind]))
            return Number(self._symbol(args[0], kind), kind, args[0].steps)
        if function in (round, log, exp):
            return self._node(_NODES[function], DOUBLE, *args)
        if function in (copy, clear):
            *source, target, count = args
            if count == 0:
                return None
            places = Known(np.arange(count))
            value = self.get(node, source[0], places) if source else 0.0
            return self.put(node, target, places, value)
        if function is side_by_side:
            return args[0]
        if not inspect.isfunction(function):
            return self.fail(node, f"{ast.unparse(node.func)} is not a text")
        return _Nodes(self._g, function, args, self._instead, self._where).run()

    # Arrays

    def rest(self, node: ast.AST, array: Any, start: Any) -> View:
        view = array if isinstance(array, View) else View(np.asarray(array))
        return view._replace(start=self.binary(node, ast.Add, view.start, start))

    def get(self, node: ast.AST, array: Any, index: Any) -> Any:
        if self.is_constant(array, index):
            return array[index]
        array, place = self.rest(node, array, index)
        if isinstance(array, np.ndarray):
            if not isinstance(place, Number):
                return Known(array[place.values]) if isinstance(place, Known) else array[place]
            kind, table = _KINDS[array.dtype.kind], self._g.stored(array)
            return Number(self._g("Gather", table, self._safe(place, 0).symbol), kind, place.steps)
        if isinstance(place, Number):
            found = self._g("GatherElements", array.all(), self._safe(place, 0).symbol, axis=1)
            return Number(found, array.kind, place.steps)
        first, count, consecutive = _range(place)
        if not 0 <= first <= array.size - count and consecutive:
            self.fail(node, "the index is out of range")
        if consecutive:
            return Number(array.read(first, count), array.kind, count)
        return Number(self._g("Gather", array.all(), place.values, axis=1), array.kind, count)

    def _safe(self, value: Any, instead: int) -> Any:
        """A number, but `instead` where it has no effect, since it might be anything there."""
        if self._where is None or not isinstance(value, Number):
            return value
        return self._chosen(self._where, value, instead)

    def put(self, node: ast.AST, array: Any, index: Any, value: Any) -> None:
        if self._where is not None:
            value = self._chosen(self._where, value, self.get(node, array, index))
        array, place = self.rest(node, array, index)
        values = self._symbol(value, array.kind)
        if _steps(value) < _steps(place):
            values = values + np.zeros(_steps(place), _TYPES[array.kind])
        if isinstance(place, Number):
            inputs = array.all(), self._safe(place, 0).symbol, values
            array.replace(self._g("ScatterElements", *inputs, axis=1))
        else:
            first, count, _ = _range(place)
            array.write(first, count, values)


def _kind(value: Any) -> int:
    if isinstance(value, Number):
        return value.kind
    return _KINDS[np.asarray(value.values if isinstance(value, Known) else value).dtype.kind]


def _steps(value: Any) -> int:
    if isinstance(value, Known):
        return len(value.values)
    return value.steps if isinstance(value, Number) else 1


def _range(place: Any) -> tuple[int, int, bool]:
    """The first of constant places, their number, and whether they follow each other."""
    places = place.values if isinstance(place, Known) else np.array([place])
    return int(places[0]), len(places), bool((np.diff(places) == 1).all())


def _reduction(statement: ast.stmt) -> tuple[str, Any, ast.expr] | None:
    """The name, the function and the term of a statement like total += term or x = min(x, term)."""
    match statement:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=term):
            return name, ast.Add, term
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Name(id="min" | "max" as kind), args=[ast.Name(id=same), term]),
        ) if name == same:
            return name, {"min": min, "max": max}[kind], term
    return None
