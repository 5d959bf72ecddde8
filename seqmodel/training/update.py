"""One update of the weights from one window of a batch.

A batch is cut into `parts`, a setting, whose gradients are added up along a fixed tree: here, or by
several processes that have some each. Each is of its nats over the frames of all parts, and its
randomness depends on its number alone.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.data.batches import Batch
from seqmodel.kernels.device import one_thread
from seqmodel.kernels.dropout import dropout_factors
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.training.optimizer import rescale_gradient
from seqmodel.training.processes import Group, tree_sum
from seqmodel.training.state import TrainingState, detached
from seqmodel.units.module import Layer, Unit


class WindowLoss(NamedTuple):
    """The loss of a window, and the figures that come with it."""

    total: Tensor
    """Nats over the frames that share the update, with those of ends and of marks; to be
    differentiated."""
    nats: Tensor
    """The same of frames alone, detached: times `total_frames` it is the window's sum of nats."""
    frames: int
    """How many frames the window has, without padding."""
    after: Carry


def update(
    state: TrainingState,
    windows: Mapping[int, Batch],
    total_frames: int,
    learning_rate: float,
    group: Group,
) -> tuple[float, float]:
    """Take one step down the gradient of nats per frame; the carries move on.

    `windows` are those of this process's parts that have frames left; `total_frames` are of all
    parts. Returns the nats of all parts, and the gradient's norm before rescaling. If either is not
    finite, the weights are unchanged.
    """
    seed = update_seed(state.config.seed, state.progress.update)
    nats, gradients = dict[int, float](), list[Tensor]()
    for part in state.parts:
        if part in windows:
            nats[part], after = window_gradient(state, windows[part], seed, total_frames, part)
            state.carries[part] = detached(after)
        if state.config.parts > 1:
            gradients.append(_flat_gradient(state.model, has_gradient=part in windows))
    received = [dict(part) for part in group.all(list(nats.items()))]
    if gradients:
        _set_gradient(state.model, group.sum(tree_sum(gradients)))
    total = sum(each[part] for each in received for part in sorted(each))
    return total, step(state, learning_rate) if math.isfinite(total) else math.nan


def _flat_gradient(model: SequenceModel, *, has_gradient: bool) -> Tensor:
    """The gradient of all weights in one vector; zeros where a weight, or all, have none."""
    with one_thread():
        flat = [
            torch.zeros_like(weight) if weight.grad is None or not has_gradient else weight.grad
            for weight in model.parameters()
        ]
        return torch.cat([gradient.flatten() for gradient in flat])


def _set_gradient(model: SequenceModel, flat: Tensor) -> None:
    weights = list(model.parameters())
    parts = flat.split_with_sizes([weight.numel() for weight in weights])
    for weight, gradient in zip(weights, parts, strict=True):
        weight.grad = gradient.view_as(weight)


def window_gradient(
    state: TrainingState,
    batch: Batch,
    seed: int,
    total_frames: int | None = None,
    part: int = 0,
) -> tuple[float, Carry]:
    """Leave the gradient of (the window's nats) / `total_frames` on the weights.

    `total_frames` are those of all windows that share the update, by default this window's; weight
    noise depends on the `seed` alone, dropout on the `part` too. Returns the window's nats, at the
    weights with noise, and the carry after it, still attached to the graph.
    """
    model, config = state.model, state.config
    for weight in model.parameters():
        weight.grad = None
    frames = torch.from_numpy(batch.frames).to(state.device)
    carry = state.carries.get(part) or model.start(frames.shape[1], batch.metres)
    _seed(seed)
    with weight_noise(model, config.weight_noise), weight_dropout(model, config.weight_dropout):
        if config.parts > 1:  # the same noise for all, but not the same dropout
            _seed(update_seed(seed, part))
        carry = model.with_labels(carry, batch.labels, dropout=True)
        loss = window_loss(model, frames, batch.lengths, carry, total_frames, marks=batch.marks)
        loss.total.backward()  # type: ignore[no-untyped-call]
    return float(loss.nats) * (total_frames or loss.frames), loss.after


