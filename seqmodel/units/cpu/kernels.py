"""The loops over time, rows and columns around a unit's passes.

Each thread takes a share of the batch through all time steps, so threads never wait for each other.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import add, mul, sub, truediv
from typing import Any

from llvmlite import ir

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, Lanes
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.code.vectors import (
    ACTIVATIONS,
    FUNCTIONS,
    GATE_ACTIVATIONS,
    Function,
    Vector,
)
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.linear.outer import scratch_length, write_outer
from seqmodel.kernels.linear.sparse import INDEX, list_rows, sum_columns
from seqmodel.kernels.run.team import compile_kernels
from seqmodel.units.cpu import fields
from seqmodel.units.cpu.layout import Layout, Place, Projection
from seqmodel.units.cpu.schedule import Pass, Schedule, Store
from seqmodel.units.definition import UnitSpec
from seqmodel.units.language import Weight

Functions = Mapping[str, Function]
"""What a text's functions are: s and phi as chosen, and those of the same name."""
_ARITHMETIC = {"+": add, "-": sub, "*": mul, "/": truediv}


class Addresses:
    """A kernel's fields, and addresses within its arrays."""

    def __init__(
        self, layout: Layout, e: Emitter, field: dict[str, Any], thread: Any, threads: Any
    ) -> None:
        self.layout, self.e, self.field, self.thread = layout, e, field, thread
        self.first, self.last = e.share(self.field["B"], thread, threads)

    def place(self, name: str, row: Any, width: int = 1, part: int = 0, j: Any = 0) -> Any:
        """The address of number `j` in `part` of a row of `width` parts of H numbers."""
        H = self.field["H"]
        return self.e.offset(self.field[name], self.e.mul(row, width, H), self.e.mul(part, H), j)

    def slot(self, name: str, row: Any, slot: str, j: Any = 0) -> Any:
        """The address of number `j` of a row's slot, in `slots` or `d_slots`."""
        return self.place(name, row, len(self.layout.slots), self.layout.slot(slot), j)

    def of_step(self, place: Place, t: Any, r: Any, j: Any) -> Any:
        """The address of number `j` of a place at step t of row r."""
        e, kind, name = self.e, *place
        row = e.add(e.mul(t, self.field["B"]), r)
        if kind == "old":
            return self.place(f"all_{name}", row, j=j)
        if kind == "now":
            return self.place(f"all_{name}", e.add(row, self.field["B"]), j=j)
        if kind == "carried":
            return self.place(f"carried_{name}", r, j=j)
        if kind == "slot":
            return self.slot("slots", row, name, j)
        return self.slot("d_slots", e.add(e.mul(t, self.field["d_step"]), r), name, j)

    def source(self, p: Projection, start: Any) -> tuple[Any, Any]:
        """The address and stride of what a projection multiplies, from row `start` on."""
        if p.source.kind == "old":
            return self.place(f"all_{p.source.name}", start), self.stride(1)
        return self.slot("slots", start, p.source.name), self.stride(len(self.layout.slots))

    def sum_place(self, n: int, j: Any) -> Any:
        """The address of number `j` of the thread's sum `n`."""
        H = self.field["H"]
        sums = self.e.padded(self.e.mul(H, len(self.layout.summed)))
        return self.e.offset(self.field["sums"], self.e.mul(self.thread, sums), self.e.mul(H, n), j)

    def stride(self, width: int) -> Any:
        """The distance between rows of `width` parts."""
        return self.e.mul(self.field["H"], width)

    def length(self, r: Any) -> Any:
        """The length of row `r`, in a batch with a row shorter than T."""
        b = self.e.builder
        return b.load(b.gep(self.field["lengths"], [r], source_etype=INT), typ=INT)

    @contextmanager
    def rows_whose_length(self, relation: str, t: Any) -> Iterator[Any]:
        """A loop over the rows whose length has `relation` to t, skipped while t < shortest."""
        b = self.e.builder
        some = b.icmp_signed(">=", self.e.int(t), self.field["shortest"])
        with b.if_then(some), self.e.loop(self.first, self.last) as r:
            here = b.icmp_signed(relation, self.length(r), self.e.int(t))
            with b.if_then(here):
                yield r

    def going_on(self, r: Any, t: Any, dense: Any) -> Any:
        """Whether row `r` is longer than t; `dense` says whether all rows are, which is cheaper."""
        b, found = self.e.builder, [ir.Constant(ir.IntType(1), 1)]
        with self.e.when(b.not_(dense), found) as asked:
            asked[0] = b.icmp_signed(">", self.length(r), t)
        return found[0]

    def start_gradients(self, r: Any, count: Any) -> None:
        """Set the carried gradients of `count` rows from r on to those of their final states."""
        b = self.e.builder
        numbers = self.e.mul(count, self.field["H"])
        for state in self.layout.states:
            carried = self.place(f"carried_{state}", r)
            given = b.icmp_unsigned("!=", self.field[f"d_final_{state}"], POINTER(None))
            with b.if_else(given) as (some, none):
                with some:
                    self.e.copy(self.place(f"d_final_{state}", r), carried, numbers)
                with none:
                    self.e.clear(carried, numbers)


