"""The compiled loops as one differentiable operation, and the backend around it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqmodel.cpu import memory
from seqmodel.cpu.notes import list_notes, outer_notes
from seqmodel.cpu.outer import outer
from seqmodel.cpu.product import pack
from seqmodel.cpu.team import thread_count
from seqmodel.units import specification
from seqmodel.units.cpu.kernels import CompiledUnit, Plan, compiled_unit
from seqmodel.units.registry import UnitSpec
from seqmodel.units.weights import StackedWeights


def weight_fields(
    plan: Plan, weights: Sequence[Tensor | None], H: int, *, listed: bool
) -> dict[str, int | Tensor]:
    """The weights W, U, V, b and bU as the forward loops take them; `listed` if x is, as notes."""
    w, u, *vectors = weights
    assert w is not None
    fields: dict[str, int | Tensor] = {"W": w.t().contiguous() if listed else pack(w.t())}
    for k, rows in enumerate(plan.product_rows):
        fields[f"U{k}"] = pack(_gate_rows(u, rows, H).t())
    return fields | _present(**dict(zip(("V", "b", "bU"), vectors, strict=True)))


class Recurrence(torch.autograd.Function):
    """x, the weights and the initial state -> every state tensor at every step."""

    @staticmethod
    def forward(
        ctx: Any,
        unit: CompiledUnit,
        x: Tensor,
        w: Tensor,
        u: Tensor | None,
        v: Tensor | None,
        b: Tensor | None,
        b_u: Tensor | None,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """Run the forward loops."""
        T, B, _ = x.shape
        plan, H = unit.plan, state[0].shape[1]
        frames = x.contiguous()
        slots = memory.recycled(x, T * B, len(plan.cell.slots) * H)
        steps = [memory.buffer(x, T + 1, B, H) for _ in state]
        for kept, first in zip(steps, state, strict=True):
            kept[0] = first
        fields: dict[str, int | Tensor] = {"T": T, "B": B, "I": x.shape[2], "H": H, "slots": slots}
        fields.update(zip(plan.spec.state, steps, strict=True))
        threads = thread_count(B)
        # Data: nobody asks for its gradient, and it may be a piano-roll.
        data = not ctx.needs_input_grad[1]
        ctx.notes = list_notes(frames.view(T * B, x.shape[2])) if data else None
        fields |= weight_fields(plan, (w, u, v, b, b_u), H, listed=ctx.notes is not None)
        fields["x"] = frames
        if ctx.notes is not None:
            fields |= {"numbers": ctx.notes.numbers, "starts": ctx.notes.starts}
        unit.run("forward", fields, threads)
        ctx.unit = unit
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w, u, v, b, b_u, slots, *steps, *state)
        return tuple(kept[1:] for kept in steps)

    @staticmethod
    def backward(ctx: Any, *outside: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the backward loops, then the products over all frames at once."""
        if torch.is_grad_enabled():  # somebody will differentiate what comes out of here
            return _through_specification(ctx, outside)
        unit = ctx.unit
        x, w, u, v, b, b_u, slots, *steps = ctx.saved_tensors[: 7 + len(outside)]
        x = x.contiguous()
        plan, T, (B, H) = unit.plan, steps[0].shape[0] - 1, steps[0].shape[1:]
        threads = thread_count(B)
        d_slots = memory.recycled(slots, *slots.shape)
        carried = [steps[0].new_zeros(B, H) for _ in steps]
        sums = slots.new_zeros(threads, len(plan.sums), H)
        fields: dict[str, int | Tensor] = {
            "T": T, "B": B, "I": x.shape[2], "H": H,
            "slots": slots, "d_slots": d_slots, "sums": sums,
        }  # fmt: skip
        gradients = []  # alive until the loops are done
        for name, kept, on_its_way, given in zip(
            plan.spec.state, steps, carried, outside, strict=True
        ):
            gradient = slots.new_zeros(H).expand(T, B, H) if given is None else given
            gradient = gradient if gradient.stride(2) == 1 else gradient.contiguous()
            gradients.append(gradient)
            fields |= {
                name: kept, f"carried_{name}": on_its_way, f"d{name}": gradient,
                f"d{name}_step": gradient.stride(0), f"d{name}_row": gradient.stride(1),
            }  # fmt: skip
        packed = [pack(_gate_rows(u, rows, H)) for rows in plan.product_rows]
        fields.update((f"U{k}", panels) for k, panels in enumerate(packed))
        fields.update(_present(V=v, b=b, bU=b_u))
        _, needs_x, needs_w, needs_u, *_ = ctx.needs_input_grad
        d_x = memory.buffer(x, *x.shape) if needs_x else None
        if d_x is not None:
            fields |= {"wants_dx": 1, "dx": d_x, "W": pack(w)}
        unit.run("backward", fields, threads)

        d_w = None
        if needs_w and ctx.notes is not None:
            d_w = outer_notes(_columns(d_slots, plan.input_slots, H), ctx.notes, x.shape[2], B)
        elif needs_w:
            d_w = memory.buffer(w, *w.shape)
            outer(_columns(d_slots, plan.input_slots, H), x.view(T * B, x.shape[2]), d_w)
        d_u = None
        if needs_u and u is not None:
            d_u = memory.buffer(u, *u.shape)
            before = steps[0][:-1].view(T * B, H)
            for product, rows in zip(plan.products, plan.product_rows, strict=True):
                into = plan.slot(product.into)
                d_product = _columns(d_slots, (into, into + len(product.gates)), H)
                own = plan.slot(product.source) if product.source != "h" else 0
                source = before if product.source == "h" else _columns(slots, (own, own + 1), H)
                outer(d_product, source, _gate_rows(d_u, rows, H))
        counts = [len(plan.owners(term)) for term in ("b", "V", "bU")]
        d_b, d_v, d_bu = sums.sum(0).split(counts)
        return (
            None, d_x, d_w, d_u, None if v is None else d_v,
            None if b is None else d_b.reshape(-1), None if b_u is None else d_bu.reshape(-1),
            *carried,
        )  # fmt: skip


