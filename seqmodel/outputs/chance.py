"""Code generation for draws by a probability."""

from typing import Any

from seqmodel.kernels.code.vectors import Vector


def below(uniforms: Vector, logits: Vector) -> Any:
    """Which uniforms are below the probabilities, as bits.

    u < 1 / (1 + exp(-logit)) is tested as u (1 + exp(-logit)) < 1, without a division.
    """
    e = uniforms.to
    product = uniforms * (logits * -1.0).exp() + uniforms
    return e.builder.fcmp_ordered("<", product.value, e.constant(1.0))