class Columns:
    """A vector of columns from `j` on, and the weights of these columns that a pass reads.

    Rows are the inner loop, so that the weights are loaded once and sums stay in registers.
    """

    def __init__(
        self, kernel: Addresses, step: Pass, j: Any, lanes: Lanes | None, functions: Functions
    ) -> None:
        self.kernel, self.j, self.lanes, self._functions = kernel, j, lanes, functions
        self._step, self._weights = step, dict[Weight, Vector]()
        for kind, weight in step.loads.values():
            if kind == "vector":
                number = kernel.layout.owners(weight.term).index(weight.gate)
                self._weights[weight] = self._load(kernel.place(weight.term, 0, 1, number, j))

    def run(self, t: Any, r: Any, sums: list[Any]) -> None:
        """The pass at step `t` of row `r`; adds this row's part to `sums`, those of the pass."""
        step, values = self._step, dict[int, Vector]()
        for n in step.nodes:
            if n in step.loads:
                values[n] = self._loaded(step.loads[n], t, r)
                continue
            values[n] = self._computed(*self.kernel.layout.graph.nodes[n], values)
            for store in step.of_node(n):
                self._store(store, values[n], t, r, sums)
        for n in step.loads:  # later, as they may replace what else is loaded
            for store in step.of_node(n):
                self._store(store, values[n], t, r, sums)
        for place in step.cleared:
            address = self.kernel.of_step(place, t, r, self.j)
            self.kernel.e.store(self.kernel.e.zero(), address, self.lanes)

    def _loaded(self, place: Place, t: Any, r: Any) -> Vector:
        k, e = self.kernel, self.kernel.e
        if place.kind == "vector":
            return self._weights[place.name]
        if place.kind != "d_now":
            return self._load(k.of_step(place, t, r, self.j))
        passed = self._load(k.of_step(Place("carried", place.name), t, r, self.j))
        if place.name != "h":  # only the final value of another state is an output
            return passed
        step, row = k.field["d_h_step"], k.field["d_h_row"]
        return self._load(e.offset(k.field["d_h"], e.mul(t, step), e.mul(r, row), self.j)) + passed

    def _computed(self, op: str, *args: Any) -> Vector:
        e, (*reads, values) = self.kernel.e, args
        if op == "number":
            return Vector(e, e.constant(reads[0]))
        if op == "slope":
            return self._functions[reads[0]].slope(values[reads[1]])
        read = [values[n] for n in reads]
        return _ARITHMETIC[op](*read) if op in _ARITHMETIC else self._functions[op](*read)

    def _store(self, store: Store, value: Vector, t: Any, r: Any, sums: list[Any]) -> None:
        k, place = self.kernel, store.place
        if place.kind == "sum":
            n = self._step.summed.index(place.name)
            sums[n] = (Vector(k.e, sums[n]) + value).value
            return
        address = k.of_step(place, t, r, self.j)
        value = self._load(address) + value if store.adds else value
        k.e.store(value.value, address, self.lanes)

    def _load(self, address: Any) -> Vector:
        return Vector(self.kernel.e, self.kernel.e.load(address, self.lanes))


