"""The Bernoulli output's score, compiled: from h to nats in one pass, and back in one pass.

The plain path reads and writes the logits a dozen times. Here a block of rows stays in the
first-level cache from the matrix product to the nats, and gradients overwrite the logits.
"""

import math
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.linear.matmul import MatMul
from seqmodel.kernels.linear.packing import packing
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.signature import Array, Signature, packed
from seqmodel.kernels.run.team import Job, parallel_for
from seqmodel.outputs.shared import linear_score
from seqmodel.outputs.shared.linear_score import BlockKernel, LinearNats
from seqmodel.outputs.shared.note_nats import write_nats, write_struck_nats


class BernoulliNats(LinearNats):
    """h (..., H), weight (D, H), bias (D,), frames (..., D) of 0 and 1 -> nats (...).

    Frames with onsets come with those before, past (..., D), others with None.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor, past: Tensor | None
    ) -> Tensor:
        """The nats; their slopes by the logits are saved."""
        h = h.contiguous()
        nats, slope, jobs = _nats(h, weight, bias, frames, past)
        parallel_for(jobs, linear_score.threads_for(len(slope)))
        ctx.save_for_backward(h, weight, slope)
        return nats


class WeightedBernoulliNats(torch.autograd.Function):
    """As `BernoulliNats`, with weights (...) -> the weighted sum of the frames' nats.

    Up to a factor the gradient of the nats is then known in advance, so that the value and all
    gradients are computed in one parallel section.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        frames: Tensor,
        weights: Tensor,
        past: Tensor | None,
    ) -> Tensor:
        """The sum; the gradients are saved."""
        h = h.contiguous()
        nats, slope, jobs = _nats(h, weight, bias, frames, past)
        d = linear_score.gradients(h, weight, slope, weights)
        parallel_for([*jobs, *d.jobs], linear_score.threads_for(len(slope)))
        ctx.save_for_backward(d.h, d.weight, d.bias)
        return torch.dot(nats.view(-1), weights.reshape(-1))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of h, weight and bias."""
        factor = float(gradient)
        d_h, d_weight, d_bias = (d if factor == 1 else d * factor for d in ctx.saved_tensors)
        return d_h, d_weight, d_bias, None, None, None


def _nats(
    h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor, past: Tensor | None
) -> tuple[Tensor, Tensor, list[Job]]:
    """The nats (...), their slopes by the logits (rows, D), and the jobs that compute both."""
    leading, (D, H) = h.shape[:-1], weight.shape
    rows = math.prod(leading)
    slope, nats = memory.large_buffer(h, rows, D), memory.buffer(h, *leading)
    panels, packing_weight = packing(weight.t())
    fields: dict[str, int | Tensor] = {
        "rows": rows, "H": H, "D": D, "h": h.view(rows, -1), "weight": panels,
        "bias": bias.contiguous(), "frames": frames.reshape(rows, -1).contiguous(),
        "slope": slope, "nats": nats.view(rows),
    }  # fmt: skip
    if past is None:
        forward = _FORWARD.job(h.element_size(), fields)
    else:
        fields["past"] = past.reshape(rows, -1).contiguous()
        forward = _ONSETS_FORWARD.job(h.element_size(), fields)
    return nats, slope, [packing_weight, forward]


def _write_forward(
    e: Emitter, f: dict[str, Any], matmul: MatMul, start: Any, rows: Any, *, onsets: bool
) -> None:
    H, D = f["H"], f["D"]
    notes = e.builder.lshr(D, e.int(1)) if onsets else D
    logits = e.offset(f["slope"], e.mul(start, D))
    h = e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["weight"], logits, D, rows, H, D, False)
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, D)
        logits, frame = e.offset(f["slope"], row), e.offset(f["frames"], row)
        places = {"bias": f["bias"], "slopes": logits}
        nats = write_nats(e, notes, logits, frame, **places)
        if onsets:
            past = e.offset(f["past"], row)
            struck = write_struck_nats(e, notes, logits, frame, past, **places)
            nats = e.builder.fadd(nats, struck)
        e.builder.store(nats, e.offset(f["nats"], r))


_SIZES = ("rows", "H", "D")
_ARRAYS = (
    Array("h", ("rows", "H")),
    packed("weight", "H", "D"),
    Array("bias", ("D",)),
    Array("frames", ("rows", "D")),
    Array("slope", ("rows", "D")),  # the gradient of a row's nats
    Array("nats", ("rows",)),
)
_FORWARD = BlockKernel(
    Signature("bernoulli_forward", _SIZES, _ARRAYS),
    lambda *args: _write_forward(*args, onsets=False),
)
_ONSETS_FORWARD = BlockKernel(
    Signature("bernoulli_onsets_forward", _SIZES, (*_ARRAYS, Array("past", ("rows", "D")))),
    lambda *args: _write_forward(*args, onsets=True),
)
