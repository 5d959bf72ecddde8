"""The running mean of the weights."""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.model.sequence import SequenceModel


class Average(nn.Module):
    """A copy of the model, `module`, whose weights are the running mean over the updates.

    Same arithmetic as torch.optim.swa_utils.AveragedModel, but without walking all modules again
    at each update.
    """

    count: Tensor
    """Updates in the mean."""

    def __init__(self, model: SequenceModel, decay: float) -> None:
        super().__init__()
        self.module = deepcopy(model)
        self.register_buffer("count", torch.tensor(0))
        self._decay = decay
        self._means: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(model.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Move the mean towards the weights by 1 - decay, early on less: to their plain mean."""
        count = int(self.count)
        decay = min(self._decay, count / (count + 1))  # 0 the first time, all the way
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)
        self.count.add_(1)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a `state_dict()`.

        Older versions named the count `n_averaged` and gave the first update the weight of two: a
        mean that they began goes on with one update more.
        """
        tensors = dict(tensors)
        if "n_averaged" in tensors:
            before = tensors.pop("n_averaged")
            tensors["count"] = before + (before > 0)
        self.load_state_dict(tensors)


def make_average(model: SequenceModel, config: Config) -> Average | None:
    """The running mean of the model's weights, or None where `config` does not average.

    The mean (Polyak, Juditsky 1992) predicts better than the weights themselves, so the mean is
    evaluated, saved as best and sampled from.
    """
    return Average(model, config.average) if config.average else None
