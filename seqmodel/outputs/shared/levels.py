"""Shared by audio outputs: the levels of 16-bit samples, and the choice of a component.

Raw samples are in [-1, 1); 16-bit ones are integer multiples of `STEP`, their levels.
"""

import torch
from torch import Tensor

LOWEST, HIGHEST = -32768, 32767  # levels
STEP = 1 / 32768


def nearest_level(samples: Tensor) -> Tensor:
    """Raw samples rounded to the nearest level, clamped to the lowest and highest."""
    return (samples / STEP).round().clamp(LOWEST, HIGHEST) * STEP


def choose(logits: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Choose components (...) by their logits (..., K), divided by `temperature`.

    The first whose cumulative weight exceeds the uniform (...) is chosen; at temperature 0 the
    likeliest.
    """
    if temperature == 0:
        return logits.argmax(-1)
    cumulative = torch.softmax(logits / temperature, -1).cumsum(-1)
    cumulative = cumulative / cumulative[..., -1:]  # rounding may have left the last below 1
    return (cumulative <= uniforms.unsqueeze(-1)).sum(-1)


def above_zero(uniforms: Tensor) -> Tensor:
    """The uniforms, 0 replaced by 2^-54, half the smallest positive one, for finite noise."""
    return uniforms.clamp(min=2.0**-54)