def _seed(seed: int) -> None:
    # Not torch.manual_seed, which also records a traceback for each device that is not in use.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def window_loss(
    model: SequenceModel,
    frames: Tensor,
    lengths: NDArray[np.int64],
    carry: Carry,
    total_frames: int | None = None,
    *,
    marks: Mapping[str, NDArray[np.uint8]] = {},
) -> WindowLoss:
    """The loss of frames (T, B, F) of any dtype, the first `lengths[b]` of row b.

    With that of the `marks` (T, B, D) that the model knows. Each frame weighs 1 / `total_frames`,
    by default the window's, so that gradients of several processes add up to that of the mean.
    Padding weighs nothing.
    """
    T = len(frames)
    # Plain integers: NumPy is slower for the few pieces of a batch.
    counts = [min(max(length, 0), T) for length in lengths.tolist()]
    count = sum(counts)
    weights = np.full(frames.shape[:2], 1 / (total_frames or count), np.float32)
    for row, length in enumerate(counts):
        weights[length:, row] = 0
    clipped = torch.from_numpy(np.array(counts)) if min(counts) < T else None
    h, frames, past, _ = reading = model.read(frames, carry, clipped)
    loss = model.output.loss(h, frames, past, torch.from_numpy(weights).to(h), lengths)
    mark_nats, after = model.score_marks(reading, marks)
    total = loss.total
    for each in mark_nats.values():
        total = total + each.sum() / (total_frames or count)
    return WindowLoss(total, loss.nats, count, after)


def step(state: TrainingState, learning_rate: float) -> float:
    """Apply the gradient, unless it is not finite; returns its norm before rescaling."""
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


@contextmanager
def _restored(weights: Sequence[Tensor]) -> Iterator[None]:
    """Restore the weights after the block, to the last bit."""
    with one_thread():
        clean = [weight.clone() for weight in weights]
    try:
        yield
    finally:
        with one_thread():
            for weight, saved in zip(weights, clean, strict=True):
                weight.copy_(saved)


@contextmanager
def weight_noise(model: SequenceModel, deviation: float) -> Iterator[None]:
    """Add fresh Gaussian noise to the units' matrices and peepholes for the length of the block.

    Gradients are taken at the noisy weights and applied to the clean ones (Graves 2011). Biases
    and the output layer stay clean.
    """
    if deviation == 0:
        yield
        return
    layers = (module for module in model.modules() if isinstance(module, Layer))
    noisy = [weight.detach() for layer in layers for weight in layer.noisy_weights()]
    sizes = [weight.numel() for weight in noisy]
    with _restored(noisy):
        with one_thread():
            noises = _normals(sum(sizes), noisy[0].device).split_with_sizes(sizes)
            for weight, noise in zip(noisy, noises, strict=True):
                weight.add_(noise.view_as(weight), alpha=deviation)
        yield


@contextmanager
def weight_dropout(model: SequenceModel, p: float) -> Iterator[None]:
    """Drop entries of the units' U for the length of the block, then the same of its gradient.

    Each is zeroed with probability `p`, the others are scaled up by 1 / (1 - p): DropConnect (Wan
    et al. 2013), the same over all frames of the update, as used by Merity, Keskar, Socher (2018).
    """
    if p == 0:
        yield
        return
    units = (module for module in model.modules() if isinstance(module, Unit))
    parameters = [unit.U for unit in units if unit.U is not None]
    matrices = [U.detach() for U in parameters]
    with _restored(matrices):
        with one_thread():
            factors = [dropout_factors(U, p) for U in matrices]
            for U, factor in zip(matrices, factors, strict=True):
                U.mul_(factor)
        yield
    with one_thread():
        for U, factor in zip(parameters, factors, strict=True):
            if U.grad is not None:
                U.grad.mul_(factor)


def _normals(count: int, device: torch.device) -> Tensor:
    """Standard normals (count,), from torch's generator for the device."""
    if device.type != "cpu":
        return torch.randn(count, device=device)
    from seqmodel.kernels.noise import normals  # loads the compiler

    return normals(count)
