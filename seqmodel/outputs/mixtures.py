"""Shared by scores of mixtures."""

from seqmodel.kernels.code.vectors import Vector


def log_and_inverse(scale: Vector, log_scale: Vector, floor: Vector) -> tuple[Vector, Vector]:
    """log(floor + scale) and 1 / (floor + scale), where `scale` is exp(log_scale)."""
    total = scale + floor
    one = Vector(scale.to, scale.to.constant(1.0))
    # Where exp is clamped, the floor is far below the last digit.
    limit = 0.9 * scale.to.precision.largest
    return total.log().replaced(log_scale, ">", limit, log_scale), one / total
