"""Emitting LLVM IR from Python: integers, addresses, loops, vector loads and stores.

A kernel is written by running ordinary Python: `f * c + i * g` over `Vector` values computes
nothing; it appends the instructions that will. One source serves float32, float64 and every
vector width.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any

from llvmlite import binding, ir

INT = ir.IntType(64)
POINTER = ir.PointerType()
# Allows fused multiply-add, and no other relaxation: nan and infinity behave as in the
# specification.
FUSE = ("contract",)


@dataclass(frozen=True, eq=False)  # compared by identity: looked up at each call of a kernel
class Target:
    """The properties of a processor that shape the emitted code."""

    vector_bytes: int
    registers: int
    """Vector registers."""


def _host() -> Target:
    features, machine = binding.get_host_cpu_features(), platform.machine().lower()
    size = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target(size, 32 if size == 64 or machine in ("arm64", "aarch64") else 16)


HOST = _host()
PORTABLE = Target(16, 16)
"""Narrow enough for every processor and for WebAssembly."""
_target = ContextVar("target", default=HOST)


def target() -> Target:
    """The target that code is currently emitted for."""
    return _target.get()


@contextmanager
def emitting_for(other: Target) -> Iterator[None]:
    """Within this context, emit kernels and lay out their data for another target."""
    token = _target.set(other)
    try:
        yield
    finally:
        _target.reset(token)


PANEL = 2
"""Vectors in a row of a packed matrix's panel; see `linear.matmul`."""
_FALSE_SHARING = 128  # bytes: two cache lines, since many processors prefetch lines in pairs


def spacing(itemsize: int) -> int:
    """Per-thread buffers are padded to a multiple of this many numbers, to avoid false sharing."""
    return _FALSE_SHARING // itemsize


