"""Kernels as Python functions: run by Python as the specification, translated as compiled code.

A text is an ordinary function in a small subset of Python. Its parameters are arrays, numbers and
compile-time constants, or an object that has these as attributes:

    def running_sum(x, total, count):
        sum = 0.0
        for n in range(count):
            sum += x[n]
            total[n] = sum

Python runs it over NumPy arrays. A `Translation` walks its syntax tree: `code.instructions` appends
instructions to an `Emitter`, and `export.onnx.texts` nodes to a graph. The language has:

- statements: assignments to names and to `a[i]`, including augmented ones; `for n in range(...)`
  with a constant positive step; `for n in independent(...)`, whose steps may be computed side by
  side; `for k in unrolled(...)`, unrolled at compile time; `if`; calls; as the last statement,
  `return` of a number;
- expressions: numbers, `a[i]`, the array `a[i:]`, + - * / // % << >> & | ^, comparisons, `and`,
  `or`, `not`, conditional expressions; `min` and `max` of two; `float`, `int`, `round`, `log` and
  `exp`; `copy` and `clear`; calls of other texts, which are inlined; constants of the text's
  module, and the attributes and items of constants.

Integers have 64 bits and wrap around; reals are of the kernel's type. An integer combined with a
real is converted, but a name always stands for the same kind. Indices are not negative, and shifts
are by 0 to 63. A constant condition is decided at compile time. Everything else is a SyntaxError
that names the file and the line.

A text about one piece can be compiled for several at once, one per lane of a vector: numbers given
as vectors, and everything computed from them, differ between lanes. Arithmetic then happens in all
lanes, with multiplications and additions fused. An array can have a number for each lane at each
index, or be a different array in each lane. A condition that differs between lanes is allowed only
in a conditional expression, and both its values are computed.
"""

import ast
import builtins
import inspect
import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from textwrap import dedent
from typing import Any, NoReturn

unrolled = range
"""`range` over constants: the loop is unrolled at compile time, its variable a constant."""
independent = range
"""`range` over steps of which none reads what another writes, but for sums, minima and maxima.

Names that a step assigns are its own: they are not read after the loop.
"""


def side_by_side(array: Any) -> Any:
    """An array of reals, interleaved by lane, as an array of vectors."""
    return array


def copy(source: Any, target: Any, count: int) -> None:
    """Copy `count` reals."""
    target[:count] = source[:count]


def clear(target: Any, count: int) -> None:
    """Set `count` reals to zero."""
    target[:count] = 0


OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
"""The functions that compute constants."""


@cache
def parsed(text: Callable[..., Any]) -> tuple[ast.FunctionDef, list[str], int]:
    """A text's syntax tree, its lines, and the number of the first in its file."""
    lines, first = inspect.getsourcelines(text)
    (function,) = ast.parse(dedent("".join(lines))).body
    assert isinstance(function, ast.FunctionDef)
    return function, lines, first


