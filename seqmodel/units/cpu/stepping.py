"""A unit frame by frame, for sampling: one thread, no torch calls between frames."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from llvmlite import ir

from seqmodel.kernels.code.emit import POINTER, Lanes
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.code.vectors import ACTIVATIONS, GATE_ACTIVATIONS
from seqmodel.kernels.linear.matmul import row_matmul
from seqmodel.kernels.linear.sparse import DENSITY, list_rows, sum_columns
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.kernels.run.team import parallel_for
from seqmodel.units.cells import Stage
from seqmodel.units.cpu import fields
from seqmodel.units.cpu.cell_plan import CellPlan
from seqmodel.units.cpu.kernels import (
    Addresses,
    Columns,
    CompiledUnit,
    ForwardPosition,
    Functions,
    compiled_unit,
)
from seqmodel.units.cpu.recurrence import weight_fields
from seqmodel.units.registry import TERMS, unit_spec

if TYPE_CHECKING:
    from seqmodel.units.module import Unit

_ITEMSIZE = 8  # bytes: float64 throughout


def steps(
    layers: Sequence["Unit"], x: Slot, arena: Arena, *, binary: bool = False
) -> tuple[list[Call], list[Slot]]:
    """The calls that advance `layers` by one frame, and the states that they update.

    x is read at each call: (I,) for one row, whose states are (H,), or (R, I) for R rows, whose
    states are (R, H). It holds zeros and ones if `binary`. The states are in the order of
    `Carry.tensors`. All computation is in float64.
    """
    calls: list[Call] = []
    updated: list[Slot] = []
    for layer in layers:
        activations = layer.gate_activation, layer.activation
        if len(x.shape) == 2:
            call, states = _step_of_rows(layer, activations, x, arena)
        else:
            call, states = _step_of_one(layer, activations, x, arena, binary and not calls)
        calls.append(call)
        updated += states
        x = states[0]
    return calls, updated


def _step_of_one(
    layer: "Unit", activations: tuple[str, str], x: Slot, arena: Arena, binary: bool
) -> tuple[Call, list[Slot]]:
    """float32 weights stay float32, to fit the L1 cache."""
    I, H, stored = layer.input_size, layer.hidden_size, layer.U.element_size()  # noqa: E741
    step = _compiled_step(layer.spec.name, stored, *activations, layer.bias)
    w, u, *vectors = (getattr(layer, term) for term in TERMS)
    vectors = [None if vector is None else vector.double() for vector in vectors]
    packed, packing = weight_fields(step.plan, [w, u, *vectors], H)
    parallel_for(packing, 1)
    given: dict[str, Any] = packed | {"B": 1, "I": I, "H": H, "x": x}
    given["slots"] = arena.take(len(step.plan.cell.slots), H)
    if binary:
        given |= {"sparse_limit": int(DENSITY * I), "indices": arena.take(I, dtype=torch.int32)}
        given["counts"] = arena.take(1, dtype=torch.int32)
    states = {state: arena.take(2, H) for state in step.plan.spec.state}
    call = Call(step.address, step.signature, _ITEMSIZE, given | states, stored)
    return call, [Slot(state.start, (H,), state.dtype) for state in states.values()]


def _step_of_rows(
    layer: "Unit", activations: tuple[str, str], x: Slot, arena: Arena
) -> tuple[Call, list[Slot]]:
    """The training loops over a single step: with many rows they are the fastest."""
    (R, I), H = x.shape, layer.hidden_size  # noqa: E741
    unit = compiled_unit(layer.spec.name, _ITEMSIZE, *activations, layer.bias)
    terms = (getattr(layer, term) for term in TERMS)
    weights = [None if term is None else term.double() for term in terms]
    given, packing = weight_fields(unit.plan, weights, H)
    parallel_for(packing, 1)
    given |= {"T": 1, "B": R, "I": I, "H": H, "shortest": 2, "threads": 1}
    slots = arena.take(R, len(unit.plan.cell.slots) * H)
    fields: dict[str, Any] = {**given, "x": x.reshaped(1, R, I), "slots": slots}
    states = []
    for state in unit.plan.spec.state:
        both = arena.take(2, R, H)  # before the step and after it
        after = Slot(both.start + R * H * _ITEMSIZE, (R, H), both.dtype)
        fields |= {state: both, f"first_{state}": after}
        states.append(after)
    address = _one_step(unit).address("step")
    return Call(address, unit.forward.signature, _ITEMSIZE, fields), states


@compiled_once
def _one_step(unit: CompiledUnit) -> Library:
    """step(fields): the forward loops on one thread."""
    module = ir.Module("step_of_rows")
    with function(module, "step", [POINTER], _ITEMSIZE) as (e, fields):
        whole_batch = [fields, e.int(0), e.int(1)]
        call_at(e.builder, unit.forward.address, ir.VoidType(), whole_batch)
    return Library(module)


class _CompiledStep:
    """A unit's step(fields): one frame of one row; W and U take `stored` bytes per number."""

    def __init__(
        self, name: str, stored: int, gate_activation: str, activation: str, bias: bool
    ) -> None:
        self.plan = CellPlan(unit_spec(name), bias)
        module = ir.Module(name)
        functions = GATE_ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
        self.signature = fields.step(self.plan)
        with function(module, "step", [POINTER], _ITEMSIZE) as (e, array):
            k = Addresses(self.plan, e, self.signature.load(e, array), e.int(0), e.int(1))
            _write_input(k, stored)
            _write_stages(k, stored, functions)
        self._library = Library(module)
        self.address = self._library.address("step")


_compiled_step = compiled_once(_CompiledStep)


def _write_input(k: Addresses, stored: int) -> None:
    """W x, as a sum of columns if x is sparse."""
    e, b, plan, I = k.e, k.e.builder, k.plan, k.field["I"]  # noqa: E741
    x, indices, counts, W = (k.field[name] for name in ("x", "indices", "counts", "W"))
    first, last = plan.input_slots
    net, N = k.slot("slots", e.int(0), plan.cell.slots[first]), e.mul(k.field["H"], last - first)
    sparse = [ir.Constant(ir.IntType(1), 0)]
    with e.when(b.icmp_unsigned("!=", indices, POINTER(None)), sparse) as listed:
        count = list_rows(e, x, e.int(1), I, indices, counts)
        listed[0] = b.icmp_signed("<=", count, k.field["sparse_limit"])
    with b.if_else(sparse[0]) as (summed, dense):
        with summed:
            sum_columns(e, stored, indices, counts, e.int(1), W, I, N, net, N)
        with dense:
            row_matmul(e, stored, x, W, net, I, N, False)


def _write_stages(k: Addresses, stored: int, functions: Functions) -> None:
    """The cell; its new state then replaces the old one."""
    e, plan, H, row = k.e, k.plan, k.field["H"], k.e.int(0)
    for stage in plan.cell.stages:
        for p in plan.kept(stage.projections):
            u = k.field[f"U{plan.projections.index(p)}"]
            source = k.field["h"] if p.source == "h" else k.slot("slots", row, p.source)
            target, columns = k.slot("slots", row, p.into), e.mul(H, len(p.gates))
            row_matmul(e, stored, source, u, target, H, columns, plan.adds(p))

        def place(j: Any, lanes: Lanes | None, stage: Stage = stage) -> None:
            stage.forward(ForwardPosition(Columns(k, j, lanes, functions), row, row))

        e.columns(H, place)
    for state in plan.spec.state:
        e.copy(k.place(state, 1), k.field[state], H)
