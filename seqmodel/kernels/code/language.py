"""Kernels as Python functions: run by Python as the specification, translated as compiled code.

A text is an ordinary function in a small subset of Python. Its parameters are arrays, numbers and
compile-time constants, or an object that has these as attributes:

    def running_sum(x, total, count):
        sum = 0.0
        for n in range(count):
            sum += x[n]
            total[n] = sum

Python runs it over NumPy arrays. `translate` turns its syntax tree into instructions of an
`Emitter` instead. The language has:

- statements: assignments to names and to `a[i]`, including augmented ones; `for n in range(...)`
  with a constant positive step; `for k in unrolled(...)`, unrolled at compile time; `if`; calls; as
  the last statement, `return` of a number;
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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from math import exp, log
from textwrap import dedent
from typing import Any, NoReturn

from llvmlite import ir

from seqmodel.kernels.code.emit import FUSE, INT, Emitter
from seqmodel.kernels.code.vectors import Vector

unrolled = range
"""`range` over constants: the loop is unrolled at compile time, its variable a constant."""


def side_by_side(array: Any) -> Any:
    """An array of reals, interleaved by lane, as an array of vectors."""
    return array


_TRUTH = ir.IntType(1)
_OPERATORS: Mapping[type, tuple[Callable[[Any, Any], Any], str | None, str | None]] = {
    # The function that computes constants, and the instructions for integers and for reals.
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
    """Copy `count` reals; in a text, a call becomes `Emitter.copy`."""
    target[:count] = source[:count]


def clear(target: Any, count: int) -> None:
    """Set `count` reals to zero; in a text, a call becomes `Emitter.clear`."""
    target[:count] = 0


@dataclass(frozen=True)
class Pointer:
    """An array of a text: the reals or integers from an address on."""

    address: Any
    """One address, or a list of one for each lane."""
    kind: Any
    """The LLVM type at each index: a number, or a vector of one number for each lane."""


@dataclass(frozen=True)
class Inline:
    """What a text can call, given as an argument, but not contain: vector code, other kernels."""

    write: Callable[..., Any]
    """Appends the instructions, given addresses and numbers; returns a number or None."""


def translate(e: Emitter, text: Callable[..., Any], **arguments: Any) -> Any:
    """Append a text's instructions; returns the text's result.

    Arguments are a `Pointer` for an array, an instruction's value, a constant, or a `Inline`.

    Raises:
        SyntaxError: if the text is not in the language.
    """
    return _Translation(e, text, arguments).result


def _is_constant(value: Any) -> bool:
    return not isinstance(value, ir.Value | Pointer)


def _is_vector(value: Any) -> bool:
    """Whether a value differs between lanes."""
    return isinstance(getattr(value, "type", None), ir.VectorType)


def _scalar_type(kind: Any) -> Any:
    """The type of a number, or of the numbers in a vector."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


@cache
def _parsed(text: Callable[..., Any]) -> tuple[ast.FunctionDef, list[str], int]:
    """A text's syntax tree, its lines, and the number of the first in its file."""
    lines, first = inspect.getsourcelines(text)
    (function,) = ast.parse(dedent("".join(lines))).body
    assert isinstance(function, ast.FunctionDef)
    return function, lines, first