class Translation(ABC):
    """One text, or one call of it, for a target, which says what its statements become."""

    numbers: tuple[type, ...]
    array: type
    """The types of the target's numbers and arrays; all other values are constants."""

    def __init__(self, text: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        self.function, self._lines, self._first = parsed(text)
        self._file, self._globals = inspect.getsourcefile(text), inspect.unwrap(text).__globals__
        self.bound = dict(arguments)
        """Values by name."""
        names = (each for each in ast.walk(self.function) if isinstance(each, ast.Name))
        stored = (each.id for each in names if isinstance(each.ctx, ast.Store))
        self.assigned = Counter([*arguments, *stored])
        """In how many places each name is assigned; that of a parameter is one of them."""
        for name, value in arguments.items():
            self._check_array(self.function, name, value)

    def run(self) -> Any:
        """Translate the whole text; returns its result.

        Raises:
            SyntaxError: if the text is not in the language.
        """
        *body, last = self.function.body
        if isinstance(last, ast.Return) and last.value is not None:
            self.block(body)
            return self.value(last.value)
        return self.block([*body, last])

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        line = getattr(node, "lineno", 1) - 1
        raise SyntaxError(message, (self._file, self._first + line, None, self._lines[line]))

    def is_constant(self, *values: Any) -> bool:
        return not any(isinstance(value, (*self.numbers, self.array)) for value in values)

    # Statements

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:  # noqa: PLR0912
        match node:
            case ast.Assign(targets=[target], value=value):
                self._store(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self._store(target, self._binary(node, op, self.value(target), self.value(value)))
            case ast.If(test=test, body=body, orelse=other):
                condition = self.truth(node, self.value(test))
                if self.is_constant(condition):
                    self.block(body if condition else other)
                else:
                    self.branch(node, condition)
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, orelse=[]):
                kind, bounds = ast.unparse(call.func), [self.value(one) for one in call.args]
                if kind == "unrolled" and self.is_constant(*bounds):
                    self.unroll(node, name, unrolled(*bounds))
                elif kind in ("range", "independent") and (
                    len(bounds) < 3 or (self.is_constant(bounds[2]) and bounds[2] > 0)
                ):
                    bounds = [0, *bounds, 1] if len(bounds) == 1 else [*bounds, 1]
                    loop = self.loop if kind == "range" else self.independent_loop
                    loop(node, name, *bounds[:3])
                else:
                    message = "loops are over range with a constant step above 0, or over unrolled"
                    self.fail(node, message)
                self.bound.pop(name, None)
            case ast.Expr(value=ast.Constant()):  # the docstring
                pass
            case ast.Expr(value=ast.Call() as call):
                self.value(call)
            case ast.Return():
                self.fail(node, "return must be the text's last statement")
            case _:
                kind = type(node).__name__.lower()
                self.fail(node, f"{kind} is not in the language of kernels")

    def unroll(self, node: ast.For, name: str, values: Sequence[int]) -> None:
        for value in values:
            self.bound[name] = value
            self.block(node.body)

    def independent_loop(self, node: ast.For, name: str, start: Any, stop: Any, step: int) -> None:
        """A loop over independent steps; by default like any other."""
        self.loop(node, name, start, stop, step)

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._check_array(target, target.id, value)
            self.assign(target, target.id, value)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            self.put(target, self.value(target.value), self.value(target.slice), value)
        else:
            self.fail(target, "only names and elements of arrays are assigned")

    def _check_array(self, node: ast.AST, name: str, value: Any) -> None:
        if isinstance(value, self.array) and self.assigned[name] > 1:
            self.fail(node, f"{name} is an array and is assigned twice")

    # Expressions

    def value(self, node: ast.expr) -> Any:  # noqa: PLR0911, PLR0912
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.Attribute(value=owner, attr=name) if self.is_constant(
                value := self.value(owner)
            ):
                return getattr(value, name)
            case ast.Name():
                return self.name(node)
            case ast.Subscript(value=array, slice=ast.Slice(lower=start, upper=None, step=None)):
                return self.rest(node, self.value(array), self.value(start) if start else 0)
            case ast.Subscript(value=array, slice=index):
                return self.get(node, self.value(array), self.value(index))
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(node, op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand)
                return -value if self.is_constant(value) else self.negative(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self.truth(node, self.value(operand))
                return not truth if self.is_constant(truth) else self.inverse(truth)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self.value(one) for one in (left, *others)]
                pairs = zip(ops, values, values[1:], strict=False)
                found = [self._binary(node, *pair) for pair in pairs]
                return all(found) if self.is_constant(*found) else self.all_of(node, found)
            case ast.BoolOp(op=op, values=[*first, last]):
                rest = first[0] if len(first) == 1 else ast.BoolOp(op, first)
                test, other = ast.copy_location(rest, node), ast.Constant(isinstance(op, ast.Or))
                yes, no = (last, other) if isinstance(op, ast.And) else (other, last)
                return self._conditional(node, test, yes, no, truth=True)
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._conditional(node, test, yes, no)
            case ast.Call(func=ast.Name() | ast.Attribute(), keywords=[]):
                function, args = self.value(node.func), [self.value(one) for one in node.args]
                if function in (min, max, len, float, int) and self.is_constant(*args):
                    return function(*args)
                return self.call(node, function, args)
        return self.fail(node, f"{ast.unparse(node)} is not in the language of kernels")

    def name(self, node: ast.Name) -> Any:
        for scope in (self.bound, self._globals, vars(builtins)):
            if node.id in scope:
                return scope[node.id]
        return self.fail(node, f"{node.id} has no value here")

    def _binary(self, node: ast.AST, op: ast.operator | ast.cmpop, x: Any, y: Any) -> Any:
        """Two numbers added, compared and so on."""
        if type(op) not in OPERATORS:
            self.fail(node, f"{type(op).__name__} is not in the language of kernels")
        if self.is_constant(x, y):
            return OPERATORS[type(op)](x, y)
        return self.binary(node, type(op), x, y)

    def _conditional(
        self, node: ast.expr, test: ast.expr, yes: ast.expr, no: ast.expr, *, truth: bool = False
    ) -> Any:
        """`yes` or `no`, as a truth value if `truth`."""
        condition = self.truth(node, self.value(test))
        if self.is_constant(condition):
            return self.value(yes if condition else no)
        return self.conditional(node, condition, yes, no, truth=truth)

    def truth(self, node: ast.AST, value: Any) -> Any:
        """Whether a number is not zero; constants remain constants."""
        return bool(value) if self.is_constant(value) else self.truth_of(node, value)

    # What a target adds: numbers are its own or constants, but not all of them constants

    @abstractmethod
    def assign(self, node: ast.AST, name: str, value: Any) -> None:
        """Let a name stand for a number or an array, which may be constants."""

    @abstractmethod
    def branch(self, node: ast.If, condition: Any) -> None: ...

    @abstractmethod
    def loop(self, node: ast.For, name: str, start: Any, stop: Any, step: int) -> None:
        """A loop over a range; its bounds may be constants."""

    @abstractmethod
    def rest(self, node: ast.AST, array: Any, start: Any) -> Any:
        """The array from an index on."""

    @abstractmethod
    def get(self, node: ast.AST, array: Any, index: Any) -> Any:
        """The number at an index; both may be constants."""

    @abstractmethod
    def put(self, node: ast.AST, array: Any, index: Any, value: Any) -> None: ...

    @abstractmethod
    def binary(self, node: ast.AST, op: type, x: Any, y: Any) -> Any: ...

    @abstractmethod
    def negative(self, value: Any) -> Any: ...

    @abstractmethod
    def inverse(self, truth: Any) -> Any: ...

    @abstractmethod
    def all_of(self, node: ast.AST, truths: Sequence[Any]) -> Any: ...

    @abstractmethod
    def truth_of(self, node: ast.AST, value: Any) -> Any: ...

    @abstractmethod
    def conditional(
        self, node: ast.expr, condition: Any, yes: ast.expr, no: ast.expr, *, truth: bool
    ) -> Any: ...

    @abstractmethod
    def call(self, node: ast.Call, function: Any, args: list[Any]) -> Any:
        """A call of a text, or of a function of the language."""
