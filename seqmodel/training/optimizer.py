"""How weights move: the optimizer, its learning rate, noise on the weights, and their average."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.swa_utils import AveragedModel

from seqmodel.config import Config
from seqmodel.model import SequenceModel

OPTIMIZER = "optimizer."
"""Prefix of the optimizer's tensors in a checkpoint."""

AVERAGE = "average."
"""Prefix of the averaged model's tensors in a checkpoint."""

# Hinton's RMSProp divides by a running root mean square that forgets at this rate.
RMSPROP_DECAY = 0.9


def make_optimizer(model: SequenceModel, config: Config) -> torch.optim.Optimizer:
    """Adam (Kingma, Ba 2015) or RMSProp (Hinton 2012) over all weights of the model."""
    if config.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), config.learning_rate, fused=True)
    return torch.optim.RMSprop(
        model.parameters(), config.learning_rate, alpha=RMSPROP_DECAY, eps=1e-6, foreach=True
    )


def learning_rate_at(config: Config, progress: float) -> float:
    """The rate after a share `progress` of all epochs: constant, or half a cosine down to zero."""
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the next update use `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def rescale_gradient(model: SequenceModel, limit: float) -> float:
    """Scale the gradient of all weights to the norm `limit` where it is above (0: never).

    Returns the norm it had, which is no finite number where the gradient is none.
    """
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = get_total_norm(gradients)
    if not limit:
        return float(norm)
    if torch.isfinite(norm):
        clip_grads_with_norm_(model.parameters(), limit, norm)
        return float(norm)
    # Over long pieces a gradient can be finite while its squares are not: 1e20 will do.
    largest = get_total_norm(gradients, float("inf"))
    norm = get_total_norm([gradient.div_(largest) for gradient in gradients])
    for gradient in gradients:
        gradient.mul_(limit / norm)
    return float(norm) * float(largest)


def optimizer_tensors(model: SequenceModel, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory of each weight, under names fit for a checkpoint."""
    return {
        f"{OPTIMIZER}{name}:{slot}": value
        for name, weight in model.named_parameters()
        for slot, value in optimizer.state[weight].items()
    }


def load_optimizer(
    model: SequenceModel, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Give the optimizer its memory back; the inverse of `optimizer_tensors`."""
    for name, weight in model.named_parameters():
        prefix = f"{OPTIMIZER}{name}:"
        optimizer.state[weight] = {
            key.removeprefix(prefix): value.clone()
            for key, value in tensors.items()
            if key.startswith(prefix)
        }


def make_average(model: SequenceModel, config: Config) -> AveragedModel | None:
    """A copy of the model that will hold the running mean of its weights, if `config` wants one.

    After each update the mean moves by a share 1 - `average` towards the weights (Polyak, Juditsky
    1992). It predicts better than the weights that it follows, and it is what is evaluated, kept
    as the best and sampled from.
    """
    if config.average == 0:
        return None

    def move(means: Any, weights: Any, count: Tensor | int) -> None:
        # At first the mean of all weights there were: it must not dwell on the start.
        decay = min(config.average, (1 + int(count)) / (2 + int(count)))
        torch._foreach_lerp_(means, weights, 1 - decay)  # as torch.optim.swa_utils does itself

    return AveragedModel(model, multi_avg_fn=move)


def average_tensors(average: AveragedModel) -> dict[str, Tensor]:
    """The averaged weights and their count, under names fit for a checkpoint."""
    return {AVERAGE + name: tensor for name, tensor in average.state_dict().items()}


def load_average(average: AveragedModel, tensors: dict[str, Tensor]) -> None:
    """The inverse of `average_tensors`."""
    average.load_state_dict(
        {k.removeprefix(AVERAGE): v for k, v in tensors.items() if k.startswith(AVERAGE)}
    )


@contextmanager
def weight_noise(model: SequenceModel, deviation: float) -> Iterator[None]:
    """Within the block the unit's matrices and peepholes carry fresh Gaussian noise.

    Gradients are taken at the noisy weights and applied to the clean ones (Graves 2011). Biases
    and the output layer stay as they are.
    """
    noisy = [w for name, w in model.unit.named_parameters() if name.split(".")[-1] in "WUV"]
    if deviation == 0:
        noisy = []
    clean = [weight.detach().clone() for weight in noisy]
    with torch.no_grad():
        for weight in noisy:
            weight.add_(torch.randn_like(weight), alpha=deviation)
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, saved in zip(noisy, clean, strict=True):
                weight.copy_(saved)
