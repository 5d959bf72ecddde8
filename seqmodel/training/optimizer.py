"""How weights move: the optimizer, its learning rate, noise on the weights, and their average."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.kernels.device import one_thread
from seqmodel.model.sequence import SequenceModel

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


def rescale_gradient(weights: Sequence[Tensor], limit: float) -> float:
    """Scale the gradient of all weights to the norm `limit` where it is above (0: never).

    Returns the norm it had, which is no finite number where the gradient is none.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = _norm(gradients, torch.float32)
    if limit and not math.isfinite(norm):
        # Over long pieces a gradient can be finite while its squares are not: 1e20 will do.
        norm = _norm(gradients, torch.float64)
    if limit and limit < norm < math.inf:
        for gradient in gradients:
            gradient.mul_(limit / norm)
    return norm


def _norm(tensors: Sequence[Tensor], dtype: torch.dtype) -> float:
    norms = [torch.linalg.vector_norm(tensor, dtype=dtype) for tensor in tensors]
    return math.hypot(*(float(norm) for norm in norms))


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


class Average(nn.Module):
    """A copy of the model, `module`, that holds the running mean of the weights at each update.

    As torch.optim.swa_utils.AveragedModel, tensors' names included, which looks for all weights
    anew at each update.
    """

    n_averaged: Tensor

    def __init__(self, model: SequenceModel, decay: float) -> None:
        super().__init__()
        self.module = deepcopy(model)
        self.register_buffer("n_averaged", torch.tensor(0))
        self._decay = decay
        self._means: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(model.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Move the mean by a share 1 - decay towards the weights; the first time all the way."""
        count = int(self.n_averaged)
        # At first the mean of all weights there were: it must not dwell on the start.
        decay = min(self._decay, (1 + count) / (2 + count)) if count else 0.0
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)
        self.n_averaged.add_(1)


def make_average(model: SequenceModel, config: Config) -> Average | None:
    """A copy of the model that will hold the running mean of its weights, if `config` wants one.

    The mean (Polyak, Juditsky 1992) predicts better than the weights that it follows, and it is
    what is evaluated, kept as the best and sampled from.
    """
    return Average(model, config.average) if config.average else None


def average_tensors(average: Average) -> dict[str, Tensor]:
    """The averaged weights and their count, under names fit for a checkpoint."""
    return {AVERAGE + name: tensor for name, tensor in average.state_dict().items()}


def load_average(average: Average, tensors: dict[str, Tensor]) -> None:
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
    if deviation == 0:
        yield
        return
    from seqmodel.kernels.noise import normals  # the compiler

    named = model.unit.named_parameters()
    noisy = [weight.detach() for name, weight in named if name.split(".")[-1] in "WUV"]
    sizes = [weight.numel() for weight in noisy]
    with one_thread():
        clean = [weight.clone() for weight in noisy]
        noises = normals(sum(sizes)).split_with_sizes(sizes)
        for weight, noise in zip(noisy, noises, strict=True):
            weight.add_(noise.view_as(weight), alpha=deviation)
    try:
        yield
    finally:
        with one_thread():
            for weight, saved in zip(noisy, clean, strict=True):
                weight.copy_(saved)
