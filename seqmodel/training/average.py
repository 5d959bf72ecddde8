"""The running mean of the weights."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.model.sequence import SequenceModel


class Average(nn.Module):
    """A copy of the model, `module`, whose weights are the running mean over the updates.

    Same arithmetic and tensor names as torch.optim.swa_utils.AveragedModel, but without walking
    all modules again at each update.
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
        """Move the mean towards the weights by 1 - decay; the first time, all the way."""
        count = int(self.n_averaged)
        # Early on a plain mean over the updates so far, which forgets the initial weights sooner.
        decay = min(self._decay, (1 + count) / (2 + count)) if count else 0.0
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)
        self.n_averaged.add_(1)


def make_average(model: SequenceModel, config: Config) -> Average | None:
    """The running mean of the model's weights, or None where `config` does not average.

    The mean (Polyak, Juditsky 1992) predicts better than the weights themselves, so the mean is
    evaluated, saved as best and sampled from.
    """
    return Average(model, config.average) if config.average else None
