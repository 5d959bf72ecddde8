"""The compiled loops as one differentiable operation, and the backend around it."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from seqmodel.kernels.linear.outer import BLOCK, outer
from seqmodel.kernels.linear.sparse import DENSITY
from seqmodel.kernels.run.signature import NEW, KernelFields
from seqmodel.kernels.run.threads import Job, Kernel, parallel_for, thread_count
from seqmodel.units import specification
from seqmodel.units.cpu.kernels import LISTED, compiled_unit
from seqmodel.units.cpu.schedule import Layout, Projection
from seqmodel.units.definition import TERMS
from seqmodel.units.specification import Case, Weights

ROWS = BLOCK
"""Rows per thread that the steps of a block have in all, if a step has fewer.

What waits for no other step is computed for a block at a time: W x, the gradient of x, and those of
W and U, unless there are few frames. Matrices are then read once for many rows, while what these
products read and write stays in the cache.
"""


def _weight_fields(layout: Layout, weights: Weights) -> dict[str, Any]:
    """The fields that hold weights, and room for the packed matrices."""
    given = {term: w.contiguous() for term, w in weights.items() if w is not None}
    fields: dict[str, Any] = {f"whole_{t}" if t in "WU" else t: w for t, w in given.items()}
    return fields | {p.name: NEW for p in layout.projections}


def _jobs(kernels: Sequence[Kernel], fields: KernelFields) -> list[Job]:
    """The jobs of kernels that have the same fields."""
    job = kernels[0].job(fields)
    return [job._replace(kernel=kernel) for kernel in kernels]


class Recurrence(torch.autograd.Function):
    """From x, the weights and the initial state to h at every step and the final state."""

    @staticmethod
    def forward(
        ctx: Any, case: Case, lengths: Tensor | None, zones: Tensor | None, x: Tensor,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Run the forward loops; `tensors` are the weights in the order of TERMS, and the state."""
        unit = compiled_unit(
            case.spec, x.element_size(), case.gate_activation, case.activation, case.bias
        )
        names = case.spec.state
        weights, state = tensors[: len(TERMS)], tensors[len(TERMS) :]
        by_term = dict(zip(TERMS, weights, strict=True))
        shared = _shared(case, unit.layout, len(x), lengths, zones)
        threads: int = shared["threads"]
        fields = shared | _weight_fields(unit.layout, by_term) | {"x": x.contiguous(), "slots": NEW}
        if unit.layout.means:
            fields["means"] = NEW
        for name, first in zip(names, state, strict=True):
            assert first is not None
            fields |= {f"all_{name}": NEW, f"first_{name}": first.contiguous()}
            fields[f"final_{name}"] = NEW  # a copy: writing to a state must not change h
        if case.batch_size and not ctx.needs_input_grad[3]:  # x is data, and may be sparse
            fields |= dict.fromkeys(LISTED, NEW)
            fields["sparse_limit"] = int(DENSITY * x[0].numel()) // threads
        jobs = _jobs(unit.forward, fields)
        parallel_for(jobs, threads)
        created = jobs[0].created
        lists: tuple[Tensor | None, Tensor | None] = None, None
        if "listed" in created and ctx.needs_input_grad[4] and 0 not in created["listed"].tolist():
            lists = created["indices"], created["counts"]  # no thread stopped listing
        ctx.unit, ctx.case, ctx.lengths, ctx.zones = unit, case, lengths, zones
        ctx.shared = shared  # as the forward loops divided memory, whatever the threads are then
        ctx.set_materialize_grads(False)
        steps = [created[f"all_{name}"] for name in names]
        ctx.save_for_backward(*lists, created["slots"], created.get("means"), *steps, x, *tensors)
        return created["all_h"][1:], *(created[f"final_{name}"] for name in names)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the backward loops, then sum the outer products over all frames."""
        d_h, *d_final = gradients
        indices, counts, slots, means, *tensors = ctx.saved_tensors
        states, (x, *saved) = tensors[: len(d_final)], tensors[len(d_final) :]
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            return _through_specification(ctx, gradients, [x, *saved])
        case, layout, T, H = ctx.case, ctx.unit.layout, len(x), ctx.case.hidden_size
        weights = dict(zip(TERMS, saved[: len(TERMS)], strict=True))
        needs_x, needs_w, needs_u = ctx.needs_input_grad[3:6]
        fields = ctx.shared | _weight_fields(layout, weights)
        fields["W"] = NEW if needs_x else None
        threads, few = ctx.shared["threads"], ctx.shared["in_order"]
        x = x.contiguous()
        fields["x"] = _finite(x, ctx.lengths) if needs_w else x
        if layout.means:
            fields["means"] = means
        fields |= {"slots": slots, "d_slots": NEW, "sums": NEW, "d_x": NEW if needs_x else None}
        needed = {"W": needs_w, "U": needs_u}
        summed = [p for p in layout.projections if needed[p.term]]
        if few:
            fields["steps"] = T
        else:
            fields |= {"scratch": NEW, "indices": indices, "counts": counts}
            fields |= {f"d_{p.name}": NEW for p in summed}
        gradient = slots.new_zeros(1, 1, H).expand(T, case.batch_size, H) if d_h is None else d_h
        fields["d_h"] = gradient if gradient.stride(2) == 1 else gradient.contiguous()
        for name, steps, last in zip(layout.states, states, d_final, strict=True):
            fields |= {f"all_{name}": steps, f"carried_{name}": NEW}
            fields[f"d_final_{name}"] = None if last is None else last.contiguous()
        given = [term for term in TERMS if weights[term] is not None and needed.get(term, True)]
        jobs = _jobs(ctx.unit.backward, fields | {f"total_{term}": NEW for term in given})
        created = jobs[0].created
        if few:
            jobs += [job for p in summed for job in _product(layout, p, jobs[0])]
        parallel_for(jobs, threads)
        carried = [created[f"carried_{name}"] for name in layout.states]
        found = map(created.get, ("d_x", *(f"total_{term}" for term in TERMS)))
        return None, None, None, *found, *carried


def _product(layout: Layout, p: Projection, backward: Job) -> list[Job]:
    """The jobs that sum a projection's gradient, from the gradients of its slots at all steps."""
    fields = cast(Any, backward.fields)
    H, threads, (kind, name) = fields["H"], fields["threads"], p.source

    def part(slots: Tensor, first: str, count: int) -> Tensor:
        return slots.narrow(1, layout.slot(first) * H, count * H)

    if kind == "slot":
        source = part(fields["slots"], name, 1)
    else:
        source = (fields[f"all_{name}"][:-1] if kind == "old" else fields["x"]).flatten(0, 1)
    d = part(backward.created["d_slots"], p.into, len(p.gates))
    total = backward.created[f"total_{p.term}"].narrow(0, p.gates.start * H, len(p.gates) * H)
    return outer(d, source, total, threads, few=True)


