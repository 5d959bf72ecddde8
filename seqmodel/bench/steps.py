"""Training steps as the trainer takes them, without an optimizer."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.model.sequence import SequenceModel
from seqmodel.training.loss import window_loss


def layer_step(layer: nn.Module, leaves: Iterable[Tensor], x: Tensor, d_h: Tensor) -> None:
    """Forward over x (T, B, I), then backward from d_h (T, B, H) to the leaves, x and weights."""
    layer(x)[0].backward(d_h)
    forget_gradients(leaves)


def forget_gradients(leaves: Iterable[Tensor]) -> None:
    """Clear the gradients, as an optimizer does between two steps."""
    for leaf in leaves:
        leaf.grad = None


def model_gradient(
    model: SequenceModel, weights: Iterable[Tensor], frames: Tensor, lengths: NDArray[np.int64]
) -> None:
    """The gradient of the mean nats per frame of frames (T, B, D), as training computes it."""
    forget_gradients(weights)
    window_loss(model, frames, lengths, model.start(frames.shape[1])).total.backward()  # type: ignore[no-untyped-call]
