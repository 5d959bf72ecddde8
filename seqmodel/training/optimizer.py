"""The optimizer, its learning rate, and the rescaling of the gradient."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from seqmodel.config import Config
from seqmodel.model.sequence import SequenceModel

RMSPROP_DECAY = 0.9
"""Of RMSProp's running mean square (Hinton 2012)."""


def make_optimizer(model: SequenceModel, config: Config) -> torch.optim.Optimizer:
    """Adam (Kingma, Ba 2015) or RMSProp (Hinton 2012) over all weights of the model."""
    if config.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), config.learning_rate, fused=True)
    return torch.optim.RMSprop(
        model.parameters(), config.learning_rate, alpha=RMSPROP_DECAY, eps=1e-6, foreach=True
    )


def learning_rate_at(config: Config, progress: float) -> float:
    """The learning rate when a share `progress` of all epochs is done.

    Constant, or half a cosine from the configured rate down to zero.
    """
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def rescale_gradient(weights: Iterable[Tensor], limit: float) -> float:
    """Rescale the gradient of all weights to norm `limit` if it is larger (0: never).

    Returns the norm before rescaling; inf or nan if the gradient is not finite.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = _norm(gradients, torch.float32)
    if limit and not math.isfinite(norm):
        # Over long pieces a gradient may be finite though its squares overflow float32.
        norm = _norm(gradients, torch.float64)
    if limit and limit < norm < math.inf:
        for gradient in gradients:
            gradient.mul_(limit / norm)
    return norm


def _norm(tensors: Sequence[Tensor], dtype: torch.dtype) -> float:
    norms = [torch.linalg.vector_norm(tensor, dtype=dtype) for tensor in tensors]
    return math.hypot(*(float(norm) for norm in norms))


def optimizer_tensors(model: SequenceModel, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, one tensor per weight and slot, named "weight:slot"."""
    return {
        f"{name}:{slot}": value
        for name, weight in model.named_parameters()
        for slot, value in optimizer.state[weight].items()
    }


def load_optimizer(
    model: SequenceModel, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`, from and to any device.

    ValueError for a tensor that is neither a number nor of its weight's shape.
    """
    slots: dict[int, dict[str, Tensor]] = {}
    for index, (name, weight) in enumerate(model.named_parameters()):
        prefix = f"{name}:"
        slots[index] = {
            # Cloned for its alignment, see `TrainingState.load`.
            key.removeprefix(prefix): value.clone()
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
        for slot, value in slots[index].items():
            if value.shape not in (weight.shape, ()):
                raise ValueError(f"optimizer.{prefix}{slot} is {tuple(value.shape)}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
