"""A unit frame by frame, as sampling needs it: one row, one thread, no torch in between."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from seqmodel.kernels.code.emit import POINTER, Lanes
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.vectors import ACTIVATIONS, GATE_ACTIVATIONS
from seqmodel.kernels.linear.notes import DENSITY, NotesFunctions
from seqmodel.kernels.linear.product import RowProduct
from seqmodel.kernels.run.calls import Call, Own, Room
from seqmodel.kernels.run.team import share_out
from seqmodel.units.cpu.cells import CELLS, Stage
from seqmodel.units.cpu.kernels import (
    FIELDS,
    Addresses,
    Columns,
    ForwardAt,
    Functions,
    Plan,
)
from seqmodel.units.cpu.recurrence import weight_fields
from seqmodel.units.module import Unit
from seqmodel.units.registry import TERMS, unit_spec

_ITEMSIZE = 8  # bytes: all is computed in float64


def steps(
    layers: Sequence[Unit], x: Own, room: Room, *, binary: bool
) -> tuple[list[Call], list[Own]]:
    """The calls that take `layers` on by one frame, and the states (H,) that they move.

    x (I,) is read anew each time; it is zeros and ones if `binary`. The states are in the order of
    `Carry.tensors`. Weights that are float32 are read as such, so that they stay in the nearest
    cache; everything is computed in float64.
    """
    calls: list[Call] = []
    moved: list[Own] = []
    for layer in layers:
        H = layer.hidden_size
        step = _compiled_step(
            layer.spec.name,
            layer.U.element_size(),
            layer.gate_activation,
            layer.activation,
            layer.bias,
        )
        w, u, *vectors = (getattr(layer, term) for term in TERMS)
        vectors = [None if vector is None else vector.double() for vector in vectors]
        packed, packing = weight_fields(step.plan, [w, u, *vectors], H)
        share_out(packing, 1)
        fields: dict[str, Any] = packed | {"B": 1, "I": layer.input_size, "H": H, "x": x}
        fields["slots"] = room.take(len(step.plan.cell.slots), H)
        if binary and not calls:
            fields |= {
                "few_notes": int(DENSITY * layer.input_size),
                "numbers": room.take(layer.input_size, kind=np.int32),
                "counts": room.take(1, kind=np.int32),
            }
        # Before the step and after it; in the end the former holds what the latter does.
        states = {state: room.take(2, H) for state in step.plan.spec.state}
        calls.append(Call(step.address, [(fields | states).get(name, 0) for name in FIELDS]))
        moved += [Own(state.start, (H,), state.kind) for state in states.values()]
        x = states["h"]
    return calls, moved


class _CompiledStep:
    """A unit's compiled step(fields), FIELDS as `forward` takes them: one frame of one row."""

    def __init__(
        self, name: str, stored: int, gate_activation: str, activation: str, bias: bool
    ) -> None:
        self.plan = Plan(unit_spec(name), CELLS[name], bias)
        module = ir.Module(name)
        multiply = RowProduct.of(module, _ITEMSIZE, stored)
        notes = NotesFunctions.of(module, _ITEMSIZE, stored)
        functions = GATE_ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
        with function(module, "step", [POINTER], _ITEMSIZE) as (e, args):
            k = Addresses(self.plan, e, args, e.int(0), e.int(1))
            _write_input(k, multiply, notes)
            _write_stages(k, multiply, functions)
        self._library = Library(module)
        self.address = self._library.address("step")


@compiled_once
def _compiled_step(
    name: str, stored: int, gate_activation: str, activation: str, bias: bool
) -> _CompiledStep:
    """The step of a unit whose W and U take `stored` bytes a number, compiled at first use."""
    return _CompiledStep(name, stored, gate_activation, activation, bias)


def _write_input(k: Addresses, multiply: RowProduct, notes: NotesFunctions) -> None:
    """W x, as a sum of columns if x is listed and sparse."""
    e, b, plan, I = k.e, k.e.builder, k.plan, k.field["I"]  # noqa: E741
    x, numbers, counts, W = (k.field[name] for name in ("x", "numbers", "counts", "W"))
    first, last = plan.input_slots
    net, N = k.slot("slots", e.int(0), plan.cell.slots[first]), e.mul(k.field["H"], last - first)
    listing, sparse, dense, done = (b.append_basic_block() for _ in range(4))
    b.cbranch(b.icmp_unsigned("!=", numbers, POINTER(None)), listing, dense)
    b.position_at_end(listing)
    count = b.call(notes.list_rows, [x, e.int(1), I, numbers, counts])
    b.cbranch(b.icmp_signed("<=", count, k.field["few_notes"]), sparse, dense)
    b.position_at_end(sparse)
    b.call(notes.sum_columns, [numbers, counts, e.int(1), W, I, N, net, N])
    b.branch(done)
    b.position_at_end(dense)
    multiply(e, x, W, net, I, N, False)
    b.branch(done)
    b.position_at_end(done)


def _write_stages(k: Addresses, multiply: RowProduct, functions: Functions) -> None:
    """The cell, and what it came to moved to where the next step starts."""
    e, plan, H, row = k.e, k.plan, k.field["H"], k.e.int(0)
    for stage in plan.cell.stages:
        for p in plan.kept(stage.products):
            u = k.field[f"U{plan.products.index(p)}"]
            source = k.field["h"] if p.source == "h" else k.slot("slots", row, p.source)
            target, columns = k.slot("slots", row, p.into), e.mul(H, len(p.gates))
            multiply(e, source, u, target, H, columns, plan.adds(p))

        def place(j: Any, lanes: Lanes | None, stage: Stage = stage) -> None:
            stage.forward(ForwardAt(Columns(k, j, lanes, functions), row, row))

        e.columns(H, place)
    for state in plan.spec.state:
        e.copy(k.place(state, 1), k.field[state], H)
