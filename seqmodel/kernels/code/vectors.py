"""Vectors with arithmetic operators, and the activations written with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import FUSE, Emitter, Lanes


def polynomial(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]], low: float, high: float, n: int
) -> list[float]:
    """Coefficients, degree 0 to n, interpolating at the Chebyshev nodes of [low, high]."""
    middle, half = (low + high) / 2, (high - low) / 2
    x = middle + half * np.cos(np.pi * (np.arange(n + 1) + 0.5) / (n + 1))
    scale = max(abs(low), abs(high))
    scaled = np.linalg.solve(np.vander(x / scale, increasing=True), function(x))
    return [float(c / scale**k) for k, c in enumerate(scaled)]


def _operator(
    op: str, *, swapped: bool = False
) -> Callable[["Vector", "Vector | float"], "Vector"]:
    def operate(self: "Vector", other: "Vector | float") -> "Vector":
        x, y = (self._of(other), self.value) if swapped else (self.value, self._of(other))
        return Vector(self.e, getattr(self.e.builder, op)(x, y, flags=FUSE))

    return operate


@dataclass(frozen=True)
class Vector:
    """A vector of the emitter's float type whose operators append instructions."""

    e: Emitter = field(repr=False)
    value: Any

    __add__ = __radd__ = _operator("fadd")
    __sub__, __rsub__ = _operator("fsub"), _operator("fsub", swapped=True)
    __mul__ = __rmul__ = _operator("fmul")
    __truediv__, __rtruediv__ = _operator("fdiv"), _operator("fdiv", swapped=True)

    def _of(self, other: "Vector | float") -> Any:
        return other.value if isinstance(other, Vector) else self.e.constant(other)

    def where(self, relation: str, limit: float, then: "Vector | float") -> "Vector":
        """`then` where the relation to `limit` holds; elsewhere, and for nan, this value."""
        return self.replaced(self, relation, limit, then)

    def replaced(
        self, where: "Vector", relation: str, limit: float, then: "Vector | float"
    ) -> "Vector":
        """Like `where`, but with the relation between another vector and `limit`."""
        b = self.e.builder
        holds = b.fcmp_ordered(relation, where.value, self.e.constant(limit))
        return Vector(self.e, b.select(holds, self._of(then), self.value))

    def select_less(self, limit: "Vector", then: "Vector", other: "Vector") -> "Vector":
        """`then` in lanes where this is less than `limit`, `other` elsewhere."""
        b = self.e.builder
        less = b.fcmp_ordered("<", self.value, limit.value)
        return Vector(self.e, b.select(less, then.value, other.value))

    def sqrt(self) -> "Vector":
        return Vector(self.e, self.e.root(self.value))

    def clamp(self, low: float, high: float) -> "Vector":
        """This value limited to [low, high]; nan stays nan."""
        return self.where("<", low, low).where(">", high, high)

    def between(self, low: float, high: float, then: float) -> "Vector":
        """`then` in lanes whose value is inside the open interval, zero elsewhere."""
        b, e = self.e.builder, self.e
        above = b.fcmp_ordered(">", self.value, e.constant(low))
        below = b.fcmp_ordered("<", self.value, e.constant(high))
        return Vector(e, b.select(b.and_(above, below), e.constant(then), e.zero()))

    def exp_parts(self) -> tuple["Vector", "Vector"]:
        """(scale, rest) such that exp(x) = scale (1 + rest), scale a power of two.

        x = n log(2) + r, n an integer. Adding 1.5 * 2^mantissa rounds x / log(2) to n and leaves n
        in the low bits, from which a shift moves it into the exponent.
        """
        p, b = self.e.precision, self.e.builder
        x = self.clamp(-p.largest, p.largest)
        round_to_whole = 1.5 * 2.0**p.mantissa
        shifted = x * float(1 / np.log(2)) + round_to_whole
        n = shifted - round_to_whole
        r = x - n * p.log2[0] - n * p.log2[1]
        half = float(np.log(2) / 2)
        rest = r.in_powers(polynomial(lambda r: np.expm1(r) / r, -half, half, p.exp_degree))

        bits = b.shl(b.bitcast(shifted.value, self.e.integers), self.e.integer(p.mantissa))
        bits = b.add(bits, self.e.integer(p.bias << p.mantissa))
        return Vector(self.e, b.bitcast(bits, self.e.vector)), rest * r

    def exp(self) -> "Vector":
        """exp(x), with x clamped so that the result is a normal number."""
        scale, rest = self.exp_parts()
        return scale * rest + scale

    def twice_atanh(self) -> "Vector":
        """2 atanh(x), which is log((1 + x) / (1 - x)), for |x| <= 1/3."""
        degree = self.e.precision.log1p_degree
        q = self * self
        return self * q.in_powers(
            polynomial(lambda q: 2 * np.arctanh(np.sqrt(q)) / np.sqrt(q), 0.0, 1 / 9, degree)
        )

    def log(self) -> "Vector":
        """log(x) of positive normal numbers; nan stays nan.

        x = 2^n m with m in [sqrt(1/2), sqrt(2)), and log(m) = 2 atanh((m - 1) / (m + 1)). Since the
        exponent's bits lie above the mantissa's, n is the difference between the bits of x and of
        sqrt(1/2), shifted.
        """
        p, b, e = self.e.precision, self.e.builder, self.e

        integers, reals = (np.int32, np.float32) if p.itemsize == 4 else (np.int64, np.float64)
        root = int(np.sqrt(reals(0.5)).view(integers))
        bits = b.bitcast(self.value, e.integers)
        n = b.ashr(b.sub(bits, e.integer(root)), e.integer(p.mantissa))
        m = Vector(e, b.bitcast(b.sub(bits, b.shl(n, e.integer(p.mantissa))), e.vector))
        power = Vector(e, b.sitofp(n, e.vector))
        log_m = ((m - 1.0) / (m + 1.0)).twice_atanh()
        total = power * p.log2[0] + (power * p.log2[1] + log_m)
        return Vector(
            e, b.select(b.fcmp_unordered("uno", self.value, self.value), self.value, total.value)
        )

    def softplus(self) -> tuple["Vector", "Vector"]:
        """log(1 + exp(x)) and its slope, sigmoid(x), both to full precision.

        With e = exp(-|x|): log(1 + e) = 2 atanh(s), s = e / (2 + e) <= 1/3.
        """
        e = (self * -1.0).where(">", 0.0, self).exp()
        series = (e / (e + 2.0)).twice_atanh()
        inverse = 1.0 / (e + 1.0)
        slope = inverse.replaced(self, "<", 0.0, e * inverse)
        return self.where("<", 0.0, 0.0) + series, slope

    def maximum(self, other: "Vector") -> "Vector":
        """The larger of the two; a nan in `other` is ignored."""
        b = self.e.builder
        larger = b.fcmp_ordered(">", other.value, self.value)
        return Vector(self.e, b.select(larger, other.value, self.value))

    def over_lanes(self, combine: Callable[["Vector", "Vector"], "Vector"]) -> "Vector":
        """All lanes reduced to one number, in every lane."""
        e, total, half = self.e, self, self.e.lanes // 2
        while half:
            others = [(lane + half) % e.lanes for lane in range(e.lanes)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), e.lanes), others)
            rotated = e.builder.shuffle_vector(total.value, total.value, mask)
            total, half = combine(total, Vector(e, rotated)), half // 2
        return total

    def below(self, logits: "Vector") -> Any:
        """Which of these uniforms are below the probabilities of the logits, one bit per lane.

        u < 1 / (1 + exp(-logit)) is tested as u (1 + exp(-logit)) < 1, without a division.
        """
        product = self * (logits * -1.0).exp() + self
        return self.e.builder.fcmp_ordered("<", product.value, self.e.constant(1.0))

    def masked(self, lanes: Lanes) -> "Vector":
        """This value in active lanes, zero elsewhere."""
        return Vector(self.e, self.e.builder.select(lanes.mask, self.value, self.e.zero()))

    def in_powers(self, coefficients: list[float]) -> "Vector":
        """A polynomial's value at this vector, by Estrin's scheme: a short dependency chain."""
        terms: list[Any] = list(coefficients)
        power = self
        while len(terms) > 2:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            rest = terms[-1:] if len(terms) % 2 else []
            terms, power = [power * high + low for low, high in pairs] + rest, power * power
        low, high = terms
        return power * high + low