def padded(count: int, itemsize: int) -> int:
    """`count` rounded up to a multiple of `spacing`."""
    return -(-count // spacing(itemsize)) * spacing(itemsize)


def vector_lanes(itemsize: int) -> int:
    """How many numbers of `itemsize` bytes fit in one vector register of the target."""
    return target().vector_bytes // itemsize


def panel_width(itemsize: int) -> int:
    """Columns in a panel of a packed matrix."""
    return PANEL * vector_lanes(itemsize)


@dataclass(frozen=True)
class Precision:
    """Constants of a floating-point type for the vectorised exp and log."""

    itemsize: int
    mantissa: int  # bits
    bias: int  # of the exponent
    largest: float  # exp's argument is clamped to +- this; the result stays a normal number
    exp_degree: int  # of the polynomial (exp(r) - 1) / r over |r| <= log(2) / 2
    log2: tuple[float, float]  # log(2) as a sum, the first term short so that n times it is exact
    log1p_degree: int  # of the polynomial atanh(s) / s in s squared over |s| <= 1/3


PRECISIONS = {
    4: Precision(4, 23, 127, 87.0, 5, (0.693359375, -2.12194440e-4), 5),
    8: Precision(8, 52, 1023, 708.0, 10, (0.693145751953125, 1.42860682030941723212e-6), 10),
}


@dataclass(frozen=True)
class Lanes:
    """The first `count` lanes of a vector: all if it has fewer; none, in loads only, below 1."""

    count: Any
    mask: Any


class Emitter:
    """Appends instructions to one function, for a float type and a number of lanes."""

    def __init__(self, builder: Any, itemsize: int, lanes: int | None = None) -> None:
        self.builder = builder
        self.precision = PRECISIONS[itemsize]
        self.lanes = lanes or vector_lanes(itemsize)
        self.real = ir.FloatType() if itemsize == 4 else ir.DoubleType()
        self.vector = ir.VectorType(self.real, self.lanes)
        self.integers = ir.VectorType(ir.IntType(8 * itemsize), self.lanes)

    # Integers, addresses and loops

    def int(self, value: Any) -> Any:
        """An integer operand, from a Python int or a value known only at run time."""
        return ir.Constant(INT, value) if isinstance(value, int) else value

    def add(self, *terms: Any) -> Any:
        return reduce(self.builder.add, map(self.int, terms))

    def mul(self, *factors: Any) -> Any:
        return reduce(self.builder.mul, map(self.int, factors))

    def minimum(self, a: Any, b: Any) -> Any:
        """The smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger of two integers."""
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def share(self, count: Any, thread: Any, threads: Any) -> tuple[Any, Any]:
        """A thread's share [first, last) of `count` items."""
        b = self.builder
        first, last = (b.sdiv(self.mul(count, t), threads) for t in (thread, self.add(thread, 1)))
        return first, last

    def parts(self, count: Any, size: Any) -> Any:
        """How many parts of at most `size` items hold `count` items."""
        return self.builder.sdiv(self.add(count, size - 1), self.int(size))

    def offset(self, address: Any, *elements: Any) -> Any:
        """`address` advanced by the sum of `elements` numbers."""
        return self.builder.gep(address, [self.add(*elements)], source_etype=self.real)

    @contextmanager
    def loop(self, start: Any, stop: Any, step: Any = 1) -> Iterator[Any]:
        """`for i in range(start, stop, step)`."""
        with self.carrying(start, stop, step, []) as (i, _):
            yield i

    @contextmanager
    def carrying(
        self, start: Any, stop: Any, step: Any, values: list[Any]
    ) -> Iterator[tuple[Any, list[Any]]]:
        """A loop that carries `values` from one iteration to the next (LLVM's phi nodes).

        The body replaces the entries of the list it is given; after the loop `values` holds the
        final ones. The condition is tested at the bottom, behind a guard: the form that LLVM
        optimises best.
        """
        b, start, stop = self.builder, self.int(start), self.int(stop)
        before = b.block
        body, after = b.append_basic_block(), b.append_basic_block()
        b.cbranch(b.icmp_signed("<", start, stop), body, after)
        b.position_at_end(body)
        i = b.phi(INT)
        phis = [b.phi(v.type) for v in values]
        inside = list(phis)
        yield i, inside
        following = b.add(i, self.int(step))
        latch = b.block
        b.cbranch(b.icmp_signed("<", following, stop), body, after)
        i.add_incoming(start, before)
        i.add_incoming(following, latch)
        b.position_at_end(after)
        for k, (phi, first, last) in enumerate(zip(phis, values, inside, strict=True)):
            phi.add_incoming(first, before)
            phi.add_incoming(last, latch)
            result = b.phi(phi.type)
            result.add_incoming(first, before)
            result.add_incoming(last, latch)
            values[k] = result

    @contextmanager
    def when(self, condition: Any, values: list[Any]) -> Iterator[list[Any]]:
        """Code that runs only if `condition` holds, and may replace `values`.

        The body replaces the entries of the list it is given; afterwards `values` holds those of
        the path taken.
        """
        b = self.builder
        before, body, after = b.block, b.append_basic_block(), b.append_basic_block()
        b.cbranch(condition, body, after)
        b.position_at_end(body)
        inside = list(values)
        yield inside
        end = b.block
        b.branch(after)
        b.position_at_end(after)
        for k, (skipped, replaced) in enumerate(zip(values, inside, strict=True)):
            if replaced is not skipped:
                values[k] = b.phi(replaced.type)
                values[k].add_incoming(skipped, before)
                values[k].add_incoming(replaced, end)

    def choose(self, number: Any, cases: Sequence[Callable[[], object]]) -> None:
        """Run one of the cases, which are numbered from 0; larger numbers run the last."""
        b = self.builder
        *blocks, after = (b.append_basic_block() for _ in range(len(cases) + 1))
        switch = b.switch(number, blocks[-1])
        for k, (block, case) in enumerate(zip(blocks, cases, strict=True)):
            if block is not blocks[-1]:
                switch.add_case(self.int(k), block)
            b.position_at_end(block)
            case()
            b.branch(after)
        b.position_at_end(after)

    def columns(self, count: Any, body: Callable[[Any, Lanes | None], None]) -> None:
        """`body(j, lanes)` for each vector of `count` numbers; lanes is None for a full vector."""
        b = self.builder
        full = b.and_(count, self.int(-self.lanes))
        with self.loop(0, full, self.lanes) as j:
            body(j, None)
        with b.if_then(b.icmp_signed("<", full, count)):
            body(full, self.first_lanes(b.sub(count, full)))

    def copy(self, source: Any, target: Any, count: Any) -> None:

        def move(j: Any, lanes: Any) -> None:
            self.store(self.load(self.offset(source, j), lanes), self.offset(target, j), lanes)

        self.columns(count, move)

    def clear(self, target: Any, count: Any) -> None:
        self.columns(count, lambda j, lanes: self.store(self.zero(), self.offset(target, j), lanes))

    # Vectors

    def first_lanes(self, count: Any) -> Lanes:
        """The first `count` lanes, for loads and stores."""
        b = self.builder
        numbers = ir.Constant(self.integers, list(range(self.lanes)))
        kind = self.integers.element
        limit = count if kind is INT or kind.width == 64 else b.trunc(count, kind)
        return Lanes(count, b.icmp_signed("<", numbers, self.splat(limit, self.integers)))

    def load(self, address: Any, lanes: Lanes | None = None) -> Any:
        """A vector from memory; inactive lanes are not read and hold zero."""
        if lanes is None:
            return self.builder.load(address, align=self.precision.itemsize, typ=self.vector)
        kinds = [POINTER, ir.IntType(32), lanes.mask.type, self.vector]
        name = f"llvm.masked.load.v{self.lanes}f{8 * self.precision.itemsize}.p0"
        function = self._intrinsic(name, self.vector, kinds)
        align = ir.Constant(ir.IntType(32), self.precision.itemsize)
        return self.builder.call(function, [address, align, lanes.mask, self.zero()])

    def store(self, value: Any, address: Any, lanes: Lanes | None = None) -> None:
        """Store a vector, except for its inactive lanes.

        A partial vector is stored in halves, quarters and so on: loads that follow a masked store
        stall (no store forwarding), and many processors have no masked store.
        """
        b, size = self.builder, self.precision.itemsize
        if lanes is None:
            b.store(value, address, align=size)
            return
        whole = b.icmp_signed(">=", lanes.count, self.int(self.lanes))
        with b.if_else(whole) as (all_lanes, some_lanes):
            with all_lanes:
                b.store(value, address, align=size)
            with some_lanes:
                b.call(self._store_part(), [value, address, lanes.count])

    def _store_part(self) -> Any:
        """The function that stores the first n lanes, n less than the vector's number of lanes."""
        module, name = self.builder.module, f"store_part_{self.precision.itemsize}"
        if name in module.globals:
            return module.globals[name]
        kinds = [self.vector, POINTER, INT]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")  # inlined into every tile, it would be slow to compile
        b = ir.IRBuilder(function.append_basic_block())
        e, (value, address, count) = Emitter(b, self.precision.itemsize), function.args
        width = self.lanes // 2
        while width:
            low, high = (e._half(value, width, upper=upper) for upper in (False, True))
            fits, rest = b.icmp_signed("!=", b.and_(count, e.int(width)), e.int(0)), [low, address]
            with e.when(fits, rest) as after:
                b.store(low, address, align=e.precision.itemsize)
                after[:] = high, e.offset(address, width)
            (value, address), width = rest, width // 2
        b.ret_void()
        return function

    def _half(self, value: Any, width: Any, *, upper: bool) -> Any:
        numbers = list(range(width, 2 * width) if upper else range(width))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), width), numbers)
        return self.builder.shuffle_vector(value, value, mask)

    def gather(self, address: Any, stride: Any, count: Any) -> Any:
        """A vector of numbers `stride` apart, starting at `address`.

        Lanes beyond the first `count` repeat the last number: nothing else is read.
        """
        b, vector = self.builder, self.zero()
        last = b.sub(count, self.int(1))
        for lane in range(self.lanes):
            index = self.int(lane)
            index = b.select(b.icmp_signed("<", index, count), index, last)
            number = b.load(self.offset(address, self.mul(stride, index)), typ=self.real)
            vector = b.insert_element(vector, number, ir.IntType(32)(lane))
        return vector

    def scatter(self, value: Any, address: Any, stride: Any, count: Any) -> None:
        """Store the first `count` numbers of a vector (or all) at `address`, `stride` apart."""
        b = self.builder
        whole = b.icmp_signed(">=", count, self.int(self.lanes))
        with b.if_else(whole) as (all_lanes, some_lanes):
            with all_lanes:
                for lane in range(self.lanes):
                    number = b.extract_element(value, ir.IntType(32)(lane))
                    b.store(number, self.offset(address, self.mul(stride, lane)))
            with some_lanes, self.loop(0, count) as lane:
                number = b.extract_element(value, lane)
                b.store(number, self.offset(address, self.mul(stride, lane)))

    def widened(self, address: Any, source: "Emitter") -> Any:
        """A full vector from memory, widened if `source`'s type is narrower."""
        if source.real == self.real:
            return self.load(address)
        narrow = ir.VectorType(source.real, self.lanes)
        value = self.builder.load(address, typ=narrow, align=source.precision.itemsize)
        return self.builder.fpext(value, self.vector)

    def broadcast(self, address: Any) -> Any:
        """One number from memory, in all lanes."""
        return self.splat(self.builder.load(address, typ=self.real), self.vector)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        builder = self.builder
        return builder.fadd(builder.fmul(a, b, flags=FUSE), c, flags=FUSE)

    def sum(self, value: Any) -> Any:
        kinds = [self.real, self.vector]
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.precision.itemsize}"
        start = ir.Constant(self.real, -0.0)
        any_order = ("reassoc",)
        return self.builder.call(
            self._intrinsic(name, self.real, kinds), [start, value], fastmath=any_order
        )

    def dot(self, a: Any, b: Any, count: Any) -> Any:
        """The dot product of the `count` numbers at two addresses."""

        def products(j: Any, lanes: Lanes | None) -> Any:
            x, y = (self.load(self.offset(place, j), lanes) for place in (a, b))
            return self.builder.fmul(x, y, flags=FUSE)

        return self.sum_of(count, products)

    def sum_of(self, count: Any, numbers: Callable[[Any, Lanes | None], Any]) -> Any:
        """The sum of `count` numbers; `numbers(j, lanes)` gives those from j on, 0 past lanes."""
        whole, total = self.builder.and_(count, self.int(-self.lanes)), [self.zero()]
        for start, stop in ((0, whole), (whole, count)):
            with self.carrying(start, stop, self.lanes, total) as (j, inside):
                lanes = self.first_lanes(self.builder.sub(count, j)) if start is whole else None
                inside[0] = self.builder.fadd(numbers(j, lanes), inside[0], flags=FUSE)
        return self.sum(total[0])

    def rounded(self, value: Any) -> Any:
        """Each number rounded to the nearest integer, ties to even."""
        return self._map_lanes("rint", value)

    def root(self, value: Any) -> Any:
        return self._map_lanes("sqrt", value)

    def _map_lanes(self, function: str, value: Any) -> Any:
        name = f"llvm.{function}.v{self.lanes}f{8 * self.precision.itemsize}"
        return self.builder.call(self._intrinsic(name, self.vector, [self.vector]), [value])

    def zero(self) -> Any:
        return self.constant(0.0)

    def constant(self, value: float) -> Any:
        """A vector that holds `value` in every lane."""
        return ir.Constant(self.vector, value)

    def integer(self, value: Any) -> Any:
        """A vector that holds an integer in every lane."""
        return ir.Constant(self.integers, value)

    def splat(self, value: Any, kind: Any) -> Any:
        """A scalar in all lanes of a vector of type `kind`."""
        b = self.builder
        single = b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), 0)
        return b.shuffle_vector(single, ir.Constant(kind, ir.Undefined), mask)

    def _intrinsic(self, name: str, returns: Any, kinds: Sequence[Any]) -> Any:
        module = self.builder.module
        if name in module.globals:
            return module.globals[name]
        return ir.Function(module, ir.FunctionType(returns, kinds), name)
