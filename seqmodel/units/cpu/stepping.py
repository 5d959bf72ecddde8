"""A unit frame by frame, for sampling: one thread, no torch calls between frames."""

from collections.abc import Sequence
from typing import Any

import torch
from llvmlite import ir

from seqmodel.kernels.code.emit import POINTER
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.linear.sparse import DENSITY
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.kernels.run.threads import parallel_for
from seqmodel.units.cpu.kernels import Addresses, forward_fields, functions_of, write_forward
from seqmodel.units.cpu.recurrence import weight_fields
from seqmodel.units.cpu.schedule import Schedule
from seqmodel.units.definition import UnitSpec
from seqmodel.units.specification import Layer

_ITEMSIZE = 8  # bytes: float64 throughout


def steps(
    layers: Sequence[Layer],
    x: Slot,
    arena: Arena,
    *,
    binary: bool = False,
    product: Slot | None = None,
) -> tuple[list[Call], list[Slot]]:
    """The calls that advance `layers` by one frame, and the states that they update.

    x is read at each call: (I,) for one row, whose states are (H,), or (R, I) for R rows, whose
    states are (R, H). It holds zeros and ones if `binary`. The states are in the order of
    `Carry.tensors`. All computation is in float64.

    With `product` (1, N) x holds the last numbers of one row's input only, and `product` the first
    layer's W times the others.
    """
    calls: list[Call] = []
    updated: list[Slot] = []
    for layer in layers:
        first = not calls
        call, states = _step(layer, x, arena, binary and first, product if first else None)
        calls.append(call)
        updated += states
        x = states[0]
    return calls, updated


def _step(
    layer: Layer, x: Slot, arena: Arena, binary: bool, product: Slot | None
) -> tuple[Call, list[Slot]]:
    """The matrices of a single row stay float32 if they are, to fit the L1 cache."""
    *rows, I = x.shape  # noqa: E741
    case, weights = layer.case(*(rows or [1])), layer.weights()
    R, H, stored = case.batch_size, case.hidden_size, None if rows else case.dtype.itemsize
    kind = case.spec, case.gate_activation, case.activation, case.bias
    step = _compiled_step(*kind, stored, begun=product is not None)
    if (w := weights["W"]) is not None and product is not None:
        weights = {**weights, "W": w[:, -I:]}
    double = {
        term: weight if weight is None or (stored and term in "WU") else weight.double()
        for term, weight in weights.items()
    }
    packed, packing = weight_fields(step.layout, double, H)
    parallel_for(packing, 1)
    given: dict[str, Any] = packed | {"T": 1, "B": R, "I": I, "H": H, "threads": 1}
    given |= {"x": x.reshaped(1, R, I), "slots": arena.take(R, len(step.layout.slots) * H)}
    if product is not None:
        given["product"] = product
    if binary:
        given["sparse_limit"] = int(DENSITY * R * I)
        for name, shape in (("indices", (R, I)), ("counts", (R,)), ("listed", (1,))):
            given[name] = arena.take(*shape, dtype=torch.int32)
    states = []
    for state in step.layout.states:
        both = arena.take(2, R, H)  # before the step and after it
        after = Slot(both.start + R * H * _ITEMSIZE, (*rows, H), both.dtype)
        given |= {f"all_{state}": both, f"first_{state}": after.reshaped(R, H)}
        states.append(after)
    return Call(step.address, step.signature, _ITEMSIZE, given, stored), states


class _CompiledStep:
    """step(fields) of a unit: the forward loops over a single frame, on one thread.

    With `stored`, of a single row, whose packed matrices take so many bytes per number.
    """

    def __init__(
        self,
        spec: UnitSpec,
        gate_activation: str,
        activation: str,
        bias: bool,
        stored: int | None,
        *,
        begun: bool,
    ) -> None:
        schedule = Schedule(spec, bias=bias)
        self.layout, self.signature = schedule.layout, forward_fields(schedule.layout, begun=begun)
        module, known = ir.Module(spec.name), {"T": 1, "shortest": 2} | ({"B": 1} if stored else {})
        with function(module, "step", [POINTER], _ITEMSIZE) as (e, array):
            field = self.signature.load(e, array) | {name: e.int(n) for name, n in known.items()}
            k = Addresses(self.layout, e, field, e.int(0), e.int(1), stored)
            write_forward(k, schedule.forward, functions_of(gate_activation, activation))
        self._library = Library(module)
        self.address = self._library.address("step")


_compiled_step = compiled_once(_CompiledStep)
