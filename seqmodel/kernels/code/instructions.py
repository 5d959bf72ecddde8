"""Texts of `code.language` as instructions of an `Emitter`."""

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import exp, log
from typing import Any

from llvmlite import ir

from seqmodel.kernels.code.emit import FUSE, INT, Emitter
from seqmodel.kernels.code.language import Translation, clear, copy, side_by_side
from seqmodel.kernels.code.vectors import Vector

_TRUTH = ir.IntType(1)
_INSTRUCTIONS: Mapping[type, tuple[str | None, str | None]] = {
    # For integers and for reals.
    ast.Add: ("add", "fadd"),
    ast.Sub: ("sub", "fsub"),
    ast.Mult: ("mul", "fmul"),
    ast.Div: (None, "fdiv"),
    ast.FloorDiv: ("sdiv", None),
    ast.Mod: ("srem", None),
    ast.LShift: ("shl", None),
    ast.RShift: ("ashr", None),
    ast.BitAnd: ("and_", None),
    ast.BitOr: ("or_", None),
    ast.BitXor: ("xor", None),
}
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(frozen=True)
class Pointer:
    """An array of a text: the reals or integers from an address on."""

    address: Any
    """One address, or a list of one for each lane."""
    kind: Any
    """The LLVM type at each index: a number, or a vector of one number for each lane."""


@dataclass(frozen=True)
class Inline:
    """What a text can call but not contain: vector code, other kernels."""

    write: Callable[..., Any]
    """Appends the instructions, given an emitter, addresses and numbers; returns a number or None.
    """


dot: Any = Inline(Emitter.dot)
"""The dot product of so many numbers of two arrays."""


def of_vectors(function: Callable[..., Any]) -> Any:
    """A function of `Vector`s as what a text can call, also with single numbers."""

    def write(e: Emitter, *numbers: Any) -> Any:
        wide = (n if _is_vector(n) else e.splat(n, e.vector) for n in numbers)
        found = function(*(Vector(e, n) for n in wide))
        found = found.value if isinstance(found, Vector) else found
        in_lanes = any(map(_is_vector, numbers))
        return found if in_lanes else e.builder.extract_element(found, e.int(0))

    return Inline(write)


def _truncated(x: Vector) -> Any:
    return x.e.builder.fptosi(x.value, ir.VectorType(INT, x.e.lanes))


_OF_REALS: Mapping[Any, Any] = {
    int: of_vectors(_truncated), round: of_vectors(lambda x: x.e.rounded(x.value)),
    log: of_vectors(Vector.log), exp: of_vectors(Vector.exp),
}  # fmt: skip


def translate(e: Emitter, text: Callable[..., Any], **arguments: Any) -> Any:
    """Append a text's instructions; returns the text's result.

    Arguments are a `Pointer` for an array, an instruction's value, a constant, or a `Inline`.

    Raises:
        SyntaxError: if the text is not in the language.
    """
    return _Instructions(e, text, arguments).run()


def _is_vector(value: Any) -> bool:
    """Whether a value differs between lanes."""
    return isinstance(getattr(value, "type", None), ir.VectorType)


