"""Kernels as Python functions: run by Python the specification, translated the compiled code.

A text is an ordinary function in a small part of Python. Its parameters are arrays, numbers, and
constants that are known when it is compiled:

    def running_sum(x, total, count):
        sum = 0.0
        for n in range(count):
            sum += x[n]
            total[n] = sum

Python runs it over NumPy arrays. `translate` turns its syntax tree into instructions of an
`Emitter` instead. What there is:

- statements: assignments to names and to `a[i]`, also augmented ones; `for n in range(...)` with a
  constant step above 0; `for k in unrolled(...)`, repeated when compiled; `if`; calls; as the last
  one `return` of a number;
- expressions: numbers, `a[i]`, the array `a[i:]`, + - * / // % << >> & | ^, comparisons, `and`,
  `or`, `not`, conditional expressions; `min` and `max` of two; `float`; `copy` and `clear`; calls
  of other texts, which become part of the caller; constants of the text's module.

Integers have 64 bits and wrap around; reals are of the kernel's type. An integer that meets a real
becomes one, but a name always stands for the same kind. Indices are not negative, and shifts are by
0 to 63. A constant condition decides at compile time. Everything else is a SyntaxError that names
the file and the line.
"""

import ast
import builtins
import inspect
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from textwrap import dedent
from typing import Any, NoReturn

from llvmlite import ir

from seqmodel.kernels.code.emit import INT, Emitter

unrolled = range
"""Of constants: the loop's body is repeated when compiled, with a constant for its variable."""

_TRUTH = ir.IntType(1)
_OPERATORS: Mapping[type, tuple[Callable[[Any, Any], Any], str | None, str | None]] = {
    # As Python computes constants, and the names of instructions for integers and for reals.
    ast.Add: (operator.add, "add", "fadd"),
    ast.Sub: (operator.sub, "sub", "fsub"),
    ast.Mult: (operator.mul, "mul", "fmul"),
    ast.Div: (operator.truediv, None, "fdiv"),
    ast.FloorDiv: (operator.floordiv, "sdiv", None),
    ast.Mod: (operator.mod, "srem", None),
    ast.LShift: (operator.lshift, "shl", None),
    ast.RShift: (operator.rshift, "ashr", None),
    ast.BitAnd: (operator.and_, "and_", None),
    ast.BitOr: (operator.or_, "or_", None),
    ast.BitXor: (operator.xor, "xor", None),
}
_COMPARISONS: Mapping[type, tuple[Callable[[Any, Any], Any], str]] = {
    ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, "<="),
    ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, ">="),
    ast.Eq: (operator.eq, "=="),
    ast.NotEq: (operator.ne, "!="),
}


def copy(source: Any, target: Any, count: int) -> None:
    """Copy `count` reals; a text's call of it is one of `Emitter.copy`."""
    target[:count] = source[:count]


def clear(target: Any, count: int) -> None:
    """Set `count` reals to zero; a text's call of it is one of `Emitter.clear`."""
    target[:count] = 0


@dataclass(frozen=True)
class Pointer:
    """An array of a text: the reals or integers from an address on."""

    address: Any
    kind: Any
    """LLVM's type of a number."""


@dataclass(frozen=True)
class Written:
    """What a text may call, as an argument of it, but not contain: vector code, other kernels."""

    write: Callable[..., Any]
    """Appends the instructions, given addresses and numbers; returns a number or None."""


def translate(e: Emitter, text: Callable[..., Any], **arguments: Any) -> Any:
    """Append a text's instructions; returns what it returns.

    Arguments are a `Pointer` for an array, an instruction's value, a constant, or a `Written`.

    Raises:
        SyntaxError: if the text is not in the language.
    """
    return _Translation(e, text, arguments).result


def _constant(value: Any) -> bool:
    return isinstance(value, (bool, int, float, tuple))


