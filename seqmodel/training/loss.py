"""What training descends: the mean nats per frame of a batch, or of a window of it."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs import BernoulliOutput


class Loss(NamedTuple):
    """The loss, and what there is to know beside it."""

    mean: Tensor
    """Nats per frame, with the end's where the output knows ends; to be differentiated."""
    nats_per_frame: Tensor
    """Without the end's."""
    frames: int
    """How many there were, padding apart."""
    after: Carry


def mean_nats(
    model: SequenceModel, frames: Tensor, lengths: NDArray[np.int64], carry: Carry
) -> Loss:
    """The loss of frames (T, B, F) of any type, from row b the first `lengths[b]`."""
    T, output = len(frames), model.output
    inside = [min(max(length, 0), T) for length in lengths.tolist()]
    shares = np.full(frames.shape[:2], 1 / sum(inside), np.float32)
    for row, length in enumerate(inside):
        shares[length:, row] = 0
    h, frames, past, after = model.read(frames, carry)
    weights = torch.from_numpy(shares).to(h)
    if not isinstance(output, BernoulliOutput):
        nats = torch.dot(output.score(h, frames, past).view(-1), weights.view(-1))
        return Loss(nats, nats.detach(), sum(inside), after)
    loss = nats = output.weighted_score(h, frames, weights)
    if output.end:
        last = torch.from_numpy(np.arange(T)[:, None] == lengths - 1).to(h)
        loss = nats + torch.dot(output.end_score(h, last).view(-1), weights.view(-1))
    return Loss(loss, nats.detach(), sum(inside), after)
