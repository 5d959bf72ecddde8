"""A unit frame by frame, for sampling: one thread, no torch calls between frames."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from seqmodel.kernels.code.emit import Emitter, padded
from seqmodel.kernels.linear.matmul import pack
from seqmodel.kernels.linear.sparse import DENSITY
from seqmodel.kernels.run.calls import ITEMSIZE, Arena, Call, Slot, kernel_call
from seqmodel.kernels.run.signature import Signature
from seqmodel.kernels.run.threads import compile_kernel
from seqmodel.units.cpu.kernels import Addresses, forward_fields, functions_of, write_forward
from seqmodel.units.cpu.schedule import Layout
from seqmodel.units.definition import UnitSpec


def steps(
    layers: Sequence[Any],
    x: Slot,
    arena: Arena,
    *,
    sparse: bool = False,
    product: Slot | None = None,
) -> tuple[list[Call], list[Slot]]:
    """The calls that advance layers (`module.Unit`) by one frame, and the states that they update.

    x is read at each call: (I,) for one row, whose states are (H,), or (R, I) for R rows, whose
    states are (R, H). If `sparse`, zeros in x are skipped. The states are in the order of
    `Carry.tensors`. All computation is in float64, with weights on the CPU, whatever the backend.

    With `product` (1, N), x holds only the last numbers of one row's input, and `product` the first
    layer's W times the others.
    """
    calls: list[Call] = []
    updated: list[Slot] = []
    for layer in layers:
        first = not calls
        call, states = _step(layer, x, arena, sparse and first, product if first else None)
        calls.append(call)
        updated += states
        x = states[0]
    return calls, updated


def _step(
    layer: Any, x: Slot, arena: Arena, sparse: bool, product: Slot | None
) -> tuple[Call, list[Slot]]:
    """One layer's call and states; float32 matrices of a single row stay so to fit the L1 cache."""
    *rows, I = x.shape  # noqa: E741
    case, weights = layer.case(*(rows or [1])), layer.weights()
    R, H, w_bytes = case.batch_size, case.hidden_size, None if rows else case.dtype.itemsize
    layout, signature = _layout_of(case.spec, case.bias, product is not None)
    if (w := weights["W"]) is not None and product is not None:
        weights = {**weights, "W": w[:, -I:]}
    double: dict[str, Any] = {
        term: weight if weight is None or (w_bytes and term in "WU") else weight.double()
        for term, weight in weights.items()
    }
    args = {t: w.contiguous() for t in ("V", "b", "bU") if (w := double[t]) is not None}
    for p in layout.projections:
        args[p.name] = pack(double[p.term].narrow(0, p.gates.start * H, len(p.gates) * H))
    args |= {"T": 1, "B": R, "I": I, "H": H, "steps": 1, "threads": 1}
    args |= {"x": x.reshaped(1, R, I), "slots": arena.take(R, len(layout.slots) * H)}
    if layout.means:
        args["means"] = arena.take(R, len(layout.means))
    if layout.scratch:
        args["row"] = arena.take(1, padded(layout.scratch * H, ITEMSIZE))
    if product is not None:
        args["product"] = product
    if sparse:
        args["sparse_limit"] = int(DENSITY * R * I)
        for name, shape in (("indices", (R, I)), ("counts", (R,)), ("listed", (1,))):
            args[name] = arena.take(*shape, dtype=torch.int32)
    states = []
    for state in layout.states:
        states_memory = arena.take(2, R, H)  # before the step and after it
        after = Slot(states_memory.start + R * H * ITEMSIZE, (*rows, H), states_memory.dtype)
        args |= {f"all_{state}": states_memory, f"first_{state}": after.reshaped(R, H)}
        states.append(after)
    activations = case.gate_activation, case.activation
    kernel = compile_kernel(signature, ITEMSIZE, _write_step, layout, activations, w_bytes)
    return kernel_call(kernel, w_bytes, **args), states


@cache
def _layout_of(spec: UnitSpec, bias: bool, with_product: bool) -> tuple[Layout, Signature]:
    layout = Layout(spec, bias=bias)
    return layout, forward_fields(layout, with_product=with_product)


def _write_step(
    e: Emitter, field: dict[str, Any], thread: Any, threads: Any, layout: Layout,
    activations: tuple[str, str], w_bytes: int | None,
) -> None:  # fmt: skip
    """The forward loops over a single frame, on one thread; with `w_bytes`, over a single row."""
    constants = {"T": 1, "steps": 1, "shortest": 2} | ({"B": 1} if w_bytes else {})
    field = field | {name: e.int(n) for name, n in constants.items()}
    write_forward(
        Addresses(layout, e, field, e.int(0), e.int(1), w_bytes), functions_of(*activations)
    )
