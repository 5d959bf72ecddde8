"""Mixtures of discretised logistics: the probability of a level, and a draw, in plain PyTorch."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from seqmodel.outputs.samples.blocks import (
    HIGHEST,
    LEVELS,
    LOWEST,
    STEP,
    UNIFORM,
    above_zero,
    choose,
)

Mixture = tuple[Tensor, Tensor, Tensor]
"""Logits, means and log scales of logistics over a sample, in any units: (..., K) each."""


def log_probability(mixture: Mixture, sample: Tensor, raw: Tensor, step: float) -> Tensor:
    """log P of samples (...), in the mixture's units and raw; levels are `step` of them apart."""
    return mixed(mixture[0], level_log_probability(mixture, sample, raw, step))


def level_log_probability(
    mixture: Mixture,
    sample: Tensor,
    raw: Tensor,
    step: float | Tensor,
    highest: float | Tensor = HIGHEST * STEP,
) -> Tensor:
    """log P (..., K) of samples (...) under each of the components.

    With s the sigmoid, a and b = a + w the step's ends in units of the scale:
    s(b) - s(a) = s(b) s(-a) (1 - exp(-w)), whose logarithm is free of cancellation. At the lowest
    level s(a) counts as 0, at the highest, raw `highest`, s(b) as 1.
    """
    _, means, log_scales = mixture
    error, raw = sample.unsqueeze(-1) - means, raw.unsqueeze(-1)
    inverse = torch.exp(-log_scales)
    below_upper = functional.logsigmoid((error + step / 2) * inverse)
    above_lower = functional.logsigmoid((step / 2 - error) * inverse)
    log_width = (
        torch.as_tensor(step, dtype=log_scales.dtype, device=log_scales.device).log() - log_scales
    )
    # (1 - exp(-w)) / w rounds to 1 long before w underflows.
    width = log_width.exp().clamp(min=1e-30)
    within = log_width + torch.log(-torch.expm1(-width) / width)
    inside = torch.where(raw >= highest, above_lower, below_upper + above_lower + within)
    return torch.where(raw <= LOWEST * STEP, below_upper, inside)


def mixed(logits: Tensor, log_p: Tensor) -> Tensor:
    """log P (...) from that under each component (..., K), with the uniform share."""
    found = torch.logsumexp(torch.log_softmax(logits, -1) + log_p, -1)
    uniform = found.new_tensor(math.log(UNIFORM / LEVELS))
    return torch.logaddexp(found + math.log1p(-UNIFORM), uniform)


def drawn_from(mixture: Mixture, uniforms: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Draw samples (..., 1) in float64: the `uniforms` (..., 1) choose the components.

    `noise` (..., 1), see `logistic_noise`, is in units of the chosen component's scale.
    """
    logits, means, log_scales = (part.double() for part in mixture)
    component = choose(logits, uniforms.squeeze(-1), temperature).unsqueeze(-1)
    scale = log_scales.gather(-1, component).exp()
    return means.gather(-1, component) + temperature * noise * scale


def mean_size(mixture: Mixture, temperature: float) -> Tensor:
    """E|x| (...) of samples x as `drawn_from` draws them at a temperature above 0.

    |m| + 2 s log(1 + exp(-|m| / s)) for a logistic of mean m and scale s.
    """
    logits, means, log_scales = (part.double() for part in mixture)
    scales, sizes = temperature * log_scales.exp(), means.abs()
    sizes = sizes + 2 * scales * functional.softplus(-sizes / scales)
    return (torch.softmax(logits / temperature, -1) * sizes).sum(-1)


def logistic_noise(uniforms: Tensor) -> Tensor:
    """log(u) - log(1 - u) of uniforms (...) in [0, 1): from the standard logistic distribution."""
    u = above_zero(uniforms)
    return u.log() - (-u).log1p()
