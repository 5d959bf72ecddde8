"""Training steps, as training and the comparisons take them."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.model import SequenceModel
from seqmodel.training.loss import mean_nats


def layer_step(layer: nn.Module, x: Tensor, d_h: Tensor) -> None:
    """Forward over x (T, B, I) and backward from d_h (T, B, H), to x and all weights."""
    layer(x)[0].backward(d_h)
    x.grad = None
    layer.zero_grad()


def model_gradient(model: SequenceModel, frames: Tensor, lengths: NDArray[np.int64]) -> None:
    """The gradient of the mean nats per frame of pieces (T, B, D), as training takes it."""
    model.zero_grad()
    mean_nats(model, frames, lengths, model.start(frames.shape[1])).mean.backward()  # type: ignore[no-untyped-call]
