"""What compiled scores of a linear layer's outputs share: all but the likelihood itself.

Rows of h go through the layer a block at a time; a row's nats are computed while its outputs are in
the nearest cache, and the nats' slope is left where the outputs stood. The backward pass, which is
the same for every likelihood, is here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.folding import folding, tables_apart
from seqmodel.kernels.linear.outer import outer
from seqmodel.kernels.linear.packing import packing
from seqmodel.kernels.linear.product import Product
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.team import Job, Kernel, compile_kernels, share_out, thread_count

_BLOCK = 16  # rows


def threads_for(rows: int) -> int:
    """How many threads share so many rows."""
    return thread_count(-(-rows // _BLOCK))


@dataclass(frozen=True)
class BlockKernel:
    """A kernel that passes over rows a block at a time, the blocks shared out among threads."""

    name: str
    sizes: tuple[str, ...]
    """Fields that hold a number, "rows" among them."""
    addresses: tuple[str, ...]
    """Fields that hold the address of a tensor."""
    write: Callable[[Emitter, dict[str, Any], Product, Any, Any], None]
    """Writes the body: (emitter, fields, product, the block's first row, how many rows).

    "thread" among the fields is the number of the thread.
    """
    begin: Callable[[Emitter, dict[str, Any]], None] = lambda e, fields: None
    """Writes what a thread does before its first block: (emitter, fields)."""

    def job(self, itemsize: int, fields: Mapping[str, int | Tensor]) -> Job:
        """The pass over all rows."""
        return Job(
            _compiled(self, itemsize), [fields[name] for name in (*self.sizes, *self.addresses)]
        )


@compiled_once
def _compiled(kernel: BlockKernel, itemsize: int) -> Kernel:
    module = ir.Module(kernel.name)
    multiply = Product.of(module, itemsize)
    arguments = [POINTER, INT, INT]
    with function(module, kernel.name, arguments, itemsize) as (e, fields, thread, threads):
        b, f = e.builder, e.fields(fields, kernel.sizes, kernel.addresses)
        f["thread"] = thread
        kernel.begin(e, f)
        blocks = b.sdiv(e.add(f["rows"], _BLOCK - 1), e.int(_BLOCK))
        first, last = e.share(blocks, thread, threads)
        with e.loop(first, last) as block:
            start = e.mul(block, _BLOCK)
            left = b.sub(f["rows"], start)
            rows = b.select(b.icmp_signed("<", left, e.int(_BLOCK)), left, e.int(_BLOCK))
            kernel.write(e, f, multiply, start, rows)
    return compile_kernels(module, (kernel.name,))[kernel.name]


class Gradients(NamedTuple):
    """The gradients of a linear layer, once the jobs have run."""

    h: Tensor
    """(..., H)"""
    weight: Tensor
    """(N, H)"""
    bias: Tensor
    """(N,)"""
    outputs: Tensor
    """(rows, N)"""
    jobs: list[Job]


def gradients(h: Tensor, weight: Tensor, slope: Tensor, d_nats: Tensor) -> Gradients:
    """The gradients of h (..., H), weight (N, H), bias (N,) and of the layer's outputs.

    `slope` (rows, N) is the gradient of each row's nats by the outputs.
    """
    rows, (N, H) = len(slope), weight.shape
    threads = threads_for(rows)
    d_h, d_weight = memory.buffer(h, *h.shape), memory.buffer(weight, N, H)
    scaled = memory.large_buffer(h, rows, N)
    sums, d_bias = tables_apart(h, threads, N), memory.buffer(h, N)
    packed, packing_weight = packing(weight)
    backward = _BACKWARD.job(
        h.element_size(),
        {
            "rows": rows, "H": H, "N": N, "d_h": d_h, "weight": packed, "sums": sums,
            "slope": slope, "scaled": scaled, "d_nats": d_nats.contiguous(),
        },
    )  # fmt: skip
    to_weight = outer(scaled, h.view(rows, H), d_weight, threads)
    jobs = [packing_weight, backward, *to_weight, folding(sums, d_bias.view(N, 1))]
    return Gradients(d_h, d_weight, d_bias, scaled, jobs)


class LinearNats(torch.autograd.Function):
    """What scores have in common: their backward pass.

    The forward pass takes h (..., H), weight, bias and what else it needs, and saves h, the weight
    and the slope of each row's nats by the layer's outputs.
    """

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_nats: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of h, weight and bias."""
        h, weight, slope = ctx.saved_tensors
        d = gradients(h, weight, slope, d_nats)
        share_out(d.jobs, threads_for(len(slope)))
        return d.h, d.weight, d.bias, *[None] * (len(ctx.needs_input_grad) - 3)


def _write_backward(
    e: Emitter, f: dict[str, Any], multiply: Product, start: Any, rows: Any
) -> None:
    H, N = f["H"], f["N"]
    sums = _sums(e, f)
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, N)
        weight = Vector(e, e.broadcast(e.offset(f["d_nats"], r)))

        def scale(j: Any, lanes: Any, row: Any = row, weight: Vector = weight) -> None:
            scaled = Vector(e, e.load(e.offset(f["slope"], row, j), lanes)) * weight
            e.store(scaled.value, e.offset(f["scaled"], row, j), lanes)
            place = e.offset(sums, j)
            e.store((Vector(e, e.load(place, lanes)) + scaled).value, place, lanes)

        e.columns(N, scale)
    scaled = e.offset(f["scaled"], e.mul(start, N))
    d_h = e.offset(f["d_h"], e.mul(start, H))
    multiply(e, scaled, N, f["weight"], d_h, H, rows, N, H, False)


def _sums(e: Emitter, f: dict[str, Any]) -> Any:
    return e.offset(f["sums"], e.mul(f["thread"], e.apart(f["N"])))


_BACKWARD = BlockKernel(
    "linear_backward",
    ("rows", "H", "N"),
    (
        "d_h",  # (rows, H)
        "weight",  # packed
        "sums",  # (N,) of each thread apart
        "slope", "scaled",  # (rows, N): the gradient of a row's nats, and that of the loss
        "d_nats",  # (rows,)
    ),
    _write_backward,
    lambda e, f: e.clear(_sums(e, f), f["N"]),
)  # fmt: skip
