"""The compiled loops as one differentiable operation, and the backend around it."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.linear.folding import folding
from seqmodel.kernels.linear.outer import outer
from seqmodel.kernels.linear.packing import packing, panels_of
from seqmodel.kernels.linear.sparse import DENSITY, SparseFrames, add_rows
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.signature import NEW, KernelFields
from seqmodel.kernels.run.team import Job, parallel_for, thread_count
from seqmodel.units import specification
from seqmodel.units.cpu.fields import LISTED
from seqmodel.units.cpu.kernels import CompiledUnit, compiled_unit
from seqmodel.units.cpu.layout import Layout
from seqmodel.units.definition import BIASES, UnitSpec
from seqmodel.units.weights import StackedWeights

WIDE = 64
"""Rows per thread from which the gradients of W and U are summed step by step.

A step's rows then fill the products' tiles, and the slots' gradients stay in the cache instead of
being written for all steps and read again.
"""


def weight_fields(
    layout: Layout, weights: Sequence[Tensor | None], H: int
) -> tuple[KernelFields, list[Job]]:
    """The weights W, U, V, b and bU as fields of the forward loops, and the jobs that pack them."""
    w, u, *vectors = weights
    fields, jobs = _packed(layout, w, u, H, transposed=True)
    return fields | _present(**dict(zip(("V", "b", "bU"), vectors, strict=True))), jobs


class Recurrence(torch.autograd.Function):
    """x, the weights and the initial state -> h at every step, and the final state."""

    @staticmethod
    def forward(
        ctx: Any,
        unit: CompiledUnit,
        lengths: Tensor | None,
        x: Tensor,
        w: Tensor,
        u: Tensor | None,
        v: Tensor | None,
        b: Tensor | None,
        b_u: Tensor | None,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """Run the forward loops."""
        (T, B, I), H = x.shape, state[0].shape[1]  # noqa: E741
        names, threads = unit.layout.spec.state, thread_count(B)
        fields, jobs = weight_fields(unit.layout, (w, u, v, b, b_u), H)
        fields |= {"T": T, "B": B, "I": I, "H": H, "threads": threads}
        fields |= {"x": x.contiguous(), "slots": NEW}
        for name, first in zip(names, state, strict=True):
            fields |= {f"all_{name}": NEW, f"first_{name}": first.contiguous()}
        fields |= _length_fields(T, lengths)
        if lengths is not None:
            fields |= {f"final_{name}": NEW for name in names}
        if B and not ctx.needs_input_grad[2]:  # x is then data, and may be a piano-roll
            fields |= dict.fromkeys(LISTED, NEW)
            fields["sparse_limit"] = int(DENSITY * x.numel()) // threads
        forward = unit.forward.job(fields)
        parallel_for([*jobs, forward], threads)
        made = forward.made
        ctx.sparse = None
        if "listed" in made and 0 not in made["listed"].tolist():  # no thread stopped listing
            ctx.sparse = SparseFrames(made["indices"], made["counts"])
        ctx.unit, ctx.lengths = unit, lengths
        ctx.set_materialize_grads(False)
        steps = [made[f"all_{name}"] for name in names]
        ctx.save_for_backward(x, w, u, v, b, b_u, made["slots"], *steps, *state)
        h = made["all_h"][1:]
        if lengths is None:
            return h, *(kept[-1] for kept in steps)
        return h, *(made[f"final_{name}"] for name in names)

    @staticmethod
    def backward(ctx: Any, *outside: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the backward loops, then sum the outer products over all frames."""
        d_h, *d_final = outside
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            return _through_specification(ctx, outside)
        layout, names = ctx.unit.layout, ctx.unit.layout.spec.state
        x, w, u, v, b, b_u, slots, *steps = ctx.saved_tensors[: 7 + len(d_final)]
        x = x.contiguous()
        (T, B, I), H = x.shape, steps[0].shape[2]  # noqa: E741
        threads = thread_count(B)
        _, _, needs_x, needs_w, needs_u, *_ = ctx.needs_input_grad
        fields, jobs = _packed(layout, w if needs_x else None, u, H)
        fields |= _present(V=v, b=b, bU=b_u) | _length_fields(T, ctx.lengths)
        at_once = ctx.sparse is None and needs_w and needs_u and WIDE * threads <= B
        fields |= {
            "T": T, "B": B, "I": I, "H": H, "threads": threads, "d_step": 0 if at_once else B,
            "slots": slots, "d_slots": NEW, "sums": NEW, "d_x": NEW if needs_x else None,
        }  # fmt: skip
        if at_once:
            fields |= {"x": _finite(x, ctx.lengths), "scratch": NEW}
            fields |= dict.fromkeys(layout.products, NEW)
        gradient = slots.new_zeros(1, 1, H).expand(T, B, H) if d_h is None else d_h
        fields["d_h"] = gradient if gradient.stride(2) == 1 else gradient.contiguous()
        for name, kept, given in zip(names, steps, d_final, strict=True):
            fields |= {f"all_{name}": kept, f"carried_{name}": NEW}
            fields |= _present(**{f"d_final_{name}": given})
        backward = ctx.unit.backward.job(fields)
        made = backward.made
        d_sums = memory.buffer(slots.dtype, len(layout.summed) * H, 1)
        jobs += backward, folding(made["sums"], d_sums)
        d_w = memory.buffer(w.dtype, *w.shape) if needs_w else None
        d_u = memory.buffer(u.dtype, *u.shape) if needs_u and u is not None else None
        if at_once and d_w is not None:
            totals = d_w, *(_gate_rows(d_u, rows, H) for rows in layout.gate_spans)
            jobs += map(folding, (made[name] for name in layout.products), totals)
        else:
            jobs += _products(ctx, x, made["d_slots"], d_w, d_u, threads)
        parallel_for(jobs, threads)
        d_b, d_v, d_bu = _cut(d_sums, (b, v, b_u))  # in the order of `Layout.summed`
        carried = [made[f"carried_{name}"] for name in names]
        return None, None, made.get("d_x"), d_w, d_u, d_v, d_b, d_bu, *carried


