"""What training minimises: the nats of a window of a batch."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.model.carry import Carry
from seqmodel.model.sequence import SequenceModel


class WindowLoss(NamedTuple):
    """The loss of a window, and the figures that come with it."""

    total: Tensor
    """Nats over the frames that share the update, ends included; to be differentiated."""
    nats: Tensor
    """The same without ends, detached: times `total_frames` it is the window's sum of nats."""
    frames: int
    """How many frames the window has, without padding."""
    after: Carry


def window_loss(
    model: SequenceModel,
    frames: Tensor,
    lengths: NDArray[np.int64],
    carry: Carry,
    total_frames: int | None = None,
) -> WindowLoss:
    """The loss of frames (T, B, F) of any dtype, the first `lengths[b]` of row b.

    Each frame weighs 1 / `total_frames`, the number of frames of all windows that share one
    update: gradients of several processes then add up to the gradient of the mean. By default the
    window stands alone. Padding weighs nothing.
    """
    T = len(frames)
    # Plain integers: NumPy is slower for the few pieces of a batch.
    inside = [min(max(length, 0), T) for length in lengths.tolist()]
    count = sum(inside)
    weights = np.full(frames.shape[:2], 1 / (total_frames or count), np.float32)
    for row, length in enumerate(inside):
        weights[length:, row] = 0
    ragged = torch.from_numpy(np.array(inside)) if min(inside) < T else None
    h, frames, past, after = model.read(frames, carry, ragged)
    loss = model.output.loss(h, frames, past, torch.from_numpy(weights).to(h), lengths)
    return WindowLoss(loss.total, loss.nats, count, after)
