"""One update of the weights from one window of a batch.

Nats and frames are returned as sums, and the gradient divides by the number of frames that share
the update: processes that each hold a part of a batch can add theirs up, which would be wrong for
means over batches of different lengths.
"""

import hashlib
import math
from typing import NamedTuple

import torch

from seqmodel.data.batches import Batch
from seqmodel.kernels.device import one_thread
from seqmodel.model.carry import Carry
from seqmodel.model.sequence import SequenceModel
from seqmodel.training.average import Average
from seqmodel.training.loss import window_loss
from seqmodel.training.noise import weight_dropout, weight_noise
from seqmodel.training.optimizer import Optimizer, rescale_gradient


class Sums(NamedTuple):
    """What a window adds to the figures of its epoch."""

    nats: float
    """Over the window's frames, at the weights with noise."""
    frames: int
    """In the window, without padding."""
    after: Carry
    """The carry after the window's last frame, still attached to the graph."""


def update(
    model: SequenceModel,
    optimizer: Optimizer,
    average: Average | None,
    batch: Batch,
    carry: Carry | None,
    *,
    learning_rate: float,
    noise: float,
    clip: float,
    seed: int,
    dropout: float = 0.0,
    total_frames: int | None = None,
) -> tuple[Sums, float]:
    """Take one step down the gradient of the window's nats per frame.

    Args:
        carry: what came before the window; None at the start of a batch.
        noise: the standard deviation of the weight noise.
        clip: rescale the gradient's norm to this if it is larger; 0: never.
        seed: of the weight noise and dropout, which depend on nothing else.
        dropout: the probability that an entry of the units' U is dropped, see `weight_dropout`.
        total_frames: frames of all windows that share the update; by default this window's.

    Returns:
        The window's sums and the gradient's norm before rescaling. If either is not finite, the
        weights are unchanged.
    """
    sums = window_gradient(
        model, batch, carry, noise=noise, seed=seed, dropout=dropout, total_frames=total_frames
    )
    norm = math.nan
    if math.isfinite(sums.nats):
        norm = step(optimizer, average, learning_rate=learning_rate, clip=clip)
    return sums, norm


def window_gradient(
    model: SequenceModel,
    batch: Batch,
    carry: Carry | None,
    *,
    noise: float,
    seed: int,
    dropout: float = 0.0,
    total_frames: int | None = None,
) -> Sums:
    """Leave the gradient of (the window's nats) / `total_frames` on the weights; see `update`."""
    _seed_generators(seed)
    weights = list(model.parameters())
    for weight in weights:
        weight.grad = None
    frames = torch.from_numpy(batch.frames).to(weights[0].device)
    carry = carry or model.start(frames.shape[1])
    with weight_noise(model, noise), weight_dropout(model, dropout):
        loss = window_loss(model, frames, batch.lengths, carry, total_frames)
        loss.total.backward()  # type: ignore[no-untyped-call]
    nats = float(loss.nats) * (total_frames or loss.frames)
    return Sums(nats, loss.frames, loss.after)


def step(
    optimizer: Optimizer, average: Average | None, *, learning_rate: float, clip: float
) -> float:
    """Apply the gradient, unless it is not finite; returns its norm before rescaling.

    Processes that share an update add up their gradients first.
    """
    with one_thread():
        norm = rescale_gradient(optimizer.weights, clip)
        if math.isfinite(norm):
            optimizer.step(learning_rate)
            if average is not None:
                average.update()
    return norm


def update_seed(seed: int, number: int) -> int:
    """The seed of a run's update `number`, in 32 bits: torch's CPU generator takes no more."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4])


def _seed_generators(seed: int) -> None:
    # Not torch.manual_seed, which also records a traceback for each device that is not in use.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
