"""The Bernoulli output's likelihood straight from h, in one compiled pass each way.

The plain path reads and writes the logits a dozen times; here a block of rows stays in the nearest
cache from the product to the nats, and the loss's gradient is computed where the logits stood.
"""

import math
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter, Lanes
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.packing import packing
from seqmodel.kernels.linear.product import Product
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.team import Job, share_out
from seqmodel.outputs.shared import linear_score as linear_cpu
from seqmodel.outputs.shared.linear_score import BlockKernel, LinearNats


class BernoulliNats(LinearNats):
    """h (..., H), weight (D, H), bias (D,), frames (..., D) of 0 and 1 -> nats (...)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor) -> Tensor:
        """The logits' nats; their slopes are kept."""
        h = h.contiguous()
        nats, slope, jobs = _nats(h, weight, bias, frames)
        share_out(jobs, linear_cpu.threads_for(len(slope)))
        ctx.save_for_backward(h, weight, slope)
        return nats


class WeightedBernoulliNats(torch.autograd.Function):
    """As `BernoulliNats`, with weights (...) -> the sum of the frames' nats times their weights.

    What flows back into the nats is known beforehand then, but for a factor, so that value and
    gradients are computed under one waking of the threads.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor, weights: Tensor
    ) -> Tensor:
        """The sum; the gradients are kept."""
        h = h.contiguous()
        nats, slope, jobs = _nats(h, weight, bias, frames)
        d = linear_cpu.gradients(h, weight, slope, weights)
        share_out([*jobs, *d.jobs], linear_cpu.threads_for(len(slope)))
        ctx.save_for_backward(d.h, d.weight, d.bias)
        return torch.dot(nats.view(-1), weights.reshape(-1))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of h, weight and bias."""
        factor = float(gradient)
        d_h, d_weight, d_bias = (d if factor == 1 else d * factor for d in ctx.saved_tensors)
        return d_h, d_weight, d_bias, None, None


def _nats(
    h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor
) -> tuple[Tensor, Tensor, list[Job]]:
    """The nats (...), their slopes (rows, D) by the logits, and the jobs that fill both."""
    *leading, H = h.shape
    rows, D = math.prod(leading), len(weight)
    slope, nats = memory.large_buffer(h, rows, D), memory.buffer(h, *leading)
    packed, packing_weight = packing(weight.t())
    forward = _FORWARD.job(
        h.element_size(),
        {
            "rows": rows, "H": H, "D": D, "h": h, "weight": packed, "bias": bias.contiguous(),
            "frames": frames.contiguous(), "slope": slope, "nats": nats,
        },
    )  # fmt: skip
    return nats, slope, [packing_weight, forward]


def _write_forward(e: Emitter, f: dict[str, Any], multiply: Product, start: Any, rows: Any) -> None:
    H, D = f["H"], f["D"]
    logits = e.offset(f["slope"], e.mul(start, D))
    h = e.offset(f["h"], e.mul(start, H))
    multiply(e, h, H, f["weight"], logits, D, rows, H, D, False)
    whole = e.builder.and_(D, e.int(-e.lanes))  # of the notes, in full vectors
    with e.loop(start, e.add(start, rows)) as r:
        total = [e.zero()]
        with e.carrying(0, whole, e.lanes, total) as (j, inside):
            nats = _write_notes(e, f, r, j, None)
            inside[0] = (Vector(e, inside[0]) + nats).value
        with e.carrying(whole, D, e.lanes, total) as (j, inside):
            lanes = e.first_lanes(e.builder.sub(D, j))
            nats = _write_notes(e, f, r, j, lanes).masked(lanes)
            inside[0] = (Vector(e, inside[0]) + nats).value
        e.builder.store(e.sum(total[0]), e.offset(f["nats"], r))


def _write_notes(e: Emitter, f: dict[str, Any], r: Any, j: Any, lanes: Lanes | None) -> Vector:
    """The nats of row r's notes from j on; their slopes are left where the logits stood."""
    row = e.mul(r, f["D"])
    place = e.offset(f["slope"], row, j)
    bias = Vector(e, e.load(e.offset(f["bias"], j), lanes))
    x = Vector(e, e.load(e.offset(f["frames"], row, j), lanes))
    # A note that sounds costs what its silence would at the opposite logit. Taken so, a sure
    # model's nats and slopes keep all their digits.
    sign = 1.0 - x * 2.0
    nats, probability = ((Vector(e, e.load(place, lanes)) + bias) * sign).softplus()
    e.store((sign * probability).value, place, lanes)
    return nats


_FORWARD = BlockKernel(
    "bernoulli_forward",
    ("rows", "H", "D"),
    (
        "h",  # (rows, H)
        "weight",  # packed
        "bias",  # (D,)
        "frames",  # (rows, D)
        "slope",  # (rows, D): the gradient of a row's nats
        "nats",  # (rows,)
    ),
    _write_forward,
)