def _through_specification(
    ctx: Any, gradients: Sequence[Tensor | None], inputs: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """The gradients, themselves differentiable; slow."""
    # Aliases: inputs may depend on one another, and each gradient is for its input alone.
    aliases: list[Any] = [t if t is None else t.view_as(t) for t in inputs]
    x, *rest = aliases
    weights, state = dict(zip(TERMS, rest, strict=False)), tuple(rest[len(TERMS) :])
    h, final = specification.run(ctx.case, weights, x, state, ctx.lengths, ctx.zones)
    used = {s: g for s, g in zip((h, *final), gradients, strict=True) if g is not None}
    needed = ctx.needs_input_grad[3:]
    wanted = [t for t, needs in zip(aliases, needed, strict=True) if needs]
    options = {"create_graph": True, "allow_unused": True}
    grads = iter(torch.autograd.grad(list(used), wanted, list(used.values()), **options))
    return None, None, None, *(next(grads) if needs else None for needs in needed)


def _shared(
    case: Case, layout: Layout, T: int, lengths: Tensor | None, zones: Tensor | None
) -> dict[str, Any]:
    """The fields common to both directions."""
    B, threads = case.batch_size, thread_count(case.batch_size)
    # With few frames, the slots' gradients at all steps take less memory than tables for that of U.
    fields = {
        "T": T, "B": B, "I": case.input_size, "H": case.hidden_size, "threads": threads,
        "in_order": int(threads * case.hidden_size > T * B),
        "steps": max(1, min(T, ROWS // max(1, -(-B // threads)))),
        "shortest": T + 1 if lengths is None else min(lengths.tolist()), "lengths": lengths,
    }  # fmt: skip
    if layout.scratch:
        fields["row"] = NEW
    if zones is not None:
        fields |= {f"zone_{state}": z for state, z in zip(layout.states, zones, strict=True)}
    return fields


def _finite(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x (T, B, I) without nan or inf where rows have ended: times a gradient of 0 they give nan.

    A finite sum shows that there are none, several times faster than making a copy.
    """
    if lengths is None or math.isfinite(float(x.sum())):
        return x
    ended = torch.arange(len(x)).unsqueeze(1) >= lengths
    return x.masked_fill(ended.unsqueeze(2), 0)


def run(
    case: Case, weights: Weights, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None,
    zones: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """See `specification.run`, for float32 or float64 on the CPU."""
    ordered = [weights[term] for term in TERMS]
    h, *final = Recurrence.apply(case, lengths, zones, x, *ordered, *state)  # type: ignore[no-untyped-call]
    return h, tuple(final)
