"""The compiled nats of mixtures, whatever their components are."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.run.signature import of_thread

WORK = "4 * K * LANES"
"""The scratch space of likelihoods of mixtures, in numbers."""


class Mixture:
    """Parameters (rows, K) of mixtures of K components; the first row holds the logits.

    With energy_k = -log p_k, where p_k are the components' likelihoods, the nats are
    logsumexp(logit) - logsumexp(logit - energy).

    If components are many, they fill the vectors, one mixture at a time; if they are few, as many
    mixtures as there are lanes are computed at once.
    """

    def __init__(self, e: Emitter, f: dict[str, Any], r: Any, rows: Any, count: Any = None) -> None:
        """The mixtures at row `r` of a likelihood's fields; their slopes overwrite them.

        `count` is the number of mixtures, one in each lane; other lanes are not written. None:
        components fill the lanes.
        """
        self.e, self.rows, self.count, self.components = e, rows, count, f["K"]
        self.outputs, self.bias = e.offset(f["slope"], e.mul(r, f["N"])), f["bias"]
        self.work = of_thread(e, f, "work", f["thread"])

    def nats(
        self,
        energy: Callable[[Any, Any], tuple[Vector, ...]],
        finish: Callable[[Vector], tuple[Vector, Vector]] | None = None,
    ) -> Vector:
        """The nats; in every lane, if components fill the vectors.

        `energy(k, lanes)` computes the energies of the components from k on, and their slopes with
        respect to row 1, 2 and so on; it puts the slopes of further rows in place of the
        parameters. `finish` maps the nats to the final nats and a factor on the slopes.
        """
        e, lowest = self.e, self.e.constant(-math.inf)
        peaks = [lowest, lowest]
        with self._loop(peaks) as (k, lanes, inside):
            logit, (component_energy, *slopes) = self.parameter(0, k, lanes), energy(k, lanes)
            exponents = logit, logit - component_energy
            self._store_work(k, *exponents, *slopes)
            for n, exponent in enumerate(exponents):
                value = exponent.value
                active = e.builder.select(lanes.mask, value, lowest) if lanes else value
                inside[n] = Vector(e, inside[n]).maximum(Vector(e, active)).value
        before, after = self._over_lanes(peaks, Vector.maximum)
        fallback = self._over_first(self._load_work(0, 2)[1]) * -1.0
        sums = [e.zero(), e.zero()]
        with self._loop(sums) as (k, lanes, inside):
            logit, exponent, *rest = self._load_work(k, 2 + len(slopes))
            weights = (logit - before).exp(), (exponent - after).exp()
            self._store_work(k, *weights, *rest)
            for n, weight in enumerate(weights):
                active = weight.masked(lanes) if lanes else weight
                inside[n] = (Vector(e, inside[n]) + active).value
        total_before, total_after = self._over_lanes(sums, Vector.__add__)
        nats = before - after + (total_before / total_after).log()
        # If no energy is finite, peaks and totals are meaningless: the nats are infinite, or nan.
        nats, slope_factor = nats.replaced(after, "==", -math.inf, fallback), None
        if finish is not None:
            nats, slope_factor = finish(nats)
        with self._loop([]) as (k, lanes, _):
            prior, weight, *rest = self._load_work(k, 2 + len(slopes))
            prior, weight = prior / total_before, weight / total_after
            if slope_factor is not None:
                prior, weight = prior * slope_factor, weight * slope_factor
            self.put(prior - weight, 0, k, lanes)
            for row, slope in enumerate(rest, 1):
                self.put(slope * weight, row, k, lanes)
            with e.loop(1 + len(slopes), self.rows) as row:
                self.put(self._output(row, k, lanes) * weight, row, k, lanes)
        return nats

    def parameter(self, row: Any, k: Any, lanes: Any) -> Vector:
        """Parameters of one row, including the bias."""
        bias = self.e.offset(self.bias, self.e.mul(row, self.components), k)
        by_lanes = self.count is None
        value = self.e.load(bias, lanes) if by_lanes else self.e.broadcast(bias)
        return self._output(row, k, lanes) + Vector(self.e, value)

    def put(self, value: Vector, row: Any, k: Any, lanes: Any) -> None:
        """Replace parameters of one row."""
        if self.count is None:
            self.e.store(value.value, self._address(row, k), lanes)
        else:
            stride = self.e.mul(self.rows, self.components)
            self.e.scatter(value.value, self._address(row, k), stride, self.count)

    def _output(self, row: Any, k: Any, lanes: Any) -> Vector:
        if self.count is None:
            return Vector(self.e, self.e.load(self._address(row, k), lanes))
        stride = self.e.mul(self.rows, self.components)
        return Vector(self.e, self.e.gather(self._address(row, k), stride, self.count))

    def _address(self, row: Any, k: Any) -> Any:
        return self.e.offset(self.outputs, self.e.mul(row, self.components), k)

    @contextmanager
    def _loop(self, values: list[Any]) -> Iterator[tuple[Any, Any, list[Any]]]:
        """A loop over the components, or vectors of them, with the lanes that they fill."""
        e, by_lanes = self.e, self.count is None
        with e.carrying(0, self.components, e.lanes if by_lanes else 1, values) as (k, inside):
            remaining = e.builder.sub(self.components, k) if by_lanes else None
            yield k, e.first_lanes(remaining) if by_lanes else None, inside

    def _over_lanes(self, values: list[Any], combine: Any) -> list[Vector]:
        vectors = [Vector(self.e, value) for value in values]
        return [one.over_lanes(combine) if self.count is None else one for one in vectors]

    def _over_first(self, value: Vector) -> Vector:
        """The first component's value, in all of its mixture's lanes."""
        if self.count is not None:
            return value
        first = self.e.builder.extract_element(value.value, self.e.int(0))
        return Vector(self.e, self.e.splat(first, self.e.vector))

    def _store_work(self, k: Any, *vectors: Vector) -> None:
        for n, vector in enumerate(vectors):
            self.e.store(vector.value, self._work_address(k, n))

    def _load_work(self, k: Any, count: int) -> list[Vector]:
        return [Vector(self.e, self.e.load(self._work_address(k, n))) for n in range(count)]

    def _work_address(self, k: Any, n: int) -> Any:
        lanes = self.e.lanes
        return self.e.offset(self.work, self.e.mul(k, 4 * lanes), n * lanes)


def log_and_inverse(scale: Vector, log_scale: Vector, floor: Vector) -> tuple[Vector, Vector]:
    """log(floor + scale) and 1 / (floor + scale), where `scale` is exp(log_scale)."""
    total = scale + floor
    # Where exp is clamped, the floor is far below the last digit.
    limit = 0.9 * scale.e.precision.largest
    return total.log().replaced(log_scale, ">", limit, log_scale), 1.0 / total
