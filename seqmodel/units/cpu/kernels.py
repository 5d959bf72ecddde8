"""The loops over time, rows and columns around a unit's cell.

Each thread takes a share of the batch through all time steps, so threads never wait for each other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, Lanes
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.code.vectors import ACTIVATIONS, GATE_ACTIVATIONS, Function, Vector
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.linear.outer import scratch_length, write_outer
from seqmodel.kernels.linear.sparse import INDEX, list_rows, sum_columns
from seqmodel.kernels.run.team import compile_kernels
from seqmodel.units.cells import Stage
from seqmodel.units.cpu import fields
from seqmodel.units.cpu.cell_plan import CellPlan
from seqmodel.units.registry import unit_spec

Functions = tuple[Function, Function]
"""The gate activation and the activation."""


class Addresses:
    """A kernel's fields, and addresses within its arrays."""

    def __init__(
        self, plan: CellPlan, e: Emitter, field: dict[str, Any], thread: Any, threads: Any
    ) -> None:
        self.plan, self.e, self.field, self.thread = plan, e, field, thread
        self.passed_on = False  # whether h's gradient has been set, so that projections add to it
        self.first, self.last = e.share(self.field["B"], thread, threads)

    def place(self, name: str, row: Any, width: int = 1, part: int = 0, j: Any = 0) -> Any:
        """The address of number `j` in `part` of a row of `width` parts of H numbers."""
        H = self.field["H"]
        return self.e.offset(self.field[name], self.e.mul(row, width, H), self.e.mul(part, H), j)

    def slot(self, name: str, row: Any, slot: str, j: Any = 0) -> Any:
        """The address of number `j` of a row's slot, in `slots` or `d_slots`."""
        slots = self.plan.cell.slots
        return self.place(name, row, len(slots), slots.index(slot), j)

    def sum_place(self, n: int, j: Any) -> Any:
        """The address of number `j` of the thread's sum `n`."""
        H = self.field["H"]
        sums = self.e.padded(self.e.mul(H, len(self.plan.sums)))
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
        for state in self.plan.spec.state:
            carried = self.place(f"carried_{state}", r)
            given = b.icmp_unsigned("!=", self.field[f"d_final_{state}"], POINTER(None))
            with b.if_else(given) as (some, none):
                with some:
                    self.e.copy(self.place(f"d_final_{state}", r), carried, numbers)
                with none:
                    self.e.clear(carried, numbers)


class Columns:
    """A vector of columns from `j` on, and the weights of these columns.

    Rows are the inner loop, so that the weights are loaded once and sums stay in registers.
    """

    def __init__(
        self, kernel: Addresses, j: Any, lanes: Lanes | None, functions: Functions
    ) -> None:
        self.kernel, self.j, self.lanes = kernel, j, lanes
        self.s, self.phi = functions
        self.weights = {
            (term, gate): Vector(kernel.e, kernel.e.load(kernel.place(term, 0, 1, k, j), lanes))
            for term in ("V", "b", "bU")
            for k, gate in enumerate(kernel.plan.owners(term))
        }


class _Position:
    """The columns at step `t` of row `r`."""

    def __init__(self, columns: Columns, t: Any, r: Any) -> None:
        self.kernel, self.j, self.lanes = columns.kernel, columns.j, columns.lanes
        self.s, self.phi, self.weights = columns.s, columns.phi, columns.weights
        e = self.kernel.e
        self.t, self.r, self.row = t, r, e.add(e.mul(t, self.kernel.field["B"]), r)

    def _load(self, place: Any) -> Vector:
        return Vector(self.kernel.e, self.kernel.e.load(place, self.lanes))

    def _store(self, value: Vector, place: Any) -> None:
        self.kernel.e.store(value.value, place, self.lanes)

    def kept(self, slot: str) -> Vector:
        return self._load(self.kernel.slot("slots", self.row, slot, self.j))

    def old(self, state: str) -> Vector:
        return self._load(self.kernel.place(state, self.row, j=self.j))

    def now(self, state: str) -> Vector:
        row = self.kernel.e.add(self.row, self.kernel.field["B"])
        return self._load(self.kernel.place(state, row, j=self.j))