def _write_forward(k: Addresses, passes: list[Pass], functions: Functions) -> None:
    e, layout, width = k.e, k.layout, len(k.layout.slots)
    b, H, rows = e.builder, k.field["H"], e.builder.sub(k.last, k.first)
    for state in layout.states:
        first = k.place(f"first_{state}", k.first)
        e.copy(first, k.place(f"all_{state}", k.first), e.mul(rows, H))
    may_list = b.icmp_unsigned("!=", k.field["indices"], POINTER(None))
    of_loop = [may_list, e.int(0)]  # whether all frames so far are listed; how many ones they have
    with e.carrying(0, k.field["T"], 1, of_loop) as (t, inside):
        start = e.add(e.mul(t, k.field["B"]), k.first)
        inside[:] = _write_input(k, start, rows, *inside)
        with k.rows_whose_length("<=", t) as r:  # x is arbitrary there
            net = k.place("slots", e.add(e.mul(t, k.field["B"]), r), width)
            e.clear(net, e.mul(H, layout.inputs))
        for step in passes:
            for p in step.projections:
                u = k.field[f"U{layout.projections.index(p)}"]
                target = k.slot("slots", start, p.into), k.stride(width)
                matmul(e, *k.source(p, start), u, *target, rows, H, e.mul(H, len(p.gates)), p.adds)

            def place(j: Any, lanes: Lanes | None, t: Any = t, step: Pass = step) -> None:
                columns = Columns(k, step, j, lanes, functions)
                with e.loop(k.first, k.last) as r:
                    columns.run(t, r, [])

            e.columns(H, place)
        with k.rows_whose_length("<=", t) as r:
            for state in layout.states:
                e.clear(k.place(f"all_{state}", e.add(e.mul(e.add(t, 1), k.field["B"]), r)), H)
            for name in layout.sources.values():  # the gradient of U would be 0 times their nan
                e.clear(k.slot("slots", e.add(e.mul(t, k.field["B"]), r), name), H)
    with k.rows_whose_length("<=", k.field["T"]) as r:
        for state in layout.states:
            last = k.place(f"all_{state}", e.add(e.mul(k.length(r), k.field["B"]), r))
            e.copy(last, k.place(f"final_{state}", r), H)
    with b.if_then(may_list):
        place = b.gep(k.field["listed"], [k.thread], source_etype=INDEX)
        b.store(b.zext(of_loop[0], INDEX), place)


def _write_input(k: Addresses, start: Any, rows: Any, listing: Any, ones: Any) -> tuple[Any, Any]:
    """W x of one step's rows from `start` on; returns the new `listing` and `ones`.

    As long as x is binary and sparse, the indices of its ones are listed and columns of W summed.
    """
    e, layout, I = k.e, k.layout, k.field["I"]  # noqa: E741
    b, itemsize, width = e.builder, e.precision.itemsize, len(layout.slots)
    x = e.offset(k.field["x"], e.mul(start, I))
    net, stride = k.place("slots", start, width), k.stride(width)
    N = e.mul(k.field["H"], layout.inputs)
    indices, counts = (
        b.gep(k.field[name], [e.mul(start, size)], source_etype=INDEX)
        for name, size in (("indices", I), ("counts", 1))
    )
    found = [listing, ones]
    with e.when(listing, found) as tried:
        tried[1] = e.add(ones, list_rows(e, x, rows, I, indices, counts))
        tried[0] = b.icmp_signed("<=", tried[1], k.field["sparse_limit"])
    listed, so_far = found
    with b.if_else(listed) as (summed, dense):
        with summed:
            sum_columns(e, itemsize, indices, counts, rows, k.field["W"], I, N, net, stride)
        with dense:
            matmul(e, x, I, k.field["W"], net, stride, rows, I, N, False)
    return listed, so_far


