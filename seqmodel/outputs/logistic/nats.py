"""Code generation for the nats of samples under mixtures of discretised logistics.

Each lane is a sample: components are few, and would fill a vector less well.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.outputs.samples.blocks import LEVELS, LOWEST, STEP, UNIFORM
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