class ForwardPosition(_Position):
    """See `cells.Forward`."""

    def net(self, gate: str, c: Vector | None = None) -> Vector:
        """W x + U h' + V c + b."""
        terms = self.kernel.plan.spec.gates[gate]
        total = self.kept(gate) if "W" in terms or "U" in terms else None
        v, b = self.weights.get(("V", gate)), self.weights.get(("b", gate))
        for term in (v * c if v is not None and c is not None else None, b):
            if term is not None:
                total = term if total is None else total + term
        return Vector(self.kernel.e, self.kernel.e.zero()) if total is None else total

    def keep(self, slot: str, value: Vector) -> None:
        """Store a value in the slot."""
        self._store(value, self.kernel.slot("slots", self.row, slot, self.j))

    def new(self, state: str, value: Vector) -> None:
        """Set the state after the step."""
        row = self.kernel.e.add(self.row, self.kernel.field["B"])
        self._store(value, self.kernel.place(state, row, j=self.j))

    def second_bias(self, gate: str) -> Vector | float:
        """The bias bU."""
        return self.weights.get(("bU", gate), -0.0)  # x + -0.0 is x, even for -0.0


class _BackwardPosition(_Position):
    """See `cells.Backward`; adds this row's part to `sums`."""

    def __init__(self, columns: Columns, t: Any, r: Any, sums: list[Any]) -> None:
        super().__init__(columns, t, r)
        self.sums = sums
        e = self.kernel.e
        self.d_row = e.add(e.mul(t, self.kernel.field["d_step"]), r)

    def d_now(self, state: str) -> Vector:
        k, e = self.kernel, self.kernel.e
        if state != "h":  # only the final c is an output
            return self.passed(state)
        step, row = k.field["d_h_step"], k.field["d_h_row"]
        outside = e.offset(k.field["d_h"], e.mul(self.t, step), e.mul(self.r, row), self.j)
        return self._load(outside) + self.passed(state)

    def d_net(self, gate: str, value: Vector, c: Vector | None = None) -> Vector:
        self.d_slot(gate, value)
        self._add("b", gate, value)
        v = self.weights.get(("V", gate))
        if v is None or c is None:
            return Vector(self.kernel.e, self.kernel.e.constant(-0.0))
        self._add("V", gate, value * c)
        return value * v

    def d_slot(self, slot: str, value: Vector) -> None:
        self._store(value, self.kernel.slot("d_slots", self.d_row, slot, self.j))

    def d_second_bias(self, gate: str, value: Vector) -> None:
        self._add("bU", gate, value)

    def _add(self, term: str, gate: str, value: Vector) -> None:
        if (term, gate) in self.kernel.plan.sums:
            n = self.kernel.plan.sums.index((term, gate))
            self.sums[n] = (Vector(self.kernel.e, self.sums[n]) + value).value

    def d_kept(self, slot: str) -> Vector:
        return self._load(self.kernel.slot("d_slots", self.d_row, slot, self.j))

    def passed(self, state: str) -> Vector:
        return self._load(self.kernel.place(f"carried_{state}", self.r, j=self.j))

    def pass_on(self, state: str, value: Vector) -> None:
        self.kernel.passed_on = self.kernel.passed_on or state == "h"
        self._store(value, self.kernel.place(f"carried_{state}", self.r, j=self.j))