class _Translation:
    """One text, or one call of it, as instructions."""

    def __init__(self, e: Emitter, text: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        lines, first = inspect.getsourcelines(text)
        self._file, self._lines, self._first = inspect.getsourcefile(text), lines, first
        (function,) = ast.parse(dedent("".join(lines))).body
        assert isinstance(function, ast.FunctionDef)
        self._e, self._b, self._globals = e, e.builder, inspect.unwrap(text).__globals__
        self._assigned = Counter(
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        self._fixed = dict(arguments)
        """Names that stand for one value: constants, arrays, and what is not assigned here."""
        self._slots: dict[str, Any] = {}
        """Names of numbers that are assigned: where they are kept."""
        for name in set(arguments) & set(self._assigned):
            self._assigned[name] += 1
            self._assign(function, name, self._fixed.pop(name))
        *body, last = function.body
        returns = isinstance(last, ast.Return) and last.value is not None
        self._block(body if returns else function.body)
        self.result = self._value(last.value) if returns else None  # type: ignore[attr-defined]

    def _fail(self, node: ast.AST, message: str) -> NoReturn:
        line = getattr(node, "lineno", 1) - 1
        raise SyntaxError(message, (self._file, self._first + line, None, self._lines[line]))

    # Statements

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self._store(target, self._value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                now = self._value(target)
                self._store(target, self._binary(node, op, now, self._value(value)))
            case ast.If(test=test, body=body, orelse=other):
                condition = self._truth(node, self._value(test))
                if _constant(condition):
                    self._block(body if condition else other)
                else:
                    with self._b.if_else(condition) as (yes, no):
                        with yes:
                            self._block(body)
                        with no:
                            self._block(other)
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, orelse=[]):
                self._loop(node, name, call)
            case ast.Expr(value=ast.Constant()):  # the docstring
                pass
            case ast.Expr(value=ast.Call() as call):
                self._value(call)
            case ast.Return():
                self._fail(node, "return must be the text's last statement")
            case _:
                what = type(node).__name__.lower()
                self._fail(node, f"{what} is not in the language of kernels")

    def _loop(self, node: ast.For, name: str, call: ast.Call) -> None:
        if name in self._slots:
            self._fail(node, f"{name} is assigned elsewhere too")
        kind, bounds = ast.unparse(call.func), [self._value(a) for a in call.args]
        if kind == "unrolled" and all(map(_constant, bounds)):
            for value in unrolled(*bounds):
                self._fixed[name] = value
                self._block(node.body)
        elif kind == "range" and (len(bounds) < 3 or (_constant(bounds[2]) and bounds[2] > 0)):
            start, stop, step = [0, *bounds, 1] if len(bounds) == 1 else [*bounds, 1][:3]
            with self._e.loop(self._integer(node, start), self._integer(node, stop), step) as k:
                self._fixed[name] = k
                self._block(node.body)
        else:
            self._fail(node, "loops are over range with a constant step above 0, or over unrolled")
        self._fixed.pop(name, None)

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._assign(target, target.id, value)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            place = self._element(target)
            self._b.store(self._as(target, value, place.kind), place.address)
        else:
            self._fail(target, "only names and elements of arrays are assigned")

    def _assign(self, node: ast.AST, name: str, value: Any) -> None:
        if isinstance(value, Pointer) or (_constant(value) and self._assigned[name] == 1):
            if self._assigned[name] > 1:
                self._fail(node, f"{name} is an array and is assigned twice")
            self._fixed[name] = value
            return
        value = self._lifted(value)
        value = self._as(node, value, INT) if value.type == _TRUTH else value
        if name not in self._slots:
            with self._b.goto_entry_block():
                self._slots[name] = self._b.alloca(value.type)
        if self._slots[name].allocated_type != value.type:
            self._fail(node, f"{name} is an integer in one place and a real in another")
        self._b.store(value, self._slots[name])

    # Expressions

    def _value(self, node: ast.expr) -> Any:  # noqa: PLR0911, PLR0912
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name():
                return self._name(node)
            case ast.Subscript(value=array, slice=ast.Slice(lower=start, upper=None, step=None)):
                base = self._array(node, self._value(array))
                return self._from(base, self._value(start) if start else 0, node)
            case ast.Subscript():
                if _constant(values := self._value(node.value)):
                    return values[self._value(node.slice)]
                place = self._element(node)
                return self._b.load(place.address, typ=place.kind)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(node, op, self._value(left), self._value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._value(operand)
                if _constant(value):
                    return -value
                return self._b.fneg(value) if value.type == self._e.real else self._b.neg(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self._truth(node, self._value(operand))
                return not truth if _constant(truth) else self._b.not_(truth)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self._value(one) for one in (left, *others)]
                found = [
                    self._compare(node, *one) for one in zip(ops, values, values[1:], strict=False)
                ]
                if all(map(_constant, found)):
                    return all(found)
                return reduce(self._b.and_, map(self._lifted, found))
            case ast.BoolOp(op=op, values=[*first, last]):
                rest = first[0] if len(first) == 1 else ast.BoolOp(op, first)
                test, other = ast.copy_location(rest, node), ast.Constant(isinstance(op, ast.Or))
                yes, no = (last, other) if isinstance(op, ast.And) else (other, last)
                return self._conditional(node, test, yes, no, truth=True)
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._conditional(node, test, yes, no)
            case ast.Call(func=ast.Name(), keywords=[]):
                return self._call(node)
        return self._fail(node, f"{ast.unparse(node)} is not in the language of kernels")

    def _name(self, node: ast.expr) -> Any:
        assert isinstance(node, ast.Name)
        if node.id in self._slots:
            slot = self._slots[node.id]
            return self._b.load(slot, typ=slot.allocated_type)
        for scope in (self._fixed, self._globals, vars(builtins)):
            if node.id in scope:
                return scope[node.id]
        return self._fail(node, f"{node.id} has no value here")

    def _call(self, node: ast.Call) -> Any:  # noqa: PLR0911
        e, b = self._e, self._b
        called, given = self._name(node.func), [self._value(a) for a in node.args]
        if called in (min, max, len) and all(map(_constant, given)):
            return called(*given)
        if called in (min, max) and len(given) == 2:
            first, second = self._alike(node, *given)
            sign = ast.Lt() if called is min else ast.Gt()
            return b.select(self._compare(node, sign, second, first), second, first)
        if called is float:
            return self._as(node, given[0], e.real)
        if called is copy:
            source, target = (self._array(node, one).address for one in given[:2])
            return e.copy(source, target, self._integer(node, given[2]))
        if called is clear:
            return e.clear(self._array(node, given[0]).address, self._integer(node, given[1]))
        if isinstance(called, Written):
            return called.write(
                *(one.address if isinstance(one, Pointer) else self._lifted(one) for one in given)
            )
        if not inspect.isfunction(called):
            return self._fail(node, f"{ast.unparse(node.func)} is not a text")
        return translate(e, called, **inspect.signature(called).bind(*given).arguments)

    def _conditional(
        self, node: ast.expr, test: ast.expr, yes: ast.expr, no: ast.expr, *, truth: bool = False
    ) -> Any:
        """`yes` or `no`, of which only one is computed; as truth values if so asked."""
        condition, b = self._truth(node, self._value(test)), self._b
        if _constant(condition):
            return self._value(yes if condition else no)
        found = []
        with b.if_else(condition) as branches:
            for branch, one in zip(branches, (yes, no), strict=True):
                with branch:
                    value = self._value(one)
                    value = self._lifted(self._truth(node, value) if truth else value)
                    found.append((value, b.block))
        kinds = {value.type for value, _ in found}
        if len(kinds) > 1:
            self._fail(node, f"{ast.unparse(node)} is an integer or a real")
        chosen = b.phi(*kinds)
        for value, block in found:
            chosen.add_incoming(value, block)
        return chosen

    def _binary(self, node: ast.AST, op: ast.operator, x: Any, y: Any) -> Any:
        if type(op) not in _OPERATORS:
            self._fail(node, f"{type(op).__name__} is not in the language of kernels")
        compute, of_integers, of_reals = _OPERATORS[type(op)]
        if _constant(x) and _constant(y):
            return compute(x, y)
        if of_integers in ("sdiv", "srem"):
            return self._floored(node, op, x, y)
        first, second = self._alike(node, x, y, real=of_integers is None)
        name = of_reals if first.type == self._e.real else of_integers
        if name is None:
            self._fail(node, f"{type(op).__name__} is of integers")
        return getattr(self._b, name)(first, second)

    def _floored(self, node: ast.AST, op: ast.operator, x: Any, y: Any) -> Any:
        """x // y or x % y, rounded down as Python does; instructions round towards zero."""
        b, division = self._b, isinstance(op, ast.FloorDiv)
        if _constant(y) and y > 0 and y & (y - 1) == 0:
            x = self._integer(node, x)
            shift = self._e.int(y.bit_length() - 1)
            return b.ashr(x, shift) if division else b.and_(x, self._e.int(y - 1))
        x, y = self._integer(node, x), self._integer(node, y)
        rest = b.srem(x, y)
        zero = self._e.int(0)
        other_sign = b.icmp_signed("<", b.xor(rest, y), zero)
        low = b.and_(b.icmp_signed("!=", rest, zero), other_sign)
        if division:
            return b.sub(b.sdiv(x, y), b.zext(low, INT))
        return b.add(rest, b.select(low, y, zero))

    def _compare(self, node: ast.AST, op: ast.cmpop, x: Any, y: Any) -> Any:
        if type(op) not in _COMPARISONS:
            self._fail(node, f"{type(op).__name__} is not in the language of kernels")
        compute, sign = _COMPARISONS[type(op)]
        if _constant(x) and _constant(y):
            return compute(x, y)
        x, y = self._alike(node, x, y)
        if x.type == INT:
            return self._b.icmp_signed(sign, x, y)
        # Nan differs from everything, and nothing else holds of it.
        return (self._b.fcmp_unordered if sign == "!=" else self._b.fcmp_ordered)(sign, x, y)

    # Kinds

    def _lifted(self, value: Any) -> Any:
        """A constant as an operand."""
        if isinstance(value, bool):
            return ir.Constant(_TRUTH, value)
        if isinstance(value, int):
            return self._e.int(value)
        return ir.Constant(self._e.real, value) if isinstance(value, float) else value

    def _as(self, node: ast.AST, value: Any, kind: Any) -> Any:
        """A number as a real or an integer; no real becomes an integer."""
        if isinstance(value, Pointer):
            self._fail(node, "an array is not a number")
        if _constant(value) and kind == self._e.real:
            return ir.Constant(kind, float(value))
        value = self._lifted(value)
        if value.type == _TRUTH:
            value = self._b.zext(value, INT)
        if value.type == INT and kind == self._e.real:
            return self._b.sitofp(value, kind)
        if value.type != kind:
            self._fail(node, "a real stands where an integer is needed")
        return value

    def _integer(self, node: ast.AST, value: Any) -> Any:
        return self._as(node, value, INT)

    def _alike(self, node: ast.AST, x: Any, y: Any, *, real: bool = False) -> tuple[Any, Any]:
        """Two numbers of one kind: reals if asked for, or if one of them is."""
        reals = (isinstance(v, float) or getattr(v, "type", None) == self._e.real for v in (x, y))
        kind = self._e.real if real or any(reals) else INT
        return self._as(node, x, kind), self._as(node, y, kind)

    def _truth(self, node: ast.AST, value: Any) -> Any:
        """Whether a number is not zero; constants remain constants."""
        if _constant(value):
            return bool(value)
        return value if value.type == _TRUTH else self._compare(node, ast.NotEq(), value, 0)

    def _array(self, node: ast.AST, value: Any) -> Pointer:
        if not isinstance(value, Pointer):
            self._fail(node, "a number stands where an array is needed")
        return value

    def _element(self, node: ast.Subscript) -> Pointer:
        return self._from(self._array(node, self._value(node.value)), self._value(node.slice), node)

    def _from(self, array: Pointer, index: Any, node: ast.AST) -> Pointer:
        """The array from an index on."""
        start = [self._integer(node, index)]
        return Pointer(self._b.gep(array.address, start, source_etype=array.kind), array.kind)
