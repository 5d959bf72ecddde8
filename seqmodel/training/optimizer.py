"""What moves the weights: the optimizer, its rate, gradient clipping; and their moving average."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop

from seqmodel.config import Config
from seqmodel.model.sequence import SequenceModel


@dataclass(frozen=True)
class Rule:
    """How weights are updated: torch's arithmetic, and its state for each weight."""

    slots: tuple[str, ...]
    """Named as in torch.optim, each with its weight's shape; the scalar "step" precedes them."""
    move: Callable[..., None]
    """Takes weights, gradients, three lists of slots (unused ones empty) and steps."""


# Kingma, Ba 2015, with the constants of its Algorithm 1
ADAM = partial(adam, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, amsgrad=False)
# Hinton 2012, lecture 6e
RMSPROP = partial(rmsprop, alpha=0.9, eps=1e-6, weight_decay=0, momentum=0, centered=False)
RULES = {
    "adam": Rule(("exp_avg", "exp_avg_sq"), partial(ADAM, maximize=False, fused=True)),
    "rmsprop": Rule(("square_avg",), partial(RMSPROP, foreach=True)),
}


class Optimizer:
    """Updates a model's weights from their gradients, by the rule named in the config.

    torch.optim's classes import torch's compiler, which takes as long as the rest of torch.
    """

    def __init__(self, model: SequenceModel, config: Config) -> None:
        self._named, self._rule = dict(model.named_parameters()), RULES[config.optimizer]
        self.weights = list(self._named.values())
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        """The slots of the weights that have been updated."""

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update each weight that has a gradient."""
        updated = [weight for weight in self.weights if weight.grad is not None]
        for weight in updated:
            if weight not in self.state:
                slots = {name: torch.zeros_like(weight) for name in self._rule.slots}
                self.state[weight] = {"step": torch.zeros((), device=weight.device), **slots}
        steps, *slot_lists = (
            [self.state[weight][name] for weight in updated] for name in ("step", *self._rule.slots)
        )
        unused: list[list[Tensor]] = [[]] * (3 - len(slot_lists))
        gradients = [weight.grad for weight in updated]
        self._rule.move(updated, gradients, *slot_lists, *unused, steps, lr=learning_rate)

    def tensors(self) -> dict[str, Tensor]:
        """The state, one tensor per weight and slot, named "weight:slot"."""
        return {
            f"{name}:{slot}": value
            for name, weight in self._named.items()
            for slot, value in self.state.get(weight, {}).items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`, on any device; ValueError for a missing or misshapen slot."""
        self.state = {}
        for name, weight in self._named.items():
            shapes = {"step": (), **dict.fromkeys(self._rule.slots, tuple(weight.shape))}
            stored = {k: tensors[f"{name}:{k}"] for k in shapes if f"{name}:{k}" in tensors}
            for slot, value in stored.items():
                if value.shape != shapes[slot] or len(stored) != len(shapes):
                    raise ValueError(f"optimizer.{name}:{slot} is {tuple(value.shape)}")
            if stored:
                # Copied for their alignment, see `TrainingState._load_carries`.
                self.state[weight] = {k: v.to(weight.device, copy=True) for k, v in stored.items()}


def learning_rate_at(config: Config, progress: float) -> float:
    """The rate when a fraction `progress` is done: constant, or half a cosine down to zero."""
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def rescale_gradient(weights: Iterable[Tensor], limit: float) -> float:
    """Rescale the gradient of all weights to norm `limit` if it is larger (0: never).

    Returns the norm before that; not finite if the gradient is not or, without a limit, if its
    squares overflow, which would make the optimizer's running means infinite.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = _norm(gradients, torch.float32)
    if limit and not math.isfinite(norm):
        # Over long pieces a gradient can be finite though its squares overflow float32.
        norm = _norm(gradients, torch.float64)
    if limit and limit < norm < math.inf:
        for gradient in gradients:
            gradient.mul_(limit / norm)
    return norm


def _norm(tensors: Sequence[Tensor], dtype: torch.dtype) -> float:
    norms = [torch.linalg.vector_norm(tensor, dtype=dtype) for tensor in tensors]
    return math.hypot(*(float(norm) for norm in norms))


class Average(nn.Module):
    """A copy of the model, `module`, whose weights are the moving average over the updates.

    The average (Polyak, Juditsky 1992) predicts better, so it is evaluated, saved and sampled from.
    Like torch.optim.swa_utils.AveragedModel, but without walking all modules at each update.
    """

    count: Tensor
    """Updates in the average."""

    def __init__(self, model: SequenceModel, decay: float) -> None:
        super().__init__()
        self.module = deepcopy(model)
        self.register_buffer("count", torch.tensor(0))
        self._decay = decay
        self._means: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(model.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights by 1 - decay, early on more: to their plain mean."""
        count = int(self.count)
        decay = min(self._decay, count / (count + 1))  # 0 the first time: copy the weights
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)
        self.count.add_(1)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a `state_dict()`.

        Older versions named the count `n_averaged` and gave the first update the weight of two: an
        average that they began continues with one more update.
        """
        tensors = dict(tensors)
        if "n_averaged" in tensors:
            before = tensors.pop("n_averaged")
            tensors["count"] = before + (before > 0)
        self.load_state_dict(tensors)