def _write_forward(k: Addresses, functions: Functions) -> None:
    e, plan, width = k.e, k.plan, len(k.plan.cell.slots)
    b, H, rows = e.builder, k.field["H"], e.builder.sub(k.last, k.first)
    for state in plan.spec.state:
        first = k.place(f"first_{state}", k.first)
        e.copy(first, k.place(state, k.first), e.mul(rows, H))
    may_list = b.icmp_unsigned("!=", k.field["indices"], POINTER(None))
    of_loop = [may_list, e.int(0)]  # whether all frames so far are listed; how many ones they have
    with e.carrying(0, k.field["T"], 1, of_loop) as (t, inside):
        start = e.add(e.mul(t, k.field["B"]), k.first)
        inside[:] = _write_input(k, start, rows, *inside)
        with k.rows_whose_length("<=", t) as r:  # x is arbitrary there
            first, last = plan.input_slots
            net = k.slot("slots", e.add(e.mul(t, k.field["B"]), r), plan.cell.slots[first])
            e.clear(net, e.mul(H, last - first))
        for stage in plan.cell.stages:
            for p in plan.kept(stage.projections):
                u = k.field[f"U{plan.projections.index(p)}"]
                if p.source == "h":
                    source = [k.place("h", start), k.stride(1)]
                else:
                    source = [k.slot("slots", start, p.source), k.stride(width)]
                target = [k.slot("slots", start, p.into), k.stride(width)]
                columns = e.mul(H, len(p.gates))
                matmul(e, *source, u, *target, rows, H, columns, plan.adds(p))

            def place(j: Any, lanes: Lanes | None, t: Any = t, stage: Stage = stage) -> None:
                columns = Columns(k, j, lanes, functions)
                with e.loop(k.first, k.last) as r:
                    stage.forward(ForwardPosition(columns, t, r))

            e.columns(H, place)
        with k.rows_whose_length("<=", t) as r:
            for state in plan.spec.state:
                e.clear(k.place(state, e.add(e.mul(e.add(t, 1), k.field["B"]), r)), H)
    with k.rows_whose_length("<=", k.field["T"]) as r:
        for state in plan.spec.state:
            last = k.place(state, e.add(e.mul(k.length(r), k.field["B"]), r))
            e.copy(last, k.place(f"final_{state}", r), H)
    with b.if_then(may_list):
        place = b.gep(k.field["listed"], [k.thread], source_etype=INDEX)
        b.store(b.zext(of_loop[0], INDEX), place)


def _write_input(k: Addresses, start: Any, rows: Any, listing: Any, ones: Any) -> tuple[Any, Any]:
    """W x of one step's rows from `start` on; returns the new `listing` and `ones`.

    As long as x is binary and sparse, the indices of its ones are listed and columns of W summed.
    """
    e, plan, I = k.e, k.plan, k.field["I"]  # noqa: E741
    b, itemsize = e.builder, e.precision.itemsize
    first, last = plan.input_slots
    x = e.offset(k.field["x"], e.mul(start, I))
    net, stride = k.slot("slots", start, plan.cell.slots[first]), k.stride(len(plan.cell.slots))
    N = e.mul(k.field["H"], last - first)
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