def _through_specification(ctx: Any, outside: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The gradients as functions that can be differentiated in their turn, slowly."""
    unit, count = ctx.unit, len(outside)
    x, *weights = ctx.saved_tensors[:6]
    needs = ctx.needs_input_grad[1:]
    # Other names of the same tensors: the derivative is for what each is here, not for what one
    # may owe to another further up.
    inputs = [
        None if t is None else t.view_as(t)
        for t in (x, *weights, *ctx.saved_tensors[7 + count : 7 + 2 * count])
    ]
    given = StackedWeights(
        unit.plan.spec, dict(zip(("W", "U", "V", "b", "bU"), inputs[1:6], strict=True))
    )
    first = inputs[0]
    assert first is not None
    steps = specification.run(
        unit.plan.spec,
        given,
        first,
        tuple(t for t in inputs[6:] if t is not None),
        *unit.activations,
    )
    reached = [(s, g) for s, g in zip(steps, outside, strict=True) if g is not None]
    asked = [t for t, needed in zip(inputs, needs, strict=True) if needed and t is not None]
    found = iter(
        torch.autograd.grad(
            [s for s, _ in reached], asked, [g for _, g in reached],
            create_graph=True, allow_unused=True,
        )
    )  # fmt: skip
    return None, *(
        next(found) if n and t is not None else None for t, n in zip(inputs, needs, strict=True)
    )


def _columns(slots: Tensor, span: tuple[int, int], size: int) -> Tensor:
    return slots[:, span[0] * size : span[1] * size]


def _gate_rows(u: Tensor | None, span: tuple[int, int], size: int) -> Tensor:
    assert u is not None
    return u[span[0] * size : span[1] * size]


def _present(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}


def run(
    spec: UnitSpec,
    weights: StackedWeights,
    x: Tensor,
    state: Sequence[Tensor],
    gate_activation: str,
    activation: str,
) -> tuple[Tensor, ...]:
    """As `specification.run`, for float32 or float64 on the CPU."""
    term = weights.stacked
    unit = compiled_unit(
        spec.name, x.element_size(), gate_activation, activation, term["b"] is not None
    )
    given = [term[name] for name in ("W", "U", "V", "b", "bU")]
    steps: tuple[Tensor, ...] = Recurrence.apply(unit, x, *given, *state)  # type: ignore[no-untyped-call]
    return steps
