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
"""A kernel over blocks of rows, split over the threads, for numbers of the given size in bytes."""
Write = Callable[[Emitter, dict[str, Any], Any, Any], None]


def block_kernel(signature: Signature, write: Write) -> BlockKernel:
    """The kernel over fields that have a size "rows".

    `write(e, fields and "thread", the block's first row, its number of rows)` writes the body.
    """

    def write_blocks(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        f["thread"] = thread
        first, last = e.share(e.parts(f["rows"], BLOCK), thread, threads)
        with e.loop(first, last) as block:
            start = e.mul(block, BLOCK)
            write(e, f, start, e.minimum(e.builder.sub(f["rows"], start), e.int(BLOCK)))

    return lambda itemsize: compile_kernel(signature, itemsize, write_blocks)


def likelihood(
    name: str,
    sizes: tuple[str, ...],
    own_arrays: tuple[Array, ...],
    write: Write,
    *,
    work: str = "0",
    in_lanes: bool = False,
) -> BlockKernel:
    """The kernel of a likelihood given a layer's outputs, for `linear_nats`.

    `sizes` and `own_arrays` are further fields, and `work` is the size of each thread's scratch,
    the field of that name. `write(e, fields, row, left)` finds W h of a row in `slope`, to which it
    adds the bias, replaces them with the nats' slopes, and stores the nats. If `in_lanes`, it does
    so for as many rows as there are lanes, `left` of which remain in the block.
    """

    def write_block(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
        H, N = f["H"], f["N"]
        h, outputs = e.offset(f["h"], e.mul(start, H)), e.offset(f["slope"], e.mul(start, N))
        matmul(e, h, H, f["weight"], outputs, N, rows, H, N, False)
        end = e.add(start, rows)
        with e.loop(start, end, e.lanes if in_lanes else 1) as row:
            write(e, f, row, e.builder.sub(end, row))
        weighted = e.builder.icmp_unsigned("!=", f["weights"], POINTER(None))
        with e.builder.if_then(weighted), e.loop(start, end) as row:
            weight = Vector(e, e.broadcast(e.offset(f["weights"], row)))

            def scale(j: Any, lanes: Any, row: Any = row, weight: Vector = weight) -> None:
                address = e.offset(f["slope"], e.mul(row, N), j)
                e.store((Vector(e, e.load(address, lanes)) * weight).value, address, lanes)

            e.columns(N, scale)

    arrays = (
        Array("h", ("rows", "H")),
        packed("weight", "H", "N"),
        Array("bias", ("N",)),
        *own_arrays,
        Array("slope", ("rows", "N")),
        Array("nats", ("rows",)),
        Array("weights", ("rows",), optional=True),  # factors on each row's slopes
        per_thread("work", work),
    )
    signature = Signature(f"{name}_forward", ("rows", "H", "N", *sizes), arrays)
    return block_kernel(signature, write_block)


ScoreResult = tuple[Tensor, tuple[Tensor, ...] | None]
"""Nats (...); and the gradients of their weighted sum, if there are weights."""
Score = Callable[..., ScoreResult]
"""Computes them: (weights (...) or None, *given); gradients are with respect to the first given."""


def linear_nats(
    kernel: BlockKernel, weights: Tensor | None, h: Tensor, weight: Tensor, bias: Tensor,
    *, steps: int = 1, **fields: Field,
) -> Tensor:  # fmt: skip
    """The nats of a layer's outputs from h, by a `likelihood` and its own fields; see `nats_of`.

    They are (...) from h (..., H) or, if a frame has several `steps`, (T, B) from h (T S, B, H).
    """
    return nats_of(partial(_score, kernel, steps, fields), weights, h, weight, bias)


def gradients(h: Tensor, weight: Tensor, slope: Tensor) -> tuple[tuple[Tensor, Tensor], list[Job]]:
    """The gradients of h (rows, H) and weight (N, H), valid once the jobs have run.

    `slope` (rows, N) is the gradient of the layer's outputs; its sum over rows is the bias's.
    """
    d_weight = memory.buffer(h.dtype, *weight.shape)
    d_h, jobs = _product(slope, packing(weight), h.shape[1])
    return (d_h, d_weight), jobs + outer(slope, h, d_weight, threads_for(len(h)))


def _product(rows: Tensor, packed_matrix: Job, columns: int) -> tuple[Tensor, list[Job]]:
    """Rows times a matrix of `columns` columns, which one job packs: (rows, columns)."""
    fields: KernelFields = {"rows": len(rows), "N": rows.shape[1], "H": columns, "a": rows}
    fields |= {"matrix": packed_matrix.created["panels"], "product": NEW}
    job = _PRODUCT(rows.element_size()).job(fields)
    return job.created["product"], [packed_matrix, job]


def _score(
    kernel: BlockKernel, steps: int, fields: KernelFields, weights: Tensor | None, *layer: Tensor
) -> ScoreResult:
    """Pass h through a layer and score its outputs; `slope` is each row's gradient there."""
    h, weight, bias = layer
    rows, (N, H), grads = rows_of(h), weight.shape, None
    threads, row_weights = threads_for(len(rows)), weights
    if weights is not None:
        row_weights = weights if steps == 1 else weights.repeat_interleave(steps, 0)
        row_weights = row_weights.reshape(-1).contiguous()
    packing_job = packing(weight, transposed=True)
    scoring = kernel(h.element_size()).job(
        fields
        | {
            "rows": len(rows), "H": H, "N": N, "h": rows, "weight": packing_job.created["panels"],
            "bias": bias.contiguous(), "slope": NEW, "nats": NEW, "work": NEW, "threads": threads,
            "weights": row_weights,
        },
    )  # fmt: skip
    jobs, slope = [packing_job, scoring], scoring.created["slope"]
    if row_weights is not None:
        (d_h, d_weight), gradient_jobs = gradients(rows, weight, slope)
        jobs += gradient_jobs
    parallel_for(jobs, threads)
    if row_weights is not None:
        grads = d_h.view(h.shape), d_weight, slope.sum(0)
    nats = scoring.created["nats"].view(h.shape[:-1])
    if steps > 1:
        nats = nats.view(len(nats) // steps, steps, -1).sum(1)
    return nats, grads


class Nats(torch.autograd.Function):
    """See `nats_of`."""

    @staticmethod
    def forward(ctx: Any, score: Score, weights: Tensor | None, *inputs: Tensor | None) -> Tensor:
        """The nats, or their weighted sum; saves its gradients, which are known up to a factor."""
        nats, grads = score(weights, *inputs)
        ctx.score, ctx.weighted, ctx.input_count = score, grads is not None, len(inputs)
        ctx.save_for_backward(*(inputs if grads is None else grads))
        return nats if weights is None else torch.dot(nats.reshape(-1), weights.reshape(-1))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients with respect to what is given; those of separate nats need another pass."""
        grads = ctx.saved_tensors
        if not ctx.weighted:
            grads = ctx.score(gradient, *grads)[1]
        elif (factor := float(gradient)) != 1:
            grads = [d * factor for d in grads]
        return None, None, *grads, *[None] * (ctx.input_count - len(grads))


def nats_of(score: Score, weights: Tensor | None, *inputs: Tensor | None) -> Tensor:
    """The nats (...) of what is given, by a `Score`, or with weights (...) their weighted sum."""
    return Nats.apply(score, weights, *inputs)  # type: ignore[no-untyped-call]


class Layer(torch.autograd.Function):
    """h (N, D, H) -> W h + b (N, D, K), and h at the distinct indices `frames` (M,): (M, D, H).

    Both at once, so that their gradients add up without a pass over all of h for each.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, frames: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs, jobs = _product(rows_of(h), packing(weight, transposed=True), len(weight))
        parallel_for(jobs, threads_for(len(outputs)))
        ctx.save_for_backward(h, frames, weight)
        return outputs.add_(bias).view(*h.shape[:-1], -1), h.index_select(0, frames)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d: Tensor, d_frames: Tensor) -> tuple[Tensor | None, ...]:
        h, frames, weight = ctx.saved_tensors
        rows, slope = rows_of(h), rows_of(d)
        (d_h, d_weight), jobs = gradients(rows, weight, slope)
        parallel_for(jobs, threads_for(len(rows)))
        frame_gradients = d_h.view(h.shape).unbind()
        if len(frames):  # two to three times as fast as index_add_
            torch._foreach_add_([frame_gradients[k] for k in frames.tolist()], d_frames.unbind())
        return d_h.view(h.shape), None, d_weight, slope.sum(0)


def _write_product(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, N = f["H"], f["N"]
    a, product = e.offset(f["a"], e.mul(start, N)), e.offset(f["product"], e.mul(start, H))
    matmul(e, a, N, f["matrix"], product, H, rows, N, H, False)


_PRODUCT = block_kernel(
    Signature(
        "rows_product",
        ("rows", "H", "N"),
        (Array("product", ("rows", "H")), packed("matrix", "N", "H"), Array("a", ("rows", "N"))),
    ),
    _write_product,
)
