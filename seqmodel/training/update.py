"""One update of the weights from one window of a batch.

Nats and frames are returned as sums, and the gradient divides by the number of frames that share
the update: processes that each hold a part of a batch can add theirs up, which would be wrong for
means over batches of different lengths.
"""

import hashlib
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.data.batches import Batch
from seqmodel.kernels.device import one_thread
from seqmodel.model.carry import Carry
from seqmodel.model.sequence import SequenceModel
from seqmodel.training.noise import weight_dropout, weight_noise
from seqmodel.training.optimizer import rescale_gradient
from seqmodel.training.state import TrainingState


class Sums(NamedTuple):
    """What a window adds to the figures of its epoch."""

    nats: float
    """Over the window's frames, at the weights with noise."""
    frames: int
    """In the window, without padding."""
    after: Carry
    """The carry after the window's last frame, still attached to the graph."""


class WindowLoss(NamedTuple):
    """The loss of a window, and the figures that come with it."""

    total: Tensor
    """Nats over the frames that share the update, ends included; to be differentiated."""
    nats: Tensor
    """The same without ends, detached: times `total_frames` it is the window's sum of nats."""
    frames: int
    """How many frames the window has, without padding."""
    after: Carry


def update(state: TrainingState, batch: Batch, learning_rate: float) -> tuple[Sums, float]:
    """Take one step down the gradient of the window's nats per frame.

    Returns:
        The window's sums and the gradient's norm before rescaling. If either is not finite, the
        weights are unchanged.
    """
    sums = window_gradient(state, batch, update_seed(state.config.seed, state.progress.update))
    norm = step(state, learning_rate) if math.isfinite(sums.nats) else math.nan
    return sums, norm


def window_gradient(
    state: TrainingState, batch: Batch, seed: int, total_frames: int | None = None
) -> Sums:
    """Leave the gradient of (the window's nats) / `total_frames` on the weights.

    Args:
        state: of the run; its carry is what came before the window, None at the start of a batch.
        batch: the window.
        seed: of the weight noise and all dropout, which depend on nothing else.
        total_frames: frames of all windows that share the update; by default this window's.
    """
    model, config = state.model, state.config
    # Not torch.manual_seed, which also records a traceback for each device that is not in use.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    for weight in model.parameters():
        weight.grad = None
    frames = torch.from_numpy(batch.frames).to(state.device)
    carry = state.carry or model.start(frames.shape[1])
    with weight_noise(model, config.weight_noise), weight_dropout(model, config.weight_dropout):
        loss = window_loss(model, frames, batch.lengths, carry, total_frames)
        loss.total.backward()  # type: ignore[no-untyped-call]
    nats = float(loss.nats) * (total_frames or loss.frames)
    return Sums(nats, loss.frames, loss.after)


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


def step(state: TrainingState, learning_rate: float) -> float:
    """Apply the gradient, unless it is not finite; returns its norm before rescaling.

    Processes that share an update add up their gradients first.
    """
    with one_thread():
        norm = rescale_gradient(state.optimizer.weights, state.config.clip)
        if math.isfinite(norm):
            state.optimizer.step(learning_rate)
            if state.average is not None:
                state.average.update()
    return norm


def update_seed(seed: int, number: int) -> int:
    """The seed of a run's update `number`, in 32 bits: torch's CPU generator takes no more."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4])
