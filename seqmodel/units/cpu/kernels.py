"""A unit's kernels: their fields, and the loops over time, rows and columns around its passes.

Each thread takes a share of the batch through all time steps, so threads never wait for each other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import add, mul, sub, truediv
from types import MappingProxyType
from typing import Any

import torch
from llvmlite import ir

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, Lanes
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.code.vectors import (
    ACTIVATIONS,
    FUNCTIONS,
    GATE_ACTIVATIONS,
    Function,
    Vector,
)
from seqmodel.kernels.linear.matmul import matmul, row_matmul, write_pack
from seqmodel.kernels.linear.outer import (
    add_products,
    in_panels,
    packed_blocks,
    tables,
    write_fold,
)
from seqmodel.kernels.linear.sparse import FIRST, INDEX, add_outer, list_rows, sum_columns
from seqmodel.kernels.run.signature import THREADS, Array, Signature, of_thread, packed, per_thread
from seqmodel.kernels.run.threads import Kernel, compile_kernel
from seqmodel.units.cpu.graph import Id
from seqmodel.units.cpu.schedule import Layout, Level, Pass, Place, Projection, Store
from seqmodel.units.definition import TERMS, UnitSpec
from seqmodel.units.language import Weight

_SIZES = ("T", "B", "I", "H", "steps")
"""`steps` is how many time steps make a block."""
_OPTIONS = ("shortest", "in_order")
"""`shortest` is for `lengths`. Unless `in_order`, each thread's rows lie apart in what only the
loops use: what a thread fetches ahead would otherwise be lines that another is writing. h, which is
the output, is always in the order of x.
"""
LISTED = {"indices": ("T * B", "I"), "counts": ("T * B",), "listed": (THREADS,)}
"""Where the forward loops list the nonzero numbers of x; omitted unless x is data."""


def forward_fields(layout: Layout, *, with_product: bool = False) -> Signature:
    """The fields of the forward loops; with `with_product`, also a product that W x is added to."""
    arrays = [Array("x", ("T", "B", "I")), *_shared(layout)]
    for state in layout.states:
        arrays.append(Array(f"first_{state}", ("B", "H")))
        arrays.append(Array(f"final_{state}", ("B", "H"), optional=True))
    arrays += [Array(name, shape, torch.int32, optional=True) for name, shape in LISTED.items()]
    arrays += [packed(p.name, *_shape(p)) for p in layout.projections]
    arrays += [Array("product", ("B", _shape(layout.input)[1]))] if with_product else []
    return Signature("forward", _SIZES, tuple(arrays), (*_OPTIONS, "sparse_limit"))


def backward_fields(layout: Layout) -> Signature:
    """The fields of the backward loops."""
    # d_slots holds a block of steps, which stays in the cache until the products that read it; or
    # all steps, if the gradients of W and U are summed afterwards.
    arrays = [*_shared(layout), Array("d_slots", ("steps * B", f"{len(layout.slots)} * H"))]
    arrays.append(Array("x", ("T", "B", "I"), optional=True))
    arrays += [
        Array(name, LISTED[name], torch.int32, optional=True) for name in ("indices", "counts")
    ]
    for p in layout.projections:  # W only if x needs gradients; a thread's sums are transposed
        source, target = _shape(p)
        arrays.append(packed(p.name, target, source, optional=p.term == "W"))
        arrays.append(tables(source, target, f"d_{p.name}", optional=True))
    arrays.append(packed_blocks("max(I, H)", optional=True))
    arrays.append(Array("d_h", ("T", "B", "H"), strides=("d_h_step", "d_h_row")))
    for state in layout.states:
        arrays.append(Array(f"d_final_{state}", ("B", "H"), optional=True))
        # The gradient passed to the previous step; at the end, that of the initial state.
        arrays.append(Array(f"carried_{state}", ("B", "H")))
    arrays.append(Array("d_x", ("T", "B", "I"), optional=True))
    arrays += [per_thread("sums", f"{len(layout.summed)} * H"), *_weights(layout, TERMS, "total_")]
    return Signature("backward", _SIZES, tuple(arrays), _OPTIONS)


def _shared(layout: Layout) -> list[Array]:
    """The arrays used in both directions."""
    arrays = [Array("slots", ("T * B", f"{len(layout.slots)} * H"))]
    arrays += [Array(f"all_{state}", ("T + 1", "B", "H")) for state in layout.states]  # and first
    arrays += [Array(f"zone_{state}", ("T", "B", "H")) for state in layout.zones]
    arrays += [Array("means", ("T * B", str(len(layout.means))))] if layout.means else []
    arrays += [per_thread("row", f"{layout.scratch} * H")] if layout.scratch else []
    arrays += _weights(layout, ("V", "b", "bU")) + _weights(layout, ("W", "U"), "whole_")
    # Given if some row is shorter than T; `shortest` is the least length, otherwise above T.
    return [*arrays, Array("lengths", ("B",), torch.int64, optional=True)]


def _weights(layout: Layout, terms: Sequence[str], prefix: str = "") -> list[Array]:
    """The weights of all gates of each term that the unit has."""
    counts, columns = {t: len(layout.owners(t)) for t in terms}, {"W": ("I",), "U": ("H",)}
    shapes = {t: (f"{n} * H", *columns.get(t, ())) for t, n in counts.items() if n}
    shapes |= {"V": (f"{counts['V']}", "H")} if "V" in shapes else {}
    return [Array(f"{prefix}{t}", shape, optional=t in columns) for t, shape in shapes.items()]


def _shape(p: Projection) -> tuple[str, str]:
    """How many numbers a projection reads from a row, and how many it makes."""
    return "I" if p.term == "W" else "H", f"{len(p.gates)} * H"


Functions = Mapping[str, Function]
"""The functions of a text: s and phi as chosen, the others under their own names."""
_OPERATIONS: Mapping[str, Callable[..., Vector]] = {
    "+": add, "-": sub, "*": mul, "/": truediv, "where": Vector.select_less,
}  # fmt: skip


class Addresses:
    """A kernel's fields, addresses within its arrays, and the products of its thread's rows.

    If the batch is a single row, the packed matrices may take `w_bytes` bytes per number.
    """

    def __init__(
        self, layout: Layout, e: Emitter, field: dict[str, Any], thread: Any, threads: Any,
        w_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.layout, self.e, self.field = layout, e, field
        self.thread, self.threads = thread, threads
        self.first, self.last = e.share(self.field["B"], thread, threads)
        self.rows, self.w_bytes = e.builder.sub(self.last, self.first), w_bytes
        in_order = e.builder.icmp_signed("!=", field["in_order"], e.int(0))
        self.own_first = e.builder.select(in_order, e.int(0), self.first)
        self.own_rows = e.builder.select(in_order, field["B"], self.rows)
        self.width = e.mul(field["H"], len(layout.slots))
        self.block = e.int(0)
        """The first step of the block whose gradients the backward loops hold."""

    def row(self, t: Any, r: Any) -> Any:
        """The index of row `r` at step t."""
        return self.e.add(self.e.mul(t, self.field["B"]), r)

    def own_row(self, steps: Any, t: Any, r: Any) -> Any:
        """The same in an array of `steps` steps, in which each thread's rows may lie apart."""
        before = self.e.mul(steps, self.own_first), self.e.mul(t, self.own_rows)
        return self.e.add(*before, self.e.builder.sub(r, self.own_first))

    def place(self, name: str, row: Any, j: Any = 0) -> Any:
        """The address of number `j` of a row of H numbers."""
        return self.e.offset(self.field[name], self.e.mul(row, self.field["H"]), j)

    def address(self, place: Place, t: Any, r: Any, j: Any = 0) -> Any:  # noqa: PLR0911
        """The address of number `j` of a place at step t of row r."""
        e, kind, name = self.e, *place
        if kind in ("slot", "d_slot"):
            before = e.mul(self.field["H"], self.layout.slot(name))
            steps = self.field["T"] if kind == "slot" else self.field["steps"]
            row = self.own_row(steps, t if kind == "slot" else e.builder.sub(t, self.block), r)
            return e.offset(self.field[f"{kind}s"], e.mul(row, self.width), before, j)
        if kind in ("old", "now"):
            t, steps = t if kind == "old" else e.add(t, 1), e.add(self.field["T"], 1)
            row = self.row(t, r) if name == "h" else self.own_row(steps, t, r)
            return self.place(f"all_{name}", row, j)
        if kind == "zone":
            return self.place(f"zone_{name}", self.row(t, r), j)
        if kind == "carried":
            return self.place(f"carried_{name}", r, j)
        if kind == "sum":
            return self.sum_place(self.layout.summed.index(name), j)
        if kind == "mean":
            row = e.mul(self.own_row(self.field["T"], t, r), len(self.layout.means))
            return e.offset(self.field["means"], row, self.layout.means.index(name))
        if kind == "scratch":
            return of_thread(e, self.field, "row", self.thread, e.mul(self.field["H"], name), j)
        return e.offset(self.field[kind], e.mul(self.row(t, r), self.size(place)), j)

    def size(self, place: Place) -> Any:
        """How many numbers a place holds per row."""
        return self.field["I" if place.kind in ("x", "d_x") else "H"]

    def rows_of(self, place: Place, t: Any) -> tuple[Any, Any]:
        """The address of a place in the thread's rows at step t, and the distance between rows."""
        stride = self.width if place.kind in ("slot", "d_slot") else self.size(place)
        return self.address(place, t, self.first), stride

    def span_sizes(self, first: Any, last: Any) -> tuple[Any, Any]:
        """How many spans of adjacent rows the thread has in some steps, and the rows of each.

        Those of a thread with the whole batch are a single span; otherwise each step is one.
        """
        b, steps = self.e.builder, self.e.builder.sub(last, first)
        whole = b.icmp_signed("==", self.rows, self.field["B"])
        one, all_rows = self.e.int(1), self.e.mul(steps, self.rows)
        return b.select(whole, one, steps), b.select(whole, all_rows, self.rows)

    @contextmanager
    def spans(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """A loop over such spans: the first step of each, and its rows."""
        count, rows = self.span_sizes(first, last)
        with self.e.loop(0, count) as n:
            yield self.e.add(first, n), rows

    def step_of(self, place: Place) -> Any:
        """The distance between a row of a place and the same row of the next step."""
        rows = self.field["B"] if place.kind == "x" or place.name == "h" else self.own_rows
        return self.e.mul(rows, self.rows_of(place, self.block)[1])

    def is_given(self, name: str) -> Any:
        """Whether an optional array was passed."""
        return self.e.builder.icmp_unsigned("!=", self.field[name], POINTER(None))

    def listed_rows(self, t: Any) -> tuple[Any, Any, Any]:
        """The thread's rows of x at step t, and the lists of their nonzero numbers."""
        row, b = self.row(t, self.first), self.e.builder
        x, inputs = self.rows_of(Place("x", None), t)
        indices = b.gep(self.field["indices"], [self.e.mul(row, inputs)], source_etype=INDEX)
        return x, indices, b.gep(self.field["counts"], [row], source_etype=INDEX)

    def table(self, p: Projection) -> tuple[Any, Any, Any]:
        """The thread's table for the gradient of a projection's matrix, and its size."""
        table = of_thread(self.e, self.field, f"d_{p.name}", self.thread)
        return table, self.size(p.source), self.outputs(p)

    def outputs(self, p: Projection) -> Any:
        """How many numbers a projection makes per row."""
        return self.e.mul(self.field["H"], len(p.gates))

    def part(self, p: Projection, whole: str) -> Any:
        """Where a projection's gates begin in an array of all gates."""
        before = self.e.mul(self.field["H"], p.gates.start, self.size(p.source))
        return self.e.offset(self.field[f"{whole}_{p.term}"], before)

    def project(self, p: Projection, t: Any, rows: Any = None) -> None:
        """Compute a projection of the thread's rows at step t, or of a span of rows from there."""
        source, target = self.rows_of(p.source, t), self.rows_of(Place("slot", p.into), t)
        sizes = self.size(p.source), self.outputs(p), p.adds
        if self.w_bytes is None:
            matmul(self.e, *source, self.field[p.name], *target, rows or self.rows, *sizes)
        else:
            row_matmul(self.e, self.w_bytes, source[0], self.field[p.name], target[0], *sizes)

    def project_back(self, p: Projection, t: Any, adds: bool, rows: Any = None) -> None:
        """Transposed `project`: from the gradients of the projection's slots to its source's."""
        d, target = self.rows_of(Place("d_slot", p.into), t), self.rows_of(p.source.gradient, t)
        sizes = rows or self.rows, self.outputs(p), self.size(p.source), adds
        matmul(self.e, *d, self.field[p.name], *target, *sizes)

    def sum_place(self, n: int, j: Any) -> Any:
        """The address of number `j` of the thread's sum `n`."""
        before = self.e.mul(self.field["H"], n)
        return of_thread(self.e, self.field, "sums", self.thread, before, j)

    def length(self, r: Any) -> Any:
        """The length of row `r`, in a batch with a row shorter than T."""
        b = self.e.builder
        return b.load(b.gep(self.field["lengths"], [r], source_etype=INT), typ=INT)

    @contextmanager
    def rows_by_length(self, relation: str, t: Any) -> Iterator[Any]:
        """A loop over the rows whose length has `relation` to t, skipped while t < shortest."""
        b = self.e.builder
        any_ended = b.icmp_signed(">=", self.e.int(t), self.field["shortest"])
        with b.if_then(any_ended), self.e.loop(self.first, self.last) as r:
            holds = b.icmp_signed(relation, self.length(r), self.e.int(t))
            with b.if_then(holds):
                yield r

    def is_running(self, r: Any, t: Any, dense: Any) -> Any:
        """Whether row `r` is longer than t; `dense`, cheaper to test, says that all rows are."""
        b, result = self.e.builder, [ir.Constant(ir.IntType(1), 1)]
        with self.e.when(b.not_(dense), result) as inside:
            inside[0] = b.icmp_signed(">", self.length(r), t)
        return result[0]

    def start_gradients(self, r: Any, count: Any) -> None:
        """Set the carried gradients of `count` rows from r on to those of their final states."""
        b = self.e.builder
        numbers = self.e.mul(count, self.field["H"])
        for state in self.layout.states:
            carried = self.place(f"carried_{state}", r)
            with b.if_else(self.is_given(f"d_final_{state}")) as (some, none):
                with some:
                    self.e.copy(self.place(f"d_final_{state}", r), carried, numbers)
                with none:
                    self.e.clear(carried, numbers)


class Columns:
    """A vector of columns from `j` on, and the weights of these columns that a pass reads.

    Rows are the inner loop, so that weights are loaded once and sums stay in registers; with means,
    columns are, and the means' sums stay. `sums` are those that stay, `uniform` the values that all
    columns of a row have in common.
    """

    def __init__(
        self, kernel: Addresses, step: Pass, j: Any, lanes: Lanes | None, functions: Functions,
        sums: Sequence[Place], uniform: Mapping[Id, Vector] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.kernel, self.j, self.lanes, self._functions = kernel, j, lanes, functions
        self._step, self._sums, self._uniform = step, sums, uniform
        self._weights = dict[Weight, Vector]()
        for kind, weight in step.loads.values():
            if kind == "vector":
                number = kernel.layout.owners(weight.term).index(weight.gate)
                self._weights[weight] = self._load(kernel.place(weight.term, number, j))

    def run(self, t: Any, r: Any, sums: list[Any]) -> None:
        """Run the pass at step `t` for row `r`, adding its part to `sums`."""
        step, values = self._step, dict(self._uniform)
        for n in step.nodes:
            if n in step.loads:
                values[n] = self._load_place(step.loads[n], t, r)
                continue
            values[n] = _node_value(self.kernel, self._functions, n, values)
            for store in step.stores_of(n):
                self._store(store, values[n], t, r, sums)
        for n in {**step.loads, **self._uniform}:  # last: they may replace what else is loaded
            for store in step.stores_of(n):
                self._store(store, values[n], t, r, sums)
        for place in step.cleared:
            address = self.kernel.address(place, t, r, self.j)
            self.kernel.e.store(self.kernel.e.zero(), address, self.lanes)

    def _load_place(self, place: Place, t: Any, r: Any) -> Vector:
        k, e = self.kernel, self.kernel.e
        if place.kind == "vector":
            return self._weights[place.name]
        if place.kind != "d_now":
            return self._load(k.address(place, t, r, self.j))
        passed = self._load(k.address(Place("carried", place.name), t, r, self.j))
        if place.name != "h":  # only the final value of another state is an output
            return passed
        step, row = k.field["d_h_step"], k.field["d_h_row"]
        return self._load(e.offset(k.field["d_h"], e.mul(t, step), e.mul(r, row), self.j)) + passed

    def _store(self, store: Store, value: Vector, t: Any, r: Any, sums: list[Any]) -> None:
        k, place = self.kernel, store.place
        if place in self._sums:
            n = self._sums.index(place)
            if place.kind == "mean" and self.lanes is not None:
                value = value.masked(self.lanes)
            sums[n] = (Vector(k.e, sums[n]) + value).value
            return
        address = k.address(place, t, r, self.j)
        value = self._load(address) + value if store.adds else value
        k.e.store(value.value, address, self.lanes)

    def _load(self, address: Any) -> Vector:
        return Vector(self.kernel.e, self.kernel.e.load(address, self.lanes))


def _node_value(k: Addresses, functions: Functions, n: Id, values: Mapping[Id, Vector]) -> Vector:
    """The value of a node, from the values of the nodes that it reads."""
    op, *args = k.layout.graph.nodes[n]
    if op == "number":
        return Vector(k.e, k.e.constant(args[0]))
    if op == "slope":
        return functions[args[0]].slope(values[args[1]])
    read = [values[m] for m in args]
    return _OPERATIONS[op](*read) if op in _OPERATIONS else functions[op](*read)


def _write_row(k: Addresses, level: Level, functions: Functions, t: Any, r: Any) -> None:
    """All passes of a level over a row; each can read the means of those before it."""
    e, b, H, uniform = k.e, k.e.builder, k.field["H"], dict[Id, Vector]()
    for step in level.passes:
        for n in step.uniform:
            if n in step.loads:
                uniform[n] = Vector(e, e.broadcast(k.address(step.loads[n], t, r)))
            else:
                uniform[n] = _node_value(k, functions, n, uniform)
        means = step.placed("mean")
        full, totals = b.and_(H, e.int(-e.lanes)), [e.zero() for _ in means]
        for start, stop in ((0, full), (full, H)):
            with e.carrying(start, stop, e.lanes, totals) as (j, inside):
                lanes = e.first_lanes(b.sub(H, j)) if start is full else None
                Columns(k, step, j, lanes, functions, means, uniform).run(t, r, inside)
        for place, total in zip(means, totals, strict=True):
            count = e.splat(b.sitofp(H, e.real), e.vector)
            mean = uniform[place.name] = Vector(e, total).over_lanes(add) / Vector(e, count)
            if place.name in k.layout.means:
                b.store(b.extract_element(mean.value, e.int(0)), k.address(place, t, r))


def write_forward(k: Addresses, functions: Functions) -> None:
    """The forward loops over the thread's rows."""
    e, b, layout, H = k.e, k.e.builder, k.layout, k.field["H"]
    for state in layout.states:
        before = k.address(Place("old", state), e.int(0), k.first)
        e.copy(k.place(f"first_{state}", k.first), before, e.mul(k.rows, H))
    may_list = k.is_given("indices")
    listing = [may_list, e.int(0)]  # whether all frames so far are listed; how many numbers are
    with e.carrying(0, k.field["T"], k.field["steps"], listing) as (start, inside):
        end = e.minimum(e.add(start, k.field["steps"]), k.field["T"])
        inside[:] = _write_input(k, start, end, *inside)
        with e.loop(start, end) as t:
            _write_forward_step(k, functions, t)
    with b.if_then(k.is_given("final_h")), e.loop(k.first, k.last) as r:
        end = [k.field["T"]]
        with e.when(k.is_given("lengths"), end) as inside:
            inside[0] = k.length(r)
        for state in layout.states:
            e.copy(k.address(Place("old", state), end[0], r), k.place(f"final_{state}", r), H)
    with b.if_then(may_list):
        run_pass = b.gep(k.field["listed"], [k.thread], source_etype=INDEX)
        b.store(b.zext(listing[0], INDEX), run_pass)


def _write_forward_step(k: Addresses, functions: Functions, t: Any) -> None:
    """Step t of the thread's rows, from W x on."""
    e, layout, H = k.e, k.layout, k.field["H"]
    with k.rows_by_length("<=", t) as r:  # x is arbitrary there
        e.clear(k.address(Place("slot", layout.input.into), t, r), k.outputs(layout.input))
    for level in layout.forward:
        for p in level.projections:
            k.project(p, t)
        if level.in_rows:
            with e.loop(k.first, k.last) as r:
                _write_row(k, level, functions, t, r)
            continue
        for step in level.passes:

            def run_pass(j: Any, lanes: Lanes | None, step: Pass = step) -> None:
                columns = Columns(k, step, j, lanes, functions, [])
                with e.loop(k.first, k.last) as r:
                    columns.run(t, r, [])

            e.columns(H, run_pass)
    with k.rows_by_length("<=", t) as r:
        ended = [Place("now", state) for state in layout.states]
        # Otherwise their nan times 0 would reach the gradient of U.
        ended += [Place("slot", name) for name in layout.sources.values()]
        for ended_place in ended:
            e.clear(k.address(ended_place, t, r), H)


def _write_input(k: Addresses, start: Any, end: Any, listing: Any, count: Any) -> tuple[Any, Any]:
    """W x of a block of steps; returns the new `listing` and `count`.

    As long as x is sparse, the indices of its nonzero numbers are listed and columns of W summed.
    """
    e, b, p = k.e, k.e.builder, k.layout.input
    first = e.minimum(k.field["T"], e.int(FIRST))
    found = [listing, count, start]  # last, the first step that is not listed
    with e.carrying(start, end, 1, found) as (t, after), e.when(after[0], after) as inside:
        x, indices, counts = k.listed_rows(t)
        steps = e.maximum(first, e.add(t, 1))
        listed = list_rows(e, x, k.rows, k.field["I"], indices, counts)
        inside[1] = e.add(inside[1], listed)
        inside[0] = b.icmp_signed("<=", inside[1], e.mul(steps, k.field["sparse_limit"]))
        with e.when(inside[0], inside) as sparse:
            target = k.outputs(p), *k.rows_of(Place("slot", p.into), t)
            listed_x, w_bytes = (x, indices, counts, k.rows), k.w_bytes or e.precision.itemsize
            sum_columns(e, *listed_x, k.field["W"], k.field["I"], *target, w_bytes=w_bytes)
            sparse[2] = e.add(t, 1)
    listing, count, dense = found
    with b.if_then(b.icmp_signed("<", dense, end)):
        product = k.field.get("product")
        if product is not None:  # of a single step
            e.copy(product, k.address(Place("slot", p.into), dense, k.first), k.outputs(p))
        with k.spans(dense, end) as (t, rows):
            k.project(p._replace(adds=product is not None), t, rows)
    return listing, count


def _write_backward(k: Addresses, functions: Functions) -> None:
    e, b, layout, T, steps = k.e, k.e.builder, k.layout, k.field["T"], k.field["steps"]
    k.start_gradients(k.first, k.rows)
    e.clear(k.sum_place(0, 0), e.mul(k.field["H"], len(layout.summed)))
    for p in layout.projections:
        with b.if_then(k.is_given(f"d_{p.name}")):
            e.clear(k.table(p)[0], k.field[f"d_{p.name}_step"])
    with e.loop(0, T, steps) as done:
        end = b.sub(T, done)
        k.block = b.sub(end, e.minimum(steps, end))
        with e.loop(k.block, end) as n:
            t = b.sub(e.add(k.block, b.sub(end, e.int(1))), n)
            _write_backward_step(k, functions, t)
        with b.if_then(k.is_given("d_x")), k.spans(k.block, end) as (t, rows):
            k.project_back(layout.input, t, False, rows)
        _write_products(k, end)


def _write_backward_step(k: Addresses, functions: Functions, t: Any) -> None:
    """Back over step t of the thread's rows, but for the products that no other step waits for."""
    e, b, layout = k.e, k.e.builder, k.layout
    with k.rows_by_length("<=", t) as r:
        e.clear(k.address(Place("d_slot", layout.slots[0]), t, r), k.width)
    dense = b.icmp_signed("<", t, k.field["shortest"])
    for level in layout.backward:
        if level.in_rows:
            with e.loop(k.first, k.last) as r, b.if_then(k.is_running(r, t, dense)):
                _write_row(k, level, functions, t, r)
        else:
            (step,) = level.passes

            def place(j: Any, lanes: Lanes | None, step: Pass = step) -> None:
                summed = step.placed("sum")
                columns = Columns(k, step, j, lanes, functions, summed)
                places = [k.address(place, t, 0, j) for place in summed]
                sums = [e.load(place, lanes) for place in places]
                with (
                    e.carrying(k.first, k.last, 1, sums) as (r, inside),
                    e.when(k.is_running(r, t, dense), inside) as row_sums,
                ):
                    columns.run(t, r, row_sums)
                for place, value in zip(places, sums, strict=True):
                    e.store(value, place, lanes)

            e.columns(k.field["H"], place)
        for p, adds in zip(level.projections, level.adds, strict=True):
            k.project_back(p, t, adds)
    with k.rows_by_length("==", t) as r:  # their last frame comes next
        k.start_gradients(r, 1)


def _write_products(k: Addresses, end: Any) -> None:
    """Add a block's part to the thread's sums for the gradients of W and U, transposed."""
    e, b, layout = k.e, k.e.builder, k.layout
    listed = k.is_given("indices")
    into = Place("d_slot", layout.input.into)
    with b.if_then(listed), k.spans(k.block, end) as (t, rows):
        add_outer(e, *k.listed_rows(t), rows, *k.table(layout.input), *k.rows_of(into, t))
    scratch = of_thread(e, k.field, "scratch", k.thread)
    for p in layout.projections:
        wanted = k.is_given(f"d_{p.name}")
        if p.term == "W":
            wanted = b.and_(wanted, b.not_(listed))
        places = p.source, Place("d_slot", p.into)
        with b.if_then(wanted):
            count, rows = k.span_sizes(k.block, end)
            source, d = ((*k.rows_of(place, k.block), k.step_of(place)) for place in places)
            table, *size = k.table(p)
            add_products(e, count, rows, source, d, in_panels(e, table, *size), *size, scratch)


def _pack(k: Addresses, *, transposed: bool = False) -> None:
    """Pack all projections' matrices, `transposed` for the forward loops."""
    for p in k.layout.projections:
        K, N = (k.size(p.source), k.outputs(p))[:: 1 if transposed else -1]
        fields = {"K": K, "N": N, "matrix": k.part(p, "whole"), "panels": k.field[p.name]}
        with k.e.builder.if_then(k.is_given(p.name)):
            write_pack(k.e, fields, k.thread, k.threads, transposed)


def _fold(k: Addresses) -> None:
    """Add up the threads' sums and, transposed, their tables."""

    def fold(tables: Any, step: Any, total: Any, I: Any, N: Any) -> None:  # noqa: E741
        fields = {"count": k.threads, "I": I, "N": N, "tables": tables, "total": total}
        write_fold(k.e, fields | {"tables_step": step}, k.thread, k.threads)

    for p in k.layout.projections:
        with k.e.builder.if_then(k.is_given(f"d_{p.name}")):
            tables = k.field[f"d_{p.name}"], k.field[f"d_{p.name}_step"]
            fold(*tables, k.part(p, "total"), k.size(p.source), k.outputs(p))
    sums, step, H = k.field["sums"], k.field["sums_step"], k.field["H"]
    for term in ("b", "V", "bU"):  # as in `summed`
        if n := len(k.layout.owners(term)):
            fold(sums, step, k.field[f"total_{term}"], k.e.int(1), k.e.mul(H, n))
            sums = k.e.offset(sums, k.e.mul(H, n))


class CompiledUnit:
    """A unit's compiled loops, for one floating-point type and one choice of activations."""

    def __init__(
        self, spec: UnitSpec, itemsize: int, gate_activation: str, activation: str, bias: bool
    ) -> None:
        self.layout, functions = Layout(spec, bias=bias), functions_of(gate_activation, activation)

        def compiled(signature: Signature, *stages: Callable[[Addresses], None]) -> list[Kernel]:
            def body(write: Any, e: Emitter, field: dict[str, Any], *share: Any) -> None:
                write(Addresses(self.layout, e, field, *share))

            return [compile_kernel(signature, itemsize, partial(body, write)) for write in stages]

        # One after another, over the same fields.
        forward = partial(_pack, transposed=True), partial(write_forward, functions=functions)
        backward = _pack, partial(_write_backward, functions=functions), _fold
        self.forward = compiled(forward_fields(self.layout), *forward)
        self.backward = compiled(backward_fields(self.layout), *backward)


compiled_unit = compiled_once(CompiledUnit)
"""The loops of a unit, compiled at first use."""


def functions_of(gate_activation: str, activation: str) -> Functions:
    """The functions that a text can use, with these as s and phi."""
    return {**FUNCTIONS, "s": GATE_ACTIVATIONS[gate_activation], "phi": ACTIVATIONS[activation]}
