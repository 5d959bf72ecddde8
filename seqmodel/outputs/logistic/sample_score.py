"""The compiled score of single samples: from rows of h to nats in one pass."""

import math
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.run.signature import NEW, Array, KernelFields, Signature, packed, per_thread
from seqmodel.outputs import linear_score
from seqmodel.outputs.linear_score import BlockKernel, LinearNats, WeightedNats
from seqmodel.outputs.logistic.nats import WORK, Coarse, Grid, Mixtures, Units, any_of
from seqmodel.outputs.samples.blocks import HIGHEST, LEAST_FINE, STEP


class SampleLogisticNats(LinearNats):
    """h (..., H), weight (3 K, H), bias, raw samples (...), the floor -> nats (...).

    See `sample_wise.SampleLogisticOutput` for what the last numbers of a row of h are.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, floor: float
    ) -> Tensor:
        """The nats; saves their gradient with respect to the layer's outputs."""
        fields = _fields(weight, samples, floor)
        return SampleLogisticNats.score(ctx, _FORWARD, h, weight, bias, **fields)


class WeightedSampleLogisticNats(WeightedNats):
    """Like `SampleLogisticNats`, with weights (...) -> the weighted sum of the nats."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
        """The sum; saves the gradients. The rest: samples, the floor, weights."""
        samples, floor, weights = rest
        fields = _fields(weight, samples, floor)
        return WeightedSampleLogisticNats.score(ctx, _FORWARD, h, weight, bias, weights, **fields)


def _fields(weight: Tensor, samples: Tensor, floor: float) -> KernelFields:
    """What the kernel reads besides the layer's."""
    samples = samples.reshape(-1).contiguous()
    return {
        "K": weight.shape[0] // 3, "samples": samples, "floor": weight.new_tensor([floor]),
        "work": NEW, "threads": linear_score.threads_for(len(samples)),
    }  # fmt: skip


def _write_forward(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, N, K = f["H"], f["N"], f["K"]
    h = e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["weight"], e.offset(f["slope"], e.mul(start, N)), N, rows, H, N, False)
    floor = Vector(e, e.broadcast(f["floor"]))
    step, log_step, highest = (
        Vector(e, e.constant(value)) for value in (STEP, math.log(STEP), HIGHEST * STEP)
    )
    grid = Grid(step, log_step, highest)
    with e.loop(0, rows, e.lanes) as done:
        r, count = e.add(start, done), e.builder.sub(rows, done)
        mixtures = Mixtures(
            e, e.offset(f["slope"], e.mul(r, N)), f["bias"], K, count,
            e.offset(f["work"], e.mul(f["thread"], e.padded(e.mul(K, 4 * e.lanes)))),
        )  # fmt: skip
        end, lanes = e.offset(f["h"], e.mul(e.add(r, 1), H)), e.first_lanes(count)
        certainty, spacing, anchor, level = (
            Vector(e, e.gather(e.offset(end, i), H, count)) for i in (-4, -3, -2, -1)
        )
        raw = Vector(e, e.load(e.offset(f["samples"], r), lanes))
        coarse = _coarse(e, certainty, spacing, raw)
        nats = mixtures.nats(raw - anchor, raw, Units(level, level.log(), floor), grid, coarse)
        e.store(nats.value, e.offset(f["nats"], r), lanes)


def _coarse(e: Emitter, certainty: Vector, spacing: Vector, raw: Vector) -> Coarse:
    """See `sample_wise.fine_share`; without a grid nothing is computed."""
    b = e.builder
    exists = b.fcmp_ordered(">", spacing.value, e.constant(STEP))
    none = [e.zero(), e.zero(), e.zero(), ir.Constant(exists.type, None)]
    with e.when(any_of(e, exists), none) as found:
        fine = (1.0 - certainty).where("<", LEAST_FINE, LEAST_FINE)
        fine = fine.replaced(spacing, "<=", STEP, 1.0)
        nearest = Vector(e, e.rounded((raw / spacing).value)) * spacing
        holds = b.and_(exists, b.fcmp_ordered("==", nearest.value, raw.value))
        logs = spacing.log(), (1.0 - fine).log() * -1.0, fine.log() * -1.0
        found[:] = *(value.value for value in logs), holds
    log_spacing, cost, fine_cost, holds = none
    grid = Grid(spacing, Vector(e, log_spacing), 1.0 - spacing)
    return Coarse(grid, holds, Vector(e, cost), Vector(e, fine_cost))


_FORWARD = BlockKernel(
    Signature(
        "sample_logistic_forward",
        ("rows", "H", "N", "K"),
        (
            Array("h", ("rows", "H")),
            packed("weight", "H", "N"),
            Array("bias", ("3 * K",)),
            Array("samples", ("rows",)),
            Array("floor", ("1",)),
            per_thread("work", WORK),
            Array("slope", ("rows", "N")),
            Array("nats", ("rows",)),
        ),
    ),
    _write_forward,
)
