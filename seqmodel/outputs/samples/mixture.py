"""Code generation for a mixture's nats and their slopes, vectorised over the components."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters (R, K) of a mixture of K components; the first row holds the logits.

    With energy_k = -log p_k, p_k being the components' likelihoods, the nats are
    logsumexp(logit) - logsumexp(logit - energy).
    """

    e: Emitter
    values: Any
    """The address of a layer's outputs, which the nats' slopes overwrite."""
    bias: Any
    """The address of the layer's bias."""
    rows: Any
    components: Any
    energies: Any
    """The address of scratch space for K numbers."""

    def nats(self, energy: Callable[[Any, Any], Vector]) -> Vector:
        """The nats, in every lane.

        `energy(k, lanes)` computes the energies of the components from k on, and overwrites their
        parameters, except the logits, with the energies' slopes, using `put`.
        """
        e, lowest = self.e, self.e.constant(-math.inf)
        highest = [lowest, lowest]
        with self._each(highest) as (k, lanes, inside):
            logits, energies = self.get(0, k, lanes), energy(k, lanes)
            self.put(logits, 0, k, lanes)
            e.store(energies.value, e.offset(self.energies, k), lanes)
            for n, exponent in enumerate((logits, logits - energies)):
                candidate = Vector(e, e.builder.select(lanes.mask, exponent.value, lowest))
                inside[n] = Vector(e, inside[n]).maximum(candidate).value
        peaks = [Vector(e, value).over_lanes(Vector.maximum) for value in highest]
        some_energy = Vector(e, e.broadcast(self.energies))
        sums = [e.zero(), e.zero()]
        with self._each(sums) as (k, lanes, inside):
            for n, weight in enumerate(self._weights(peaks, k, lanes)):
                inside[n] = (Vector(e, inside[n]) + weight.masked(lanes)).value
        totals = [Vector(e, value).over_lanes(Vector.__add__) for value in sums]
        with self._each([]) as (k, lanes, _):
            after = Vector(e, e.load(e.offset(self.energies, k), lanes)) / totals[1]
            self.put(self._value(0, k, lanes) / totals[0] - after, 0, k, lanes)
            with e.loop(1, self.rows) as row:
                self.put(self._value(row, k, lanes) * after, row, k, lanes)
        nats = peaks[0] - peaks[1] + (totals[0] / totals[1]).log()
        # If no energy is finite, peaks and totals mean nothing: the nats are infinite, or nan.
        return nats.replaced(peaks[1], "==", -math.inf, some_energy)

    def get(self, row: Any, k: Any, lanes: Any) -> Vector:
        """Parameters of one row, including the bias."""
        bias = self.e.offset(self.bias, self.e.mul(row, self.components), k)
        return self._value(row, k, lanes) + Vector(self.e, self.e.load(bias, lanes))

    def put(self, value: Vector, row: Any, k: Any, lanes: Any) -> None:
        """Replace parameters of one row."""
        self.e.store(value.value, self._place(row, k), lanes)

    @contextmanager
    def _each(self, values: list[Any]) -> Iterator[tuple[Any, Any, list[Any]]]:
        """A loop over the components, a vector at a time."""
        e = self.e
        with e.carrying(0, self.components, e.lanes, values) as (k, inside):
            yield k, e.first_lanes(e.builder.sub(self.components, k)), inside

    def _weights(self, peaks: list[Vector], k: Any, lanes: Any) -> tuple[Vector, Vector]:
        """The exponentials of both exponents less their peaks, replacing logits and energies."""
        e, place = self.e, self.e.offset(self.energies, k)
        logits, energies = self._value(0, k, lanes), Vector(e, e.load(place, lanes))
        before, after = (logits - peaks[0]).exp(), (logits - energies - peaks[1]).exp()
        self.put(before, 0, k, lanes)
        e.store(after.value, place, lanes)
        return before, after

    def _value(self, row: Any, k: Any, lanes: Any) -> Vector:
        return Vector(self.e, self.e.load(self._place(row, k), lanes))

    def _place(self, row: Any, k: Any) -> Any:
        return self.e.offset(self.values, self.e.mul(row, self.components), k)


def log_and_inverse(scale: Vector, log_scale: Vector, floor: Vector) -> tuple[Vector, Vector]:
    """log(floor + scale) and 1 / (floor + scale), where `scale` is exp(log_scale)."""
    total = scale + floor
    one = Vector(scale.to, scale.to.constant(1.0))
    # Where exp is clamped, the floor is far below the last digit.
    limit = 0.9 * scale.to.precision.largest
    return total.log().replaced(log_scale, ">", limit, log_scale), one / total