class _Translation:
    """One text, or one call of it, as instructions."""

    def __init__(self, e: Emitter, text: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        function, self._lines, self._first = _parsed(text)
        self._file = inspect.getsourcefile(text)
        self._e, self._b, self._globals = e, e.builder, inspect.unwrap(text).__globals__
        self._assigned = Counter(
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        self._bound = dict(arguments)
        """Names that stand for one value: constants, arrays, and what is not assigned here."""
        self._slots: dict[str, Any] = {}
        """Where assigned numbers are stored, by name."""
        kinds = (getattr(a, "kind", getattr(a, "type", None)) for a in arguments.values())
        self._in_vectors = any(isinstance(kind, ir.VectorType) for kind in kinds)
        """Whether names of reals that are assigned twice hold one real for each lane."""
        for name in set(arguments) & set(self._assigned):
            self._assigned[name] += 1
            self._assign(function, name, self._bound.pop(name))
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
                current = self._value(target)
                self._store(target, self._binary(node, op, current, self._value(value)))
            case ast.If(test=test, body=body, orelse=other):
                condition = self._truth(node, self._value(test))
                if _is_constant(condition):
                    self._block(body if condition else other)
                elif _is_vector(condition):
                    self._fail(node, "the condition differs between lanes")
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
                kind = type(node).__name__.lower()
                self._fail(node, f"{kind} is not in the language of kernels")

    def _loop(self, node: ast.For, name: str, call: ast.Call) -> None:
        if name in self._slots:
            self._fail(node, f"{name} is assigned elsewhere too")
        kind, bounds = ast.unparse(call.func), [self._value(a) for a in call.args]
        if kind == "unrolled" and all(map(_is_constant, bounds)):
            for value in unrolled(*bounds):
                self._bound[name] = value
                self._block(node.body)
        elif kind == "range" and (len(bounds) < 3 or (_is_constant(bounds[2]) and bounds[2] > 0)):
            start, stop, step = [0, *bounds, 1] if len(bounds) == 1 else [*bounds, 1][:3]
            with self._e.loop(self._integer(node, start), self._integer(node, stop), step) as k:
                self._bound[name] = k
                self._block(node.body)
        else:
            self._fail(node, "loops are over range with a constant step above 0, or over unrolled")
        self._bound.pop(name, None)

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._assign(target, target.id, value)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            self._put(target, value, self._element(target))
        else:
            self._fail(target, "only names and elements of arrays are assigned")

    def _assign(self, node: ast.AST, name: str, value: Any) -> None:
        if isinstance(value, Pointer) or (_is_constant(value) and self._assigned[name] == 1):
            if self._assigned[name] > 1:
                self._fail(node, f"{name} is an array and is assigned twice")
            self._bound[name] = value
            return
        value = self._operand(value)
        if _scalar_type(value.type) == _TRUTH:
            value = self._converted(node, value, INT)
        if self._in_vectors and self._assigned[name] > 1 and value.type == self._e.real:
            value = self._e.splat(value, self._e.vector)
        if name not in self._slots:
            with self._b.goto_entry_block():
                self._slots[name] = self._b.alloca(value.type)
        if self._slots[name].allocated_type != value.type:
            self._fail(node, f"{name} is an integer in one place and a real in another")
        self._b.store(value, self._slots[name])

    # Expressions

    def _value(self, node: ast.expr) -> Any:  # noqa: PLR0911, PLR0912
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.Attribute(value=owner, attr=name) if _is_constant(value := self._value(owner)):
                return getattr(value, name)
            case ast.Name():
                return self._name(node)
            case ast.Subscript(value=array, slice=ast.Slice(lower=start, upper=None, step=None)):
                base = self._array(node, self._value(array))
                return self._from(base, self._value(start) if start else 0, node)
            case ast.Subscript():
                if _is_constant(values := self._value(node.value)):
                    return values[self._value(node.slice)]
                return self._get(self._element(node))
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(node, op, self._value(left), self._value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._value(operand)
                if _is_constant(value):
                    return -value
                real = _scalar_type(value.type) == self._e.real
                return self._b.fneg(value) if real else self._b.neg(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self._truth(node, self._value(operand))
                return not truth if _is_constant(truth) else self._b.not_(truth)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self._value(one) for one in (left, *others)]
                found = [
                    self._compare(node, *one) for one in zip(ops, values, values[1:], strict=False)
                ]
                if all(map(_is_constant, found)):
                    return all(found)
                return reduce(self._b.and_, self._in_lanes(map(self._operand, found)))
            case ast.BoolOp(op=op, values=[*first, last]):
                rest = first[0] if len(first) == 1 else ast.BoolOp(op, first)
                test, other = ast.copy_location(rest, node), ast.Constant(isinstance(op, ast.Or))
                yes, no = (last, other) if isinstance(op, ast.And) else (other, last)
                return self._conditional(node, test, yes, no, truth=True)
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._conditional(node, test, yes, no)
            case ast.Call(func=ast.Name() | ast.Attribute(), keywords=[]):
                return self._call(node)
        return self._fail(node, f"{ast.unparse(node)} is not in the language of kernels")

    def _name(self, node: ast.expr) -> Any:
        assert isinstance(node, ast.Name)
        if node.id in self._slots:
            slot = self._slots[node.id]
            return self._b.load(slot, typ=slot.allocated_type)
        for scope in (self._bound, self._globals, vars(builtins)):
            if node.id in scope:
                return scope[node.id]
        return self._fail(node, f"{node.id} has no value here")

    def _call(self, node: ast.Call) -> Any:  # noqa: PLR0911
        e, b = self._e, self._b
        function, args = self._value(node.func), [self._value(a) for a in node.args]
        if function in (min, max, len) and all(map(_is_constant, args)):
            return function(*args)
        if function in (min, max) and len(args) == 2:
            first, second = self._same_type(node, *args)
            sign = ast.Lt() if function is min else ast.Gt()
            return b.select(self._compare(node, sign, second, first), second, first)
        if function is float:
            return self._converted(node, args[0], e.real)
        if function in (int, round, log, exp):
            return self._real_function(function, self._converted(node, args[0], e.real))
        if function in (copy, clear):
            *arrays, count = args
            addresses = [self._array(node, one).address for one in arrays]
            widest = Emitter(b, e.precision.itemsize)  # whatever this text's lanes are
            write: Any = widest.copy if function is copy else widest.clear
            return write(*addresses, self._integer(node, count))
        if function is side_by_side:
            return Pointer(self._array(node, args[0]).address, e.vector)
        if isinstance(function, Inline):
            return function.write(
                *(one.address if isinstance(one, Pointer) else self._operand(one) for one in args)
            )
        if not inspect.isfunction(function):
            return self._fail(node, f"{ast.unparse(node.func)} is not a text")
        return translate(e, function, **inspect.signature(function).bind(*args).arguments)

    def _conditional(
        self, node: ast.expr, test: ast.expr, yes: ast.expr, no: ast.expr, *, truth: bool = False
    ) -> Any:
        """`yes` or `no`: one is computed, or both if lanes differ; as truth values if `truth`."""
        condition, b = self._truth(node, self._value(test)), self._b
        if _is_constant(condition):
            return self._value(yes if condition else no)
        if _is_vector(condition):
            values = [self._value(one) for one in (yes, no)]
            if truth:
                values = [self._operand(self._truth(node, value)) for value in values]
            else:
                values = self._same_type(node, *values)
            return b.select(*self._in_lanes([condition, *values]))
        values_by_block = []
        with b.if_else(condition) as branches:
            for branch, one in zip(branches, (yes, no), strict=True):
                with branch:
                    value = self._value(one)
                    value = self._operand(self._truth(node, value) if truth else value)
                    values_by_block.append((value, b.block))
        kinds = {value.type for value, _ in values_by_block}
        if len(kinds) > 1:
            self._fail(node, f"{ast.unparse(node)} is an integer or a real")
        result = b.phi(*kinds)
        for value, block in values_by_block:
            result.add_incoming(value, block)
        return result

    def _binary(self, node: ast.AST, op: ast.operator, x: Any, y: Any) -> Any:
        if type(op) not in _OPERATORS:
            self._fail(node, f"{type(op).__name__} is not in the language of kernels")
        compute, integer_op, real_op = _OPERATORS[type(op)]
        if _is_constant(x) and _is_constant(y):
            return compute(x, y)
        if integer_op in ("sdiv", "srem"):
            return self._floored(node, op, x, y)
        first, second = self._same_type(node, x, y, real=integer_op is None)
        name = real_op if _scalar_type(first.type) == self._e.real else integer_op
        if name is None:
            self._fail(node, f"{type(op).__name__} is of integers")
        fused = {"flags": FUSE} if _is_vector(first) and name == real_op else {}
        return getattr(self._b, name)(first, second, **fused)

    def _floored(self, node: ast.AST, op: ast.operator, x: Any, y: Any) -> Any:
        """x // y or x % y, rounded down as Python does; instructions round towards zero."""
        b, division = self._b, isinstance(op, ast.FloorDiv)
        if _is_constant(y) and y > 0 and y & (y - 1) == 0:
            operand = self._e.int(y.bit_length() - 1 if division else y - 1)
            x, operand = self._in_lanes([self._integer(node, x), operand])
            return (b.ashr if division else b.and_)(x, operand)
        operands = [self._integer(node, x), self._integer(node, y), self._e.int(0)]
        x, y, zero = self._in_lanes(operands)
        rest = b.srem(x, y)
        other_sign = b.icmp_signed("<", b.xor(rest, y), zero)
        adjust = b.and_(b.icmp_signed("!=", rest, zero), other_sign)
        if division:
            return b.sub(b.sdiv(x, y), self._converted(node, adjust, INT))
        return b.add(rest, b.select(adjust, y, zero))

    def _compare(self, node: ast.AST, op: ast.cmpop, x: Any, y: Any) -> Any:
        if type(op) not in _COMPARISONS:
            self._fail(node, f"{type(op).__name__} is not in the language of kernels")
        compute, sign = _COMPARISONS[type(op)]
        if _is_constant(x) and _is_constant(y):
            return compute(x, y)
        x, y = self._same_type(node, x, y)
        if _scalar_type(x.type) == INT:
            return self._b.icmp_signed(sign, x, y)
        # Nan differs from everything; every other comparison with it is false.
        return (self._b.fcmp_unordered if sign == "!=" else self._b.fcmp_ordered)(sign, x, y)

    # Kinds

    def _operand(self, value: Any) -> Any:
        """A constant as an operand."""
        if isinstance(value, bool):
            return ir.Constant(_TRUTH, value)
        if isinstance(value, int):
            return self._e.int(value)
        return ir.Constant(self._e.real, value) if isinstance(value, float) else value

    def _converted(self, node: ast.AST, value: Any, kind: Any) -> Any:
        """A number, in each lane if wide, as a real or an integer; a real never becomes one."""
        if isinstance(value, Pointer):
            self._fail(node, "an array is not a number")
        if _is_constant(value) and kind == self._e.real:
            return ir.Constant(kind, float(value))
        value = self._operand(value)

        def widened(kind: Any) -> Any:
            return ir.VectorType(kind, self._e.lanes) if _is_vector(value) else kind

        if _scalar_type(value.type) == _TRUTH:
            value = self._b.zext(value, widened(INT))
        if _scalar_type(value.type) == INT and kind == self._e.real:
            return self._b.sitofp(value, widened(kind))
        if _scalar_type(value.type) != kind:
            self._fail(node, "a real stands where an integer is needed")
        return value

    def _in_lanes(self, values: Iterable[Any]) -> list[Any]:
        """The values, in every lane if one of them differs between lanes."""
        values = list(values)
        if any(map(_is_vector, values)):
            kinds = [ir.VectorType(_scalar_type(value.type), self._e.lanes) for value in values]
            pairs = zip(values, kinds, strict=True)
            values = [v if _is_vector(v) else self._e.splat(v, kind) for v, kind in pairs]
        return values

    def _real_function(self, function: Any, value: Any) -> Any:
        """`int`, `round`, `log` or `exp` of a real."""
        e = self._e
        x = value if _is_vector(value) else e.splat(value, e.vector)
        if function is int:
            result = self._b.fptosi(x, ir.VectorType(INT, e.lanes))
        elif function is round:
            result = e.rounded(x)
        else:
            result = (Vector(e, x).log() if function is log else Vector(e, x).exp()).value
        return result if _is_vector(value) else self._b.extract_element(result, e.int(0))

    def _integer(self, node: ast.AST, value: Any) -> Any:
        return self._converted(node, value, INT)

    def _same_type(self, node: ast.AST, x: Any, y: Any, *, real: bool = False) -> list[Any]:
        """Two numbers of one kind: reals if `real`, or if either is one."""
        types = (_scalar_type(getattr(v, "type", None)) for v in (x, y) if not isinstance(v, float))
        reals = real or isinstance(x, float) or isinstance(y, float) or self._e.real in types
        kind = self._e.real if reals else INT
        return self._in_lanes([self._converted(node, x, kind), self._converted(node, y, kind)])

    def _truth(self, node: ast.AST, value: Any) -> Any:
        """Whether a number is not zero; constants remain constants."""
        if _is_constant(value):
            return bool(value)
        is_truth = _scalar_type(value.type) == _TRUTH
        return value if is_truth else self._compare(node, ast.NotEq(), value, 0)

    # Arrays

    def _array(self, node: ast.AST, value: Any) -> Pointer:
        if not isinstance(value, Pointer):
            self._fail(node, "a number stands where an array is needed")
        return value

    def _element(self, node: ast.Subscript) -> Pointer:
        return self._from(self._array(node, self._value(node.value)), self._value(node.slice), node)

    def _from(self, array: Pointer, index: Any, node: ast.AST) -> Pointer:
        """The array from an index on."""
        b, index, addresses = self._b, self._integer(node, index), array.address
        if not _is_vector(index) and not isinstance(addresses, list):
            return Pointer(b.gep(addresses, [index], source_etype=array.kind), array.kind)
        lanes = [self._e.int(lane) for lane in range(self._e.lanes)]
        if not isinstance(addresses, list):
            own = lanes if isinstance(array.kind, ir.VectorType) else [self._e.int(0)] * len(lanes)
            number = _scalar_type(array.kind)
            addresses = [b.gep(addresses, [lane], source_etype=number) for lane in own]
        steps = [b.extract_element(index, lane) for lane in lanes] if _is_vector(index) else [index]
        pairs = zip(addresses, steps * (len(lanes) // len(steps)), strict=True)
        return Pointer([b.gep(a, [k], source_etype=array.kind) for a, k in pairs], array.kind)

    def _get(self, element: Pointer) -> Any:
        """The number at a place, of the kernel's type if it is a real."""
        e, b, number = self._e, self._b, _scalar_type(element.kind)
        if isinstance(element.address, list):
            value = ir.Constant(ir.VectorType(number, e.lanes), ir.Undefined)
            for lane, address in enumerate(element.address):
                loaded = b.load(address, typ=number)
                value = b.insert_element(value, loaded, e.int(lane))
        else:
            align = e.precision.itemsize if isinstance(element.kind, ir.VectorType) else None
            value = b.load(element.address, typ=element.kind, align=align)
        if number in (INT, e.real):
            return value
        if isinstance(number, ir.IntType):
            return b.zext(value, INT)
        return b.fpext(value, e.vector if _is_vector(value) else e.real)

    def _put(self, node: ast.AST, value: Any, element: Pointer) -> None:
        """Store a number, rounded to the array's type."""
        e, b, number = self._e, self._b, _scalar_type(element.kind)
        value = self._converted(node, value, INT if number == INT else e.real)
        in_lanes = isinstance(element.kind, ir.VectorType) or isinstance(element.address, list)
        if _is_vector(value) and not in_lanes:
            self._fail(node, "a number that differs between lanes stands where one is needed")
        if in_lanes and not _is_vector(value):
            value = e.splat(value, ir.VectorType(value.type, e.lanes))
        if number not in (INT, e.real):
            value = b.fptrunc(value, ir.VectorType(number, e.lanes) if in_lanes else number)
        if isinstance(element.address, list):
            for lane, address in enumerate(element.address):
                b.store(b.extract_element(value, e.int(lane)), address)
        else:
            b.store(value, element.address, align=e.precision.itemsize if in_lanes else None)