@dataclass(frozen=True)
class Function:
    """An activation, and its slope as a function of its value."""

    value: Callable[[Vector], Vector]
    slope: Callable[[Vector], Vector]

    def __call__(self, x: Vector) -> Vector:
        return self.value(x)


def _sigmoid(x: Vector) -> Vector:
    scale, rest = (x * -1.0).exp_parts()
    return 1.0 / (scale * rest + (scale + 1.0))


def _tanh(x: Vector) -> Vector:
    scale, rest = (x * 2.0).exp_parts()
    expm1 = scale * rest + (scale - 1.0)  # exp(2 x) - 1, exact near zero
    return expm1 / (expm1 + 2.0)


def _hard_sigmoid(x: Vector) -> Vector:
    return (x + 3.0).clamp(0.0, 6.0) * (1 / 6)


def _relu_slope(y: Vector) -> Vector:
    return Vector(y.e, y.e.constant(1.0)).replaced(y, "<=", 0.0, 0.0)


def _exp(x: Vector) -> Vector:
    """exp(x / 2) squared, which overflows where exp(x) does."""
    root = (x * 0.5).exp()
    return root * root


def _softplus_slope(y: Vector) -> Vector:
    """1 - exp(-y), exact near zero."""
    scale, rest = (y * -1.0).exp_parts()
    return (1.0 - scale) - scale * rest


# Keyed by the specification's names.
FUNCTIONS: Mapping[str, Function] = {
    "tanh": Function(_tanh, lambda y: 1.0 - y * y),
    "sigmoid": Function(_sigmoid, lambda y: y * (1.0 - y)),
    "relu": Function(lambda x: x.where("<", 0.0, 0.0), _relu_slope),
    "softplus": Function(lambda x: x.softplus()[0], _softplus_slope),
    "exp": Function(_exp, lambda y: y),
    "sqrt": Function(Vector.sqrt, lambda y: 0.5 / y),
}
GATE_ACTIVATIONS: Mapping[str, Function] = {
    "sigmoid": FUNCTIONS["sigmoid"],
    "hard-sigmoid": Function(_hard_sigmoid, lambda y: y.between(0.0, 1.0, 1 / 6)),
}
ACTIVATIONS: Mapping[str, Function] = {
    name: FUNCTIONS[name] for name in ("tanh", "sigmoid", "relu")
}