def _scalar_type(kind: Any) -> Any:
    """The type of a number, or of the numbers in a vector."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


class _Instructions(Translation):
    numbers, array = (ir.Value,), Pointer

    def __init__(self, e: Emitter, text: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        super().__init__(text, arguments)
        self._e, self._b = e, e.builder
        self._slots: dict[str, Any] = {}
        """Where assigned numbers are stored, by name; other names are bound to one value."""
        kinds = (getattr(a, "kind", getattr(a, "type", None)) for a in arguments.values())
        self._in_vectors = any(isinstance(kind, ir.VectorType) for kind in kinds)
        """Whether names of reals that are assigned twice hold one real for each lane."""
        for name in arguments:
            if self.assigned[name] > 1:
                self.assign(self.function, name, self.bound.pop(name))

    # Statements

    def assign(self, node: ast.AST, name: str, value: Any) -> None:
        if isinstance(value, Pointer) or (self.is_constant(value) and self.assigned[name] == 1):
            self.bound[name] = value
            return
        value = self._operand(value)
        if _scalar_type(value.type) == _TRUTH:
            value = self._converted(node, value, INT)
        if self._in_vectors and self.assigned[name] > 1 and value.type == self._e.real:
            value = self._e.splat(value, self._e.vector)
        if name not in self._slots:
            with self._b.goto_entry_block():
                self._slots[name] = self._b.alloca(value.type)
        if self._slots[name].allocated_type != value.type:
            self.fail(node, f"{name} is an integer in one place and a real in another")
        self._b.store(value, self._slots[name])

    def branch(self, node: ast.If, condition: Any) -> None:
        if _is_vector(condition):
            self.fail(node, "the condition differs between lanes")
        with self._b.if_else(condition) as branches:
            for branch, body in zip(branches, (node.body, node.orelse), strict=True):
                with branch:
                    self.block(body)

    def unroll(self, node: ast.For, name: str, values: Sequence[int]) -> None:
        self._check_loop(node, name)
        super().unroll(node, name, values)

    def loop(self, node: ast.For, name: str, start: Any, stop: Any, step: int) -> None:
        self._check_loop(node, name)
        with self._e.loop(self._integer(node, start), self._integer(node, stop), step) as k:
            self.bound[name] = k
            self.block(node.body)

    def _check_loop(self, node: ast.For, name: str) -> None:
        if name in self._slots:
            self.fail(node, f"{name} is assigned elsewhere too")

    # Expressions

    def name(self, node: ast.Name) -> Any:
        if node.id in self._slots:
            slot = self._slots[node.id]
            return self._b.load(slot, typ=slot.allocated_type)
        return super().name(node)

    def binary(self, node: ast.AST, op: type, x: Any, y: Any) -> Any:
        if op in _SIGNS:
            return self._compare(node, _SIGNS[op], x, y)
        integer_op, real_op = _INSTRUCTIONS[op]
        if integer_op in ("sdiv", "srem"):
            return self._floored(node, op, x, y)
        first, second = self._same_type(node, x, y, real=integer_op is None)
        name = real_op if _scalar_type(first.type) == self._e.real else integer_op
        if name is None:
            self.fail(node, f"{op.__name__} is of integers")
        fused = {"flags": FUSE} if _is_vector(first) and name == real_op else {}
        return getattr(self._b, name)(first, second, **fused)

    def _floored(self, node: ast.AST, op: type, x: Any, y: Any) -> Any:
        """x // y or x % y, rounded down as Python does; instructions round towards zero."""
        b, division = self._b, op is ast.FloorDiv
        if self.is_constant(y) and y > 0 and y & (y - 1) == 0:
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

    def _compare(self, node: ast.AST, sign: str, x: Any, y: Any) -> Any:
        x, y = self._same_type(node, x, y)
        if _scalar_type(x.type) == INT:
            return self._b.icmp_signed(sign, x, y)
        # Nan differs from everything; every other comparison with it is false.
        return (self._b.fcmp_unordered if sign == "!=" else self._b.fcmp_ordered)(sign, x, y)

    def negative(self, value: Any) -> Any:
        real = _scalar_type(value.type) == self._e.real
        return self._b.fneg(value) if real else self._b.neg(value)

    def inverse(self, truth: Any) -> Any:
        return self._b.not_(truth)

    def all_of(self, node: ast.AST, truths: Sequence[Any]) -> Any:
        return reduce(self._b.and_, self._in_lanes(map(self._operand, truths)))

    def truth_of(self, node: ast.AST, value: Any) -> Any:
        is_truth = _scalar_type(value.type) == _TRUTH
        return value if is_truth else self._compare(node, "!=", value, 0)

    def conditional(
        self, node: ast.expr, condition: Any, yes: ast.expr, no: ast.expr, *, truth: bool
    ) -> Any:
        """One is computed, or both if lanes differ."""
        b = self._b
        if _is_vector(condition):
            values = [self.value(one) for one in (yes, no)]
            if truth:
                values = [self._operand(self.truth(node, value)) for value in values]
            else:
                values = self._same_type(node, *values)
            return b.select(*self._in_lanes([condition, *values]))
        values_by_block = []
        with b.if_else(condition) as branches:
            for branch, one in zip(branches, (yes, no), strict=True):
                with branch:
                    value = self.value(one)
                    value = self._operand(self.truth(node, value) if truth else value)
                    values_by_block.append((value, b.block))
        kinds = {value.type for value, _ in values_by_block}
        if len(kinds) > 1:
            self.fail(node, f"{ast.unparse(node)} is an integer or a real")
        result = b.phi(*kinds)
        for value, block in values_by_block:
            result.add_incoming(value, block)
        return result

    def call(self, node: ast.Call, function: Any, args: list[Any]) -> Any:  # noqa: PLR0911
        e, b = self._e, self._b
        if function in (min, max) and len(args) == 2:
            first, second = self._same_type(node, *args)
            sign = "<" if function is min else ">"
            return b.select(self._compare(node, sign, second, first), second, first)
        if function is float:
            return self._converted(node, args[0], e.real)
        if function in _OF_REALS:
            return _OF_REALS[function].write(e, self._converted(node, args[0], e.real))
        if function in (copy, clear):
            *arrays, count = args
            addresses = [self._array(node, one).address for one in arrays]
            widest = Emitter(b, e.precision.itemsize)  # whatever this text's lanes are
            write: Any = widest.copy if function is copy else widest.clear
            return write(*addresses, self._integer(node, count))
        if function is side_by_side:
            return Pointer(self._array(node, args[0]).address, e.vector)
        if isinstance(function, Inline):
            own = (one.address if isinstance(one, Pointer) else self._operand(one) for one in args)
            return function.write(e, *own)
        if not inspect.isfunction(function):
            return self.fail(node, f"{ast.unparse(node.func)} is not a text")
        return translate(e, function, **inspect.signature(function).bind(*args).arguments)

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
            self.fail(node, "an array is not a number")
        if self.is_constant(value) and kind == self._e.real:
            return ir.Constant(kind, float(value))
        value = self._operand(value)

        def widened(kind: Any) -> Any:
            return ir.VectorType(kind, self._e.lanes) if _is_vector(value) else kind

        if _scalar_type(value.type) == _TRUTH:
            value = self._b.zext(value, widened(INT))
        if _scalar_type(value.type) == INT and kind == self._e.real:
            return self._b.sitofp(value, widened(kind))
        if _scalar_type(value.type) != kind:
            self.fail(node, "a real stands where an integer is needed")
        return value

    def _in_lanes(self, values: Iterable[Any]) -> list[Any]:
        """The values, in every lane if one of them differs between lanes."""
        values = list(values)
        if any(map(_is_vector, values)):
            kinds = [ir.VectorType(_scalar_type(value.type), self._e.lanes) for value in values]
            pairs = zip(values, kinds, strict=True)
            values = [v if _is_vector(v) else self._e.splat(v, kind) for v, kind in pairs]
        return values

    def _integer(self, node: ast.AST, value: Any) -> Any:
        return self._converted(node, value, INT)

    def _same_type(self, node: ast.AST, x: Any, y: Any, *, real: bool = False) -> list[Any]:
        """Two numbers of one kind: reals if `real`, or if either is one."""
        types = (_scalar_type(getattr(v, "type", None)) for v in (x, y) if not isinstance(v, float))
        reals = real or isinstance(x, float) or isinstance(y, float) or self._e.real in types
        kind = self._e.real if reals else INT
        return self._in_lanes([self._converted(node, x, kind), self._converted(node, y, kind)])

    # Arrays

    def _array(self, node: ast.AST, value: Any) -> Pointer:
        if not isinstance(value, Pointer):
            self.fail(node, "a number stands where an array is needed")
        return value

    def rest(self, node: ast.AST, array: Any, start: Any) -> Pointer:
        return self._from(self._array(node, array), start, node)

    def get(self, node: ast.AST, array: Any, index: Any) -> Any:
        return array[index] if self.is_constant(array) else self._get(self.rest(node, array, index))

    def put(self, node: ast.AST, array: Any, index: Any, value: Any) -> None:
        self._put(node, value, self.rest(node, array, index))

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
            self.fail(node, "a number that differs between lanes stands where one is needed")
        if in_lanes and not _is_vector(value):
            value = e.splat(value, ir.VectorType(value.type, e.lanes))
        if number not in (INT, e.real):
            value = b.fptrunc(value, ir.VectorType(number, e.lanes) if in_lanes else number)
        if isinstance(element.address, list):
            for lane, address in enumerate(element.address):
                b.store(b.extract_element(value, e.int(lane)), address)
        else:
            b.store(value, element.address, align=e.precision.itemsize if in_lanes else None)
