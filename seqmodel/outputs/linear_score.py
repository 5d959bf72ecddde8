"""Shared by compiled scores of a linear layer's outputs: everything but the likelihood itself.

Rows of h pass through the layer a block at a time. A row's nats are computed while its outputs are
in the L1 cache, and their slopes overwrite the outputs. The gradients that follow are the same for
every likelihood.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import POINTER, Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import matmul, packing
from seqmodel.kernels.linear.outer import outer
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.signature import (
    NEW,
    Array,
    Field,
    KernelFields,
    Signature,
    packed,
    per_thread,
)
from seqmodel.kernels.run.threads import Job, Kernel, compile_kernel, parallel_for, thread_count

BLOCK = 16
"""Rows in a block."""


def threads_for(rows: int) -> int:
    """The number of threads for `rows` rows."""
    return thread_count(-(-rows // BLOCK))


def rows_of(tensor: Tensor) -> Tensor:
    """(..., N) as rows (rows, N), contiguous."""
    return tensor.reshape(-1, tensor.shape[-1]).contiguous()


BlockKernel = Callable[[int], Kernel]
"""A kernel over blocks of rows, split over the threads, for numbers of so many bytes."""
Write = Callable[[Emitter, dict[str, Any], Any, Any], None]


def block_kernel(
    signature: Signature, write: Write, begin: Callable[..., None] = lambda e, fields: None
) -> BlockKernel:
    """The kernel of fields with a size "rows".

    `write(e, fields and "thread", the block's first row, how many it has)` writes the body, and
    `begin(e, fields)` what a thread does before its first block.
    """

    def write_blocks(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        b, f["thread"] = e.builder, thread
        begin(e, f)
        first, last = e.share(e.parts(f["rows"], BLOCK), thread, threads)
        with e.loop(first, last) as block:
            start = e.mul(block, BLOCK)
            left = b.sub(f["rows"], start)
            rows = b.select(b.icmp_signed("<", left, e.int(BLOCK)), left, e.int(BLOCK))
            write(e, f, start, rows)

    return lambda itemsize: compile_kernel(signature, itemsize, write_blocks)


def likelihood(
    name: str,
    sizes: tuple[str, ...],
    own: tuple[Array, ...],
    write: Write,
    *,
    work: str = "0",
    abreast: bool = False,
) -> BlockKernel:
    """The kernel of a likelihood given a layer's outputs, for `linear_nats`.

    `sizes` and `own` are fields of its own, and `work` is the size of each thread's scratch space,
    the field of that name. `write(e, fields, row, left)` finds W h of a row in
    `slope`, to which it adds the bias, replaces them with the nats' slopes, and stores the nats; if
    `abreast`, of as many rows as there are lanes, of which so many are left in the block.
    """

    def write_block(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
        H, N = f["H"], f["N"]
        h, outputs = e.offset(f["h"], e.mul(start, H)), e.offset(f["slope"], e.mul(start, N))
        matmul(e, h, H, f["weight"], outputs, N, rows, H, N, False)
        end = e.add(start, rows)
        with e.loop(start, end, e.lanes if abreast else 1) as row:
            write(e, f, row, e.builder.sub(end, row))
        weighted = e.builder.icmp_unsigned("!=", f["weights"], POINTER(None))
        with e.builder.if_then(weighted), e.loop(start, end) as row:
            weight = Vector(e, e.broadcast(e.offset(f["weights"], row)))

            def scale(j: Any, lanes: Any, row: Any = row, weight: Vector = weight) -> None:
                place = e.offset(f["slope"], e.mul(row, N), j)
                e.store((Vector(e, e.load(place, lanes)) * weight).value, place, lanes)

            e.columns(N, scale)

    arrays = (
        Array("h", ("rows", "H")),
        packed("weight", "H", "N"),
        Array("bias", ("N",)),
        *own,
        Array("slope", ("rows", "N")),
        Array("nats", ("rows",)),
        Array("weights", ("rows",), optional=True),  # by which a row's slopes are multiplied
        per_thread("work", work),
    )
    signature = Signature(f"{name}_forward", ("rows", "H", "N", *sizes), arrays)
    return block_kernel(signature, write_block)


Scored = tuple[Tensor, tuple[Tensor, ...] | None]
"""Nats (...); the gradients of their weighted sum, if there are weights."""
Score = Callable[..., Scored]
"""Computes them: (weights (...) or None, *given); gradients are those of the first given."""


def linear_nats(
    kernel: BlockKernel, weights: Tensor | None, h: Tensor, weight: Tensor, bias: Tensor,
    *, steps: int = 1, **fields: Field,
) -> Tensor:  # fmt: skip
    """The nats of a layer's outputs from h, by a `likelihood` and its own fields, as `nats_of`.

    They are (...) of h (..., H) or, where so many `steps` make a frame, (T, B) of h (T S, B, H).
    """
    return nats_of(partial(_score, kernel, steps, fields), weights, h, weight, bias)


def gradients(h: Tensor, weight: Tensor, slope: Tensor) -> tuple[tuple[Tensor, Tensor], list[Job]]:
    """The gradients of h (rows, H) and weight (N, H), valid once the jobs have run.

    `slope` (rows, N) is the gradient of the layer's outputs; its sum over rows is the bias's.
    """
    (rows, H), N, packing_weight = h.shape, len(weight), packing(weight)
    d_weight = memory.buffer(h.dtype, N, H)
    backward = _BACKWARD(h.element_size()).job(
        {
            "rows": rows, "H": H, "N": N, "d_h": NEW, "slope": slope,
            "weight": packing_weight.made["panels"],
        }
    )  # fmt: skip
    to_weight = outer(slope, h, d_weight, threads_for(rows))
    return (backward.made["d_h"], d_weight), [packing_weight, backward, *to_weight]


def _score(
    kernel: BlockKernel, steps: int, fields: KernelFields, weights: Tensor | None, *given: Tensor
) -> Scored:
    """Pass h through a layer and score what comes out; `slope` is each row's gradient there."""
    h, weight, bias = given
    rows, (N, H), found = rows_of(h), weight.shape, None
    threads, of_rows = threads_for(len(rows)), weights
    if weights is not None:
        of_rows = weights if steps == 1 else weights.repeat_interleave(steps, 0)
        of_rows = of_rows.reshape(-1).contiguous()
    packing_weight = packing(weight, transposed=True)
    scoring = kernel(h.element_size()).job(
        fields
        | {
            "rows": len(rows), "H": H, "N": N, "h": rows, "weight": packing_weight.made["panels"],
            "bias": bias.contiguous(), "slope": NEW, "nats": NEW, "work": NEW, "threads": threads,
            "weights": of_rows,
        },
    )  # fmt: skip
    jobs, slope = [packing_weight, scoring], scoring.made["slope"]
    if of_rows is not None:
        (d_h, d_weight), more = gradients(rows, weight, slope)
        jobs += more
    parallel_for(jobs, threads)
    if of_rows is not None:
        found = d_h.view(h.shape), d_weight, slope.sum(0)
    nats = scoring.made["nats"].view(h.shape[:-1])
    if steps > 1:
        nats = nats.view(len(nats) // steps, steps, -1).sum(1)
    return nats, found


class Nats(torch.autograd.Function):
    """See `nats_of`."""

    @staticmethod
    def forward(ctx: Any, score: Score, weights: Tensor | None, *given: Tensor | None) -> Tensor:
        """The nats, or their sum; saves its gradients, which are known up to a factor."""
        nats, found = score(weights, *given)
        ctx.score, ctx.weighted, ctx.others = score, found is not None, len(given)
        ctx.save_for_backward(*(given if found is None else found))
        return nats if weights is None else torch.dot(nats.reshape(-1), weights.reshape(-1))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of what is given; those of nats one by one need another pass."""
        found = ctx.saved_tensors
        if not ctx.weighted:
            found = ctx.score(gradient, *found)[1]
        elif (factor := float(gradient)) != 1:
            found = [d * factor for d in found]
        return None, None, *found, *[None] * (ctx.others - len(found))


def nats_of(score: Score, weights: Tensor | None, *given: Tensor | None) -> Tensor:
    """The nats (...) of what is given, by a `Score`, or with weights (...) their weighted sum."""
    nats: Tensor = Nats.apply(score, weights, *given)  # type: ignore[no-untyped-call]
    return nats


def _write_backward(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, N = f["H"], f["N"]
    slope, d_h = e.offset(f["slope"], e.mul(start, N)), e.offset(f["d_h"], e.mul(start, H))
    matmul(e, slope, N, f["weight"], d_h, H, rows, N, H, False)


_BACKWARD = block_kernel(
    Signature(
        "linear_backward",
        ("rows", "H", "N"),
        (Array("d_h", ("rows", "H")), packed("weight", "N", "H"), Array("slope", ("rows", "N"))),
    ),
    _write_backward,
)
