"""The Bernoulli output's likelihood straight from h, in one compiled pass each way.

The plain path reads and writes the logits a dozen times; here a block of rows stays in the nearest
cache from the product to the nats, and the loss's gradient is computed where the logits stood.
"""

from collections.abc import Mapping
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.cpu import memory, team
from seqmodel.cpu.emit import INT, POINTER, Emitter
from seqmodel.cpu.jit import compiled_once, function
from seqmodel.cpu.outer import outer
from seqmodel.cpu.product import Product, pack
from seqmodel.cpu.team import Kernel, compile_kernels, thread_count
from seqmodel.cpu.vectors import Vector

_BLOCK = 32  # rows; their logits stay in the nearest cache
_SIZES = ("rows", "H", "D")
_ADDRESSES = (
    "h", "d_h",  # (rows, H)
    "weight",  # packed
    "bias", "sums",  # (D,), (threads, D)
    "frames",  # (rows, D)
    "slope",  # (rows, D): the gradient of a row's nats
    "scaled",  # (rows, D): the gradient of the loss
    "nats", "d_nats",  # (rows,)
)  # fmt: skip
_FIELDS = _SIZES + _ADDRESSES


class BernoulliNats(torch.autograd.Function):
    """h (T, B, H), weight (D, H), bias (D,), frames (T, B, D) of 0 and 1 -> nats (T, B)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor) -> Tensor:
        """The logits' nats; their slopes are kept."""
        (T, B, H), D = h.shape, len(weight)
        h = h.contiguous()
        slope = memory.recycled(h, T * B, D)
        nats = memory.buffer(h, T, B)
        _run(
            "forward", h,
            {
                "rows": T * B, "H": H, "D": D, "h": h, "weight": pack(weight.t()),
                "bias": bias.contiguous(), "frames": frames.contiguous(), "slope": slope,
                "nats": nats,
            },
        )  # fmt: skip
        ctx.save_for_backward(h, weight, slope)
        return nats

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_nats: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of h, weight and bias."""
        h, weight, slope = ctx.saved_tensors
        rows, (D, H) = len(slope), weight.shape
        d_h = memory.buffer(h, *h.shape)
        scaled = memory.recycled(h, rows, D)
        sums = h.new_zeros(_threads(rows), D)
        _run(
            "backward", h,
            {
                "rows": rows, "H": H, "D": D, "d_h": d_h, "weight": pack(weight), "sums": sums,
                "slope": slope, "scaled": scaled, "d_nats": d_nats.contiguous(),
            },
        )  # fmt: skip
        d_weight = memory.buffer(weight, D, H)
        outer(scaled, h.view(rows, H), d_weight)
        return d_h, d_weight, sums.sum(0), None


def _threads(rows: int) -> int:
    return thread_count(-(-rows // _BLOCK))


def _run(kernel: str, h: Tensor, fields: Mapping[str, int | Tensor]) -> None:
    values = [fields.get(name, 0) for name in _FIELDS]
    numbers = [v if isinstance(v, int) else v.data_ptr() for v in values]
    rows = h.numel() // h.shape[-1]
    team.share_out(_kernels(h.element_size())[kernel], numbers, _threads(rows))


@compiled_once
def _kernels(itemsize: int) -> dict[str, Kernel]:
    module = ir.Module("bernoulli")
    multiply = Product.of(module, itemsize)
    for name, write in (("forward", _write_forward), ("backward", _write_backward)):
        with function(module, name, [POINTER, INT, INT], itemsize) as (e, fields, *share):
            f = {}
            for k, field in enumerate(_FIELDS):
                place = e.builder.gep(fields, [e.int(k)], source_etype=INT)
                f[field] = e.builder.load(place, typ=INT if field in _SIZES else POINTER)
            _blocks(e, f, share, multiply, write)
    return compile_kernels(module, ("forward", "backward"))


def _blocks(e: Emitter, f: dict[str, Any], share: list[Any], multiply: Product, write: Any) -> None:
    """`write` a body for each block of rows of the thread's share."""
    b, (thread, threads) = e.builder, share
    f["sums"] = e.offset(f["sums"], e.mul(thread, f["D"]))
    blocks = b.sdiv(e.add(f["rows"], _BLOCK - 1), e.int(_BLOCK))
    first = b.sdiv(e.mul(blocks, thread), threads)
    last = b.sdiv(e.mul(blocks, e.add(thread, 1)), threads)
    with e.loop(first, last) as block:
        start = e.mul(block, _BLOCK)
        left = b.sub(f["rows"], start)
        rows = b.select(b.icmp_signed("<", left, e.int(_BLOCK)), left, e.int(_BLOCK))
        write(e, f, multiply, start, rows)


def _write_forward(e: Emitter, f: dict[str, Any], multiply: Product, start: Any, rows: Any) -> None:
    H, D = f["H"], f["D"]
    logits = e.offset(f["slope"], e.mul(start, D))
    h = e.offset(f["h"], e.mul(start, H))
    multiply(e, h, H, f["weight"], logits, D, rows, H, D, False)
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, D)
        total = [e.zero()]
        with e.carrying(0, D, e.lanes, total) as (j, inside):
            lanes = e.first_lanes(e.builder.sub(D, j))
            place = e.offset(f["slope"], row, j)
            bias = Vector(e, e.load(e.offset(f["bias"], j), lanes))
            x = Vector(e, e.load(e.offset(f["frames"], row, j), lanes))
            # A note that sounds costs what its silence would at the opposite logit. Taken so, a
            # sure model's nats and slopes keep all their digits.
            sign = 1.0 - x * 2.0
            nats, probability = ((Vector(e, e.load(place, lanes)) + bias) * sign).softplus()
            e.store((sign * probability).value, place, lanes)
            inside[0] = (Vector(e, inside[0]) + nats.masked(lanes)).value
        e.builder.store(e.sum(total[0]), e.offset(f["nats"], r))


def _write_backward(
    e: Emitter, f: dict[str, Any], multiply: Product, start: Any, rows: Any
) -> None:
    H, D = f["H"], f["D"]
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, D)
        weight = Vector(e, e.broadcast(e.offset(f["d_nats"], r)))

        def scale(j: Any, lanes: Any, row: Any = row, weight: Vector = weight) -> None:
            scaled = Vector(e, e.load(e.offset(f["slope"], row, j), lanes)) * weight
            e.store(scaled.value, e.offset(f["scaled"], row, j), lanes)
            place = e.offset(f["sums"], j)
            e.store((Vector(e, e.load(place, lanes)) + scaled).value, place, lanes)

        e.columns(D, scale)
    scaled = e.offset(f["scaled"], e.mul(start, D))
    d_h = e.offset(f["d_h"], e.mul(start, H))
    multiply(e, scaled, D, f["weight"], d_h, H, rows, D, H, False)