def _write_backward(k: Addresses, passes: list[Pass], functions: Functions) -> None:
    e, layout, width = k.e, k.layout, len(k.layout.slots)
    H, rows = k.field["H"], e.builder.sub(k.last, k.first)
    k.start_gradients(k.first, rows)
    e.clear(k.sum_place(0, 0), e.mul(H, len(layout.summed)))
    with e.loop(0, k.field["T"]) as i:
        t = e.builder.sub(k.field["T"], e.add(i, 1))
        start = e.add(e.mul(t, k.field["B"]), k.first)
        d_start = e.add(e.mul(t, k.field["d_step"]), k.first)
        with k.rows_whose_length("<=", t) as r:
            row = e.add(e.mul(t, k.field["d_step"]), r)
            e.clear(k.place("d_slots", row, width), k.stride(width))
        dense = e.builder.icmp_signed("<", t, k.field["shortest"])
        for step in passes:

            def place(
                j: Any, lanes: Lanes | None, t: Any = t, step: Pass = step, dense: Any = dense
            ) -> None:
                columns = Columns(k, step, j, lanes, functions)
                places = [k.sum_place(layout.summed.index(weight), j) for weight in step.summed]
                sums = [e.load(place, lanes) for place in places]
                with (
                    e.carrying(k.first, k.last, 1, sums) as (r, inside),
                    e.when(k.going_on(r, t, dense), inside) as of_row,
                ):
                    columns.run(t, r, of_row)
                for place, value in zip(places, sums, strict=True):
                    e.store(value, place, lanes)

            e.columns(H, place)
            for p, adds in zip(step.projections, step.adds, strict=True):
                u = k.field[f"U{layout.projections.index(p)}"]
                source = k.slot("d_slots", d_start, p.into), k.stride(width)
                if p.source.kind == "old":
                    target = k.place(f"carried_{p.source.name}", k.first), k.stride(1)
                else:
                    target = k.slot("d_slots", d_start, p.source.name), k.stride(width)
                matmul(e, *source, u, *target, rows, e.mul(H, len(p.gates)), H, adds)
        with e.builder.if_then(e.builder.icmp_unsigned("!=", k.field["d_x"], POINTER(None))):
            d_net = k.place("d_slots", d_start, width)
            d_x = e.offset(k.field["d_x"], e.mul(start, k.field["I"]))
            matmul(
                e, d_net, k.stride(width), k.field["W"], d_x, k.field["I"],
                rows, e.mul(H, layout.inputs), k.field["I"], False,
            )  # fmt: skip
        with e.builder.if_then(e.builder.icmp_signed("==", k.field["d_step"], e.int(0))):
            _write_products(k, start, rows, e.builder.icmp_signed(">", i, e.int(0)))
        with k.rows_whose_length("==", t) as r:  # their last frame comes next
            k.start_gradients(r, 1)


def _write_products(k: Addresses, start: Any, rows: Any, adds: Any) -> None:
    """Add one step's part to the thread's sums for the gradients of W and U, transposed."""
    e, layout, width = k.e, k.layout, len(k.layout.slots)
    H, I = k.field["H"], k.field["I"]  # noqa: E741
    scratch_size = scratch_length(e, e.mul(H, layout.widest))
    scratch = e.offset(k.field["scratch"], e.mul(k.thread, scratch_size))
    x = e.offset(k.field["x"], e.mul(start, I))
    products = [("d_W", x, I, I, layout.slots[0], layout.inputs)]
    for n, p in enumerate(layout.projections):
        products.append((f"d_U{n}", *k.source(p, start), H, p.into, len(p.gates)))
    for name, source, stride, M, into, gates in products:
        columns = e.mul(H, gates)
        table = e.offset(k.field[name], e.mul(k.thread, e.padded(e.mul(M, columns))))
        d = k.slot("d_slots", k.first, into)
        write_outer(
            e, rows, source, stride, d, k.stride(width), table, columns,
            M, columns, scratch, adds,
        )  # fmt: skip


class CompiledUnit:
    """A unit's compiled loops, for one floating-point type and one choice of activations."""

    def __init__(
        self, spec: UnitSpec, itemsize: int, gate_activation: str, activation: str, bias: bool
    ) -> None:
        self.activations = gate_activation, activation
        schedule = Schedule(spec, bias=bias)
        self.layout = schedule.layout
        module = ir.Module(spec.name)
        functions = functions_of(gate_activation, activation)
        written = (
            (fields.forward(self.layout), _write_forward, schedule.forward),
            (fields.backward(self.layout), _write_backward, schedule.backward),
        )
        for signature, write, passes in written:
            with function(module, signature.name, [POINTER, INT, INT], itemsize) as (e, *args):
                array, *share = args
                field = signature.load(e, array)
                write(Addresses(self.layout, e, field, *share), passes, functions)
        kernels = compile_kernels(module, itemsize, [signature for signature, *_ in written])
        self.forward, self.backward = kernels["forward"], kernels["backward"]


compiled_unit = compiled_once(CompiledUnit)
"""The loops of a unit, compiled at first use."""


def functions_of(gate_activation: str, activation: str) -> Functions:
    """The functions that a text may name, with these as s and phi."""
    return {**FUNCTIONS, "s": GATE_ACTIVATIONS[gate_activation], "phi": ACTIVATIONS[activation]}
