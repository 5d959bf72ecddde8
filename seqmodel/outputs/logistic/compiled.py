"""Single samples from discretised logistics, compiled: the score, in one pass, and the draw.

In the score each lane is a sample: components are few, and would fill a vector less well.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import pack
from seqmodel.kernels.run.calls import Slot
from seqmodel.kernels.run.signature import NEW, Array, packed, per_thread
from seqmodel.outputs.linear_score import likelihood, linear_nats, threads_for
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples.blocks import (
    HIGHEST,
    LEAST_FINE,
    LEVELS,
    LOWEST,
    STEP,
    UNIFORM,
    SampleBlocksOutput,
)
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, draw_signature
from seqmodel.outputs.samples.mixture import log_and_inverse

WORK = "4 * K * LANES"
"""The length of `Mixtures.work`."""


class Units(NamedTuple):
    """What offsets and scales are measured in."""

    unit: Vector
    """The size of the prediction's errors."""
    log_unit: Vector
    floor: Vector
    """The smallest scale."""


class Grid(NamedTuple):
    """Levels that are equally far apart."""

    step: Vector
    """Between levels, in the mixture's units."""
    log_step: Vector
    highest: Vector
    """The highest level, raw."""


class Coarse(NamedTuple):
    """A coarser grid that samples may keep to, and what it costs that they may not."""

    grid: Grid
    holds: Any
    """Whether there is one and the sample is on it, as bits."""
    cost: Vector
    """-log of its weight."""
    fine_cost: Vector
    """-log of the weight of all levels."""


@dataclass(frozen=True)
class Mixtures:
    """The parameters of as many samples as there are lanes: logits, offsets, log scales."""

    e: Emitter
    outputs: Any
    """The address of a layer's outputs (count, 3 K), which the nats' slopes overwrite."""
    bias: Any
    """The address of the layer's bias (3 K,)."""
    components: Any
    count: Any
    """Of the samples; what other lanes hold is not written."""
    work: Any
    """The address of scratch space, for four vectors per component."""

    def nats(
        self, error: Vector, raw: Vector, units: Units, grid: Grid, coarse: Coarse | None = None
    ) -> Vector:
        """The nats of the samples' levels; see `probability.mixed`.

        `error` is the sample less the prediction that the offsets start from, `raw` the sample.
        With energy_k = -log p_k, they are logsumexp(logit) - logsumexp(logit - energy), but for the
        uniform share.
        """
        e, K, peaks = self.e, self.components, [self.e.constant(-math.inf)] * 2
        with e.carrying(0, K, 1, peaks) as (k, inside):
            logit, offset, log_scale = (self._parameter(row, k) for row in range(3))
            energy, *slopes = _energy(offset, log_scale, error, raw, units, grid, coarse)
            self._keep(k, logit, logit - energy, *slopes)
            for n, exponent in enumerate((logit, logit - energy)):
                inside[n] = Vector(e, inside[n]).maximum(exponent).value
        before, after = (Vector(e, peak) for peak in peaks)
        some = self._kept(0)[1] * -1.0
        sums = [e.zero(), e.zero()]
        with e.carrying(0, K, 1, sums) as (k, inside):
            logit, exponent, *slopes = self._kept(k)
            weights = (logit - before).exp(), (exponent - after).exp()
            self._keep(k, *weights, *slopes)
            for n, weight in enumerate(weights):
                inside[n] = (Vector(e, inside[n]) + weight).value
        total_before, total_after = (Vector(e, value) for value in sums)
        nats = before - after + (total_before / total_after).log()
        # If no energy is finite, peaks and totals mean nothing: the nats are infinite, or nan.
        nats = nats.replaced(after, "==", -math.inf, some)
        nats, share = _with_uniform(nats)
        with e.loop(0, K) as k:
            weight_before, weight_after, *slopes = self._kept(k)
            weight_after = weight_after / total_after * share
            put = weight_before / total_before * share - weight_after
            for row, slope in enumerate((put, *(slope * weight_after for slope in slopes))):
                place = e.offset(self.outputs, e.mul(K, row), k)
                e.scatter(slope.value, place, e.mul(K, 3), self.count)
        return nats

    def _parameter(self, row: int, k: Any) -> Vector:
        e, column = self.e, self.e.add(self.e.mul(self.components, row), k)
        output = e.gather(e.offset(self.outputs, column), e.mul(self.components, 3), self.count)
        return Vector(e, output) + Vector(e, e.broadcast(e.offset(self.bias, column)))

    def _keep(self, k: Any, *vectors: Vector) -> None:
        for n, vector in enumerate(vectors):
            self.e.store(vector.value, self._place(k, n))

    def _kept(self, k: Any) -> list[Vector]:
        return [Vector(self.e, self.e.load(self._place(k, n))) for n in range(4)]

    def _place(self, k: Any, n: int) -> Any:
        return self.e.offset(self.work, self.e.mul(k, 4 * self.e.lanes), n * self.e.lanes)