def _products(
    ctx: Any, x: Tensor, d_slots: Tensor, d_w: Tensor | None, d_u: Tensor | None, threads: int
) -> list[Job]:
    """The jobs that compute the gradients of W and U from those of the slots at all steps."""
    layout, (slots, *rest) = ctx.unit.layout, ctx.saved_tensors[6:]
    steps = dict(zip(layout.states, rest[: len(layout.states)], strict=True))
    (T, B, I), H, jobs = x.shape, steps["h"].shape[2], list[Job]()  # noqa: E741
    if d_w is not None:
        d_net = _columns(d_slots, (0, layout.inputs), H)
        if ctx.sparse is None:
            jobs += outer(d_net, _finite(x, ctx.lengths).view(T * B, I), d_w, threads)
        else:
            jobs += add_rows(d_net, ctx.sparse, B, threads, d_w)
    if d_u is not None:
        for p, rows in zip(layout.projections, layout.gate_spans, strict=True):
            into = layout.slot(p.into)
            if p.source.kind == "old":
                source = steps[p.source.name][:-1].view(T * B, H)
            else:
                slot = layout.slot(p.source.name)
                source = _columns(slots, (slot, slot + 1), H)
            d_projected = _columns(d_slots, (into, into + len(p.gates)), H)
            jobs += outer(d_projected, source, _gate_rows(d_u, rows, H), threads)
    return jobs


def _cut(numbers: Tensor, shaped_like: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Consecutive parts of `numbers` in the shapes of these tensors; None for None."""
    start, parts = 0, list[Tensor | None]()
    for tensor in shaped_like:
        size = 0 if tensor is None else tensor.numel()
        part = numbers[start : start + size]
        parts.append(None if tensor is None else part.view(tensor.shape))
        start += size
    return parts


def _through_specification(ctx: Any, outside: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The gradients, themselves differentiable; slow."""
    unit, count = ctx.unit, len(outside) - 1
    x, *weights = ctx.saved_tensors[:6]
    needs = ctx.needs_input_grad[2:]
    # Aliases: inputs may depend on one another, and each gradient is for its input alone.
    inputs: list[Any] = [
        None if t is None else t.view_as(t)
        for t in (x, *weights, *ctx.saved_tensors[7 + count : 7 + 2 * count])
    ]
    x, *terms = inputs[:6]
    stacked = dict(zip(("W", "U", "V", "b", "bU"), terms, strict=True))
    h, final = specification.run(
        unit.layout.spec, StackedWeights(unit.layout.spec, stacked), x, tuple(inputs[6:]),
        ctx.lengths, *unit.activations,
    )  # fmt: skip
    reached = [(s, g) for s, g in zip((h, *final), outside, strict=True) if g is not None]
    asked = [t for t, needed in zip(inputs, needs, strict=True) if needed and t is not None]
    found = iter(
        torch.autograd.grad(
            [s for s, _ in reached], asked, [g for _, g in reached],
            create_graph=True, allow_unused=True,
        )
    )  # fmt: skip
    return (
        None,
        None,
        *(next(found) if n and t is not None else None for t, n in zip(inputs, needs, strict=True)),
    )


def _packed(
    layout: Layout, w: Tensor | None, u: Tensor | None, H: int, *, transposed: bool = False
) -> tuple[KernelFields, list[Job]]:
    """W, if given, and each projection's rows of U, packed; and the jobs that pack them."""
    matrices = {f"U{k}": _gate_rows(u, rows, H) for k, rows in enumerate(layout.gate_spans)}
    if w is not None:
        matrices["W"] = w
    packings = {name: packing(m, transposed=transposed) for name, m in matrices.items()}
    return panels_of(packings), list(packings.values())


def _length_fields(T: int, lengths: Tensor | None) -> KernelFields:
    if lengths is None:
        return {"shortest": T + 1}
    return {"shortest": min(lengths.tolist()), "lengths": lengths}


def _finite(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x (T, B, I) without nan or inf where rows have ended: times a gradient of 0 they are nan.

    A finite sum shows that there are none, several times as fast as making a copy.
    """
    if lengths is None or math.isfinite(float(x.sum())):
        return x
    ended = torch.arange(len(x)).unsqueeze(1) >= lengths
    return x.masked_fill(ended.unsqueeze(2), 0)


def _columns(slots: Tensor, span: tuple[int, int], size: int) -> Tensor:
    first, last = span[0] * size, span[1] * size
    return slots if last - first == slots.shape[1] else slots[:, first:last]


def _gate_rows(u: Tensor | None, span: tuple[int, int], size: int) -> Tensor:
    assert u is not None
    first, last = span[0] * size, span[1] * size
    return u if last - first == u.shape[0] else u[first:last]


def _present(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}


def run(
    spec: UnitSpec,
    weights: StackedWeights,
    x: Tensor,
    state: Sequence[Tensor],
    lengths: Tensor | None,
    gate_activation: str,
    activation: str,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Like `specification.run`, for float32 or float64 on the CPU."""
    term = weights.stacked
    bias = any(term[name] is not None for name in BIASES)
    unit = compiled_unit(spec, x.element_size(), gate_activation, activation, bias)
    given = [term[name] for name in ("W", "U", "V", "b", "bU")]
    h, *final = Recurrence.apply(unit, lengths, x, *given, *state)  # type: ignore[no-untyped-call]
    return h, tuple(final)
