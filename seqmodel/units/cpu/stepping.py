"""A unit frame by frame, for sampling: one thread, no torch calls between frames."""

from collections.abc import Sequence
from typing import Any

import torch
from llvmlite import ir

from seqmodel.kernels.code.emit import POINTER, Lanes
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.linear.matmul import row_matmul
from seqmodel.kernels.linear.sparse import DENSITY, list_rows, sum_columns
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.kernels.run.team import parallel_for
from seqmodel.units.contract import Layer
from seqmodel.units.cpu import fields
from seqmodel.units.cpu.kernels import (
    Addresses,
    Columns,
    CompiledUnit,
    Functions,
    compiled_unit,
    functions_of,
)
from seqmodel.units.cpu.recurrence import weight_fields
from seqmodel.units.cpu.schedule import Pass, Schedule
from seqmodel.units.definition import UnitSpec

_ITEMSIZE = 8  # bytes: float64 throughout


def steps(
    layers: Sequence[Layer], x: Slot, arena: Arena, *, binary: bool = False
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
    layer: Layer, activations: tuple[str, str], x: Slot, arena: Arena, binary: bool
) -> tuple[Call, list[Slot]]:
    """float32 weights stay float32, to fit the L1 cache."""
    I, H = layer.input_size, layer.hidden_size  # noqa: E741
    w, u, *vectors = layer.weights().values()
    assert w is not None
    stored = w.element_size()
    step = _compiled_step(layer.spec, stored, *activations, layer.bias)
    vectors = [None if vector is None else vector.double() for vector in vectors]
    packed, packing = weight_fields(step.layout, [w, u, *vectors], H)
    parallel_for(packing, 1)
    given: dict[str, Any] = packed | {"B": 1, "I": I, "H": H, "x": x}
    given["slots"] = arena.take(len(step.layout.slots), H)
    if binary:
        given |= {"sparse_limit": int(DENSITY * I), "indices": arena.take(I, dtype=torch.int32)}
        given["counts"] = arena.take(1, dtype=torch.int32)
    states = {f"all_{state}": arena.take(2, H) for state in step.layout.states}
    call = Call(step.address, step.signature, _ITEMSIZE, given | states, stored)
    return call, [Slot(state.start, (H,), state.dtype) for state in states.values()]


def _step_of_rows(
    layer: Layer, activations: tuple[str, str], x: Slot, arena: Arena
) -> tuple[Call, list[Slot]]:
    """The training loops over a single step: with many rows they are the fastest."""
    (R, I), H = x.shape, layer.hidden_size  # noqa: E741
    unit = compiled_unit(layer.spec, _ITEMSIZE, *activations, layer.bias)
    weights = [None if term is None else term.double() for term in layer.weights().values()]
    given, packing = weight_fields(unit.layout, weights, H)
    parallel_for(packing, 1)
    given |= {"T": 1, "B": R, "I": I, "H": H, "shortest": 2, "threads": 1}
    slots = arena.take(R, len(unit.layout.slots) * H)
    fields: dict[str, Any] = {**given, "x": x.reshaped(1, R, I), "slots": slots}
    states = []
    for state in unit.layout.states:
        both = arena.take(2, R, H)  # before the step and after it
        after = Slot(both.start + R * H * _ITEMSIZE, (R, H), both.dtype)
        fields |= {f"all_{state}": both, f"first_{state}": after}
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
        self, spec: UnitSpec, stored: int, gate_activation: str, activation: str, bias: bool
    ) -> None:
        schedule = Schedule(spec, bias=bias)
        self.layout = schedule.layout
        module = ir.Module(spec.name)
        functions = functions_of(gate_activation, activation)
        self.signature = fields.step(self.layout)
        with function(module, "step", [POINTER], _ITEMSIZE) as (e, array):
            k = Addresses(self.layout, e, self.signature.load(e, array), e.int(0), e.int(1))
            _write_input(k, stored)
            _write_passes(k, stored, schedule.forward, functions)
        self._library = Library(module)
        self.address = self._library.address("step")


_compiled_step = compiled_once(_CompiledStep)


def _write_input(k: Addresses, stored: int) -> None:
    """W x, as a sum of columns if x is sparse."""
    e, b, I = k.e, k.e.builder, k.field["I"]  # noqa: E741
    x, indices, counts, W = (k.field[name] for name in ("x", "indices", "counts", "W"))
    net, N = k.field["slots"], e.mul(k.field["H"], k.layout.inputs)
    sparse = [ir.Constant(ir.IntType(1), 0)]
    with e.when(b.icmp_unsigned("!=", indices, POINTER(None)), sparse) as listed:
        count = list_rows(e, x, e.int(1), I, indices, counts)
        listed[0] = b.icmp_signed("<=", count, k.field["sparse_limit"])
    with b.if_else(sparse[0]) as (summed, dense):
        with summed:
            sum_columns(e, stored, indices, counts, e.int(1), W, I, N, net, N)
        with dense:
            row_matmul(e, stored, x, W, net, I, N, False)


def _write_passes(k: Addresses, stored: int, passes: list[Pass], functions: Functions) -> None:
    """The step; its new state then replaces the old one."""
    e, layout, H, row = k.e, k.layout, k.field["H"], k.e.int(0)
    for step in passes:
        for p in step.projections:
            u, (source, _) = k.field[f"U{layout.projections.index(p)}"], k.source(p, row)
            target, columns = k.slot("slots", row, p.into), e.mul(H, len(p.gates))
            row_matmul(e, stored, source, u, target, H, columns, p.adds)

        def place(j: Any, lanes: Lanes | None, step: Pass = step) -> None:
            Columns(k, step, j, lanes, functions).run(row, row, [])

        e.columns(H, place)
    for state in layout.states:
        e.copy(k.place(f"all_{state}", 1), k.field[f"all_{state}"], H)