def _with_uniform(nats: Vector) -> tuple[Vector, Vector]:
    """The nats of mixtures that leave a share to all levels alike, and what slopes shrink to."""
    e = nats.to
    nats, most = nats + -math.log1p(-UNIFORM), -math.log(UNIFORM / LEVELS)
    # Elsewhere the uniform distribution is below the last digit, and the mixture has all slope.
    counts = most - (e.precision.mantissa + 2) * math.log(2)
    soft, share = (nats * -1.0 + most).softplus()
    whole = Vector(e, e.constant(1.0))
    found = nats.where(">", counts, soft * -1.0 + most)
    return found, whole.replaced(nats, ">", counts, share)


def _energy(
    offset: Vector,
    log_scale: Vector,
    error: Vector,
    raw: Vector,
    units: Units,
    grid: Grid,
    coarse: Coarse | None,
) -> tuple[Vector, Vector, Vector]:
    """-log of a component's probability of the samples' levels, and its slopes."""
    unit, log_unit, floor = units
    log_scale = log_scale + log_unit
    scale = log_scale.exp()
    log_total, inverse = log_and_inverse(scale, log_scale, floor)
    scaled = (error - unit * offset) * inverse
    nats = _level(grid, raw, scaled, inverse, log_total)
    if coarse is not None:
        nats = _with_coarse(nats, coarse, raw, scaled, inverse, log_total)
    total, by_error, by_scale = nats
    return total, by_error * inverse * unit, by_scale * (scale * inverse)


def _with_coarse(
    nats: tuple[Vector, Vector, Vector], coarse: Coarse, *level: Vector
) -> tuple[Vector, Vector, Vector]:
    """The nats of a level and their slopes, where it may also be one of a coarser grid."""
    e = coarse.cost.to
    fine = nats[0] + coarse.fine_cost, *nats[1:]
    found = [part.value for part in fine]
    with e.when(any_of(e, coarse.holds), found) as inside:
        other = _level(coarse.grid, *level)
        gain, share = (fine[0] - other[0] - coarse.cost).softplus()
        both = (
            fine[0] - gain,
            *(a + (b - a) * share for a, b in zip(fine[1:], other[1:], strict=True)),
        )
        inside[:] = [
            e.builder.select(coarse.holds, new.value, old)
            for new, old in zip(both, inside, strict=True)
        ]
    return Vector(e, found[0]), Vector(e, found[1]), Vector(e, found[2])


def any_of(e: Emitter, bits: Any) -> Any:
    """Whether any lane's bit is set."""
    together = ir.IntType(e.lanes)
    return e.builder.icmp_unsigned("!=", e.builder.bitcast(bits, together), together(0))


def _level(
    grid: Grid, raw: Vector, error: Vector, inverse: Vector, log_scale: Vector
) -> tuple[Vector, Vector, Vector]:
    """-log P of a level, less its slopes with respect to the mean and the log of the scale.

    The `error` is in units of the scale, `inverse` is one over the scale.
    """
    above_highest = raw - grid.highest

    def but_highest(value: Vector) -> Vector:
        """`value`, or 0 at the highest level."""
        return value.replaced(above_highest, ">=", 0.0, 0.0)

    def but_lowest(value: Vector) -> Vector:
        """`value`, or 0 at the lowest level."""
        return value.replaced(raw, "<=", LOWEST * STEP, 0.0)

    half = grid.step * 0.5 * inverse
    below, below_slope = map(but_highest, ((error + half) * -1.0).softplus())  # -log s(b)
    above, above_slope = map(but_lowest, (error - half).softplus())  # -log s(-a)
    width = grid.step * inverse
    power, rest = (width * -1.0).exp_parts()
    less_one = power * rest + (power - 1.0)  # exp(-w) - 1, exact near zero
    ratio = less_one * -1.0 / width
    within = but_highest(but_lowest(grid.log_step - log_scale + ratio.log()))
    within_slope = but_highest(but_lowest((less_one + 1.0) / ratio))
    by_scale = (
        error * (below_slope - above_slope) + half * (below_slope + above_slope) + within_slope
    )
    return below + above - within, below_slope - above_slope, by_scale


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
