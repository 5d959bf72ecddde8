"""What the outputs over audio share: the levels of 16-bit samples, and the choice of a component.

Raw samples lie in [-1, 1); those of 16 bits are whole multiples of `STEP`, their levels.
"""

import torch
from torch import Tensor

LOWEST, HIGHEST = -32768, 32767  # levels
STEP = 1 / 32768


def nearest_level(samples: Tensor) -> Tensor:
    """The raw samples rounded to the nearest level, those out of range to the last one."""
    return (samples / STEP).round().clamp(LOWEST, HIGHEST) * STEP


def choose(logits: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Choose components (...) by their logits (..., K), divided by `temperature`.

    Taken is the first whose cumulated weight exceeds the uniform (...); at temperature 0 the
    likeliest.
    """
    if temperature == 0:
        return logits.argmax(-1)
    cumulated = torch.softmax(logits / temperature, -1).cumsum(-1)
    cumulated = cumulated / cumulated[..., -1:]  # else rounding may leave it below a uniform
    return (cumulated <= uniforms.unsqueeze(-1)).sum(-1)


def above_zero(uniforms: Tensor) -> Tensor:
    """The uniforms, 0 taken as 2^-54, half the least that follows it: its noise is finite then."""
    return uniforms.clamp(min=2.0**-54)