def _write_backward(k: Addresses, functions: Functions) -> None:
    e, plan, width = k.e, k.plan, len(k.plan.cell.slots)
    H, rows = k.field["H"], e.builder.sub(k.last, k.first)
    k.start_gradients(k.first, rows)
    e.clear(k.sum_place(0, 0), e.mul(H, len(plan.sums)))
    with e.loop(0, k.field["T"]) as i:
        t = e.builder.sub(k.field["T"], e.add(i, 1))
        start = e.add(e.mul(t, k.field["B"]), k.first)
        d_start = e.add(e.mul(t, k.field["d_step"]), k.first)
        k.passed_on = False
        with k.rows_whose_length("<=", t) as r:
            row = e.add(e.mul(t, k.field["d_step"]), r)
            e.clear(k.place("d_slots", row, width), k.stride(width))
        dense = e.builder.icmp_signed("<", t, k.field["shortest"])
        for stage in reversed(plan.cell.stages):

            def place(
                j: Any, lanes: Lanes | None, t: Any = t, stage: Stage = stage, dense: Any = dense
            ) -> None:
                columns = Columns(k, j, lanes, functions)
                sums = [e.load(k.sum_place(n, j), lanes) for n in range(len(plan.sums))]
                with e.carrying(k.first, k.last, 1, sums) as (r, inside):
                    started = list(inside)
                    with e.when(k.going_on(r, t, dense), inside) as of_row:
                        stage.backward(_BackwardPosition(columns, t, r, of_row))
                    changed = [n for n, value in enumerate(inside) if value is not started[n]]
                for n in changed:
                    e.store(sums[n], k.sum_place(n, j), lanes)

            e.columns(H, place)
            for p in plan.kept(stage.projections):
                u = k.field[f"U{plan.projections.index(p)}"]
                source = [k.slot("d_slots", d_start, p.into), k.stride(width)]
                if p.source == "h":
                    target = [k.place("carried_h", k.first), k.stride(1)]
                else:
                    target = [k.slot("d_slots", d_start, p.source), k.stride(width)]
                adds = p.source == "h" and k.passed_on
                matmul(e, *source, u, *target, rows, e.mul(H, len(p.gates)), H, adds)
                k.passed_on = k.passed_on or p.source == "h"
        with e.builder.if_then(e.builder.icmp_unsigned("!=", k.field["d_x"], POINTER(None))):
            first, last = plan.input_slots
            d_net = k.slot("d_slots", d_start, plan.cell.slots[first])
            d_x = e.offset(k.field["d_x"], e.mul(start, k.field["I"]))
            matmul(
                e, d_net, k.stride(width), k.field["W"], d_x, k.field["I"],
                rows, e.mul(H, last - first), k.field["I"], False,
            )  # fmt: skip
        with e.builder.if_then(e.builder.icmp_signed("==", k.field["d_step"], e.int(0))):
            _write_products(k, start, rows, e.builder.icmp_signed(">", i, e.int(0)))
        with k.rows_whose_length("==", t) as r:  # their last frame comes next
            k.start_gradients(r, 1)


def _write_products(k: Addresses, start: Any, rows: Any, adds: Any) -> None:
    """Add one step's part to the thread's sums for the gradients of W and U, transposed."""
    e, plan, width = k.e, k.plan, len(k.plan.cell.slots)
    H, I = k.field["H"], k.field["I"]  # noqa: E741
    scratch_size = scratch_length(e, e.mul(H, plan.widest))
    scratch = e.offset(k.field["scratch"], e.mul(k.thread, scratch_size))
    x = e.offset(k.field["x"], e.mul(start, I))
    first, last = plan.input_slots
    products = [("d_W", x, I, I, plan.cell.slots[first], last - first)]
    for n, p in enumerate(plan.projections):
        if p.source == "h":
            source, stride = k.place("h", start), k.stride(1)
        else:
            source, stride = k.slot("slots", start, p.source), k.stride(width)
        products.append((f"d_U{n}", source, stride, H, p.into, len(p.gates)))
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
        self, name: str, itemsize: int, gate_activation: str, activation: str, bias: bool
    ) -> None:
        self.activations = gate_activation, activation
        self.plan = CellPlan(unit_spec(name), bias)
        module = ir.Module(name)
        functions = GATE_ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
        signatures = fields.forward(self.plan), fields.backward(self.plan)
        for signature, write in zip(signatures, (_write_forward, _write_backward), strict=True):
            with function(module, signature.name, [POINTER, INT, INT], itemsize) as (e, *args):
                array, *share = args
                field = signature.load(e, array)
                write(Addresses(self.plan, e, field, *share), functions)
        kernels = compile_kernels(module, itemsize, signatures)
        self.forward, self.backward = kernels["forward"], kernels["backward"]


compiled_unit = compiled_once(CompiledUnit)
"""The loops of a unit, compiled at first use."""
