"""Single samples from discretised logistics, compiled: the score, in one pass, and the draw."""

import math
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Slot
from seqmodel.kernels.run.signature import NEW, Array, packed, per_thread
from seqmodel.outputs.linear_score import likelihood, linear_nats, threads_for
from seqmodel.outputs.logistic.nats import WORK, Coarse, Grid, Mixtures, Units, any_of
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples.blocks import HIGHEST, LEAST_FINE, STEP, SampleBlocksOutput
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, draw_signature


def sample_nats(
    output: SampleBlocksOutput, h: Tensor, samples: Tensor, weights: Tensor | None = None
) -> Tensor:
    """h (..., H), raw samples (...) -> nats (...); `weights` are those of `linear_nats`.

    See `sample_wise.SampleLogisticOutput` for what the last numbers of a row of h are.
    """
    weight, bias = output.linear.parameters()
    samples = samples.reshape(-1).contiguous()
    return linear_nats(
        _SCORE, h, weight, bias, weights, K=output.components, samples=samples,
        floor=weight.new_tensor([output.floor]), work=NEW, threads=threads_for(len(samples)),
    )  # fmt: skip


def _write_score(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, N, K = f["H"], f["N"], f["K"]
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


_SCORE = likelihood(
    "sample_logistic",
    ("K",),
    (Array("samples", ("rows",)), Array("floor", ("1",)), per_thread("work", WORK)),
    _write_score,
)
_DRAW = draw_signature(
    "sample_logistic_draw",
    (),
    (
        packed("weight", "H", "3 * K"),
        Array("bias", ("3 * K",)),
        Array("outputs", ("3 * K",)),
    ),
)


def sample_draw(output: SampleBlocksOutput, setting: DrawSetting) -> AudioDraw:
    """The draw of a sample from h (H,) or (1, H), which leaves it in x (1,)."""
    fields: dict[str, int | Tensor | Slot] = {
        "weight": pack(output.linear.weight), "bias": output.linear.bias.double(),
        "outputs": setting.arena.take(3 * output.components),
    }  # fmt: skip
    return AudioDraw(output, setting, _DRAW, fields, _write_draw, setting.temperature == 0)


def _write_draw(frame: SamplesWriter, at_zero: bool) -> None:
    e, f = frame.e, frame.field
    frame.affine(f["h"], f["H"], f["weight"], f["bias"], f["outputs"], e.mul(f["K"], 3))
    certainty, spacing, anchor, level = (
        frame.broadcast("h", e.add(f["H"], i)) for i in (-4, -3, -2, -1)
    )
    choice = frame.choice(1)  # by which the sample is drawn from single levels, or from the grid
    fine = (1.0 - certainty).where("<", LEAST_FINE, LEAST_FINE) - choice
    spacing = spacing.replaced(fine, ">", 0.0, STEP).where("<", STEP, STEP)
    factor = None
    if not at_zero:
        one = Vector(e, e.constant(1.0))
        usual, tempered = (
            _mean_size(frame, level, at) for at in (one, frame.constant("temperature"))
        )
        factor = usual / tempered
    _put_sample(frame, 0, anchor, level, factor=factor, spacing=spacing)


def _mean_size(frame: SamplesWriter, level: Vector, temperature: Vector) -> Vector:
    """See `probability.mean_size`; in all lanes."""
    e, K = frame.e, frame.field["K"]
    top = frame.highest("outputs")
    sums = [e.zero(), e.zero()]
    with e.carrying(0, K, e.lanes, sums) as (k, inside):
        lanes = e.first_lanes(e.builder.sub(K, k))
        logit, offset, log_scale = (
            frame.load("outputs", e.add(e.mul(K, row), k), lanes) for row in range(3)
        )
        scale = (log_scale.exp() * level + frame.constant("floor")) * temperature
        mean = offset * level
        size = mean.maximum(mean * -1.0)
        size = size + scale * 2.0 * (size * -1.0 / scale).softplus()[0]
        weight = ((logit - top) / temperature).exp().masked(lanes)
        for n, term in enumerate((weight, weight * size)):
            inside[n] = (Vector(e, inside[n]) + term).value
    total, weighted = (Vector(e, value).over_lanes(Vector.__add__) for value in sums)
    return weighted / total


def _put_sample(
    frame: SamplesWriter,
    j: Any,
    predicted: Vector,
    unit: Vector,
    *,
    factor: Vector | None = None,
    spacing: Vector | None = None,
) -> None:
    """Draw sample j around a prediction: the field `outputs` holds logits, offsets, log scales.

    The latter two are in units of `unit`; the deviation from the prediction is multiplied by
    `factor`; for `spacing` see `SamplesWriter.put`.
    """
    e, K = frame.e, frame.field["K"]
    component = frame.choose("outputs", j)
    offset, log_scale = (
        frame.broadcast("outputs", e.add(start, component)) for start in (K, e.mul(K, 2))
    )
    scale = log_scale.exp() * unit + frame.constant("floor")
    one = e.first_lanes(e.int(1))
    deviation = offset * unit + scale * frame.noise(j, one)
    frame.put(j, predicted + (deviation * factor if factor else deviation), one, spacing)
