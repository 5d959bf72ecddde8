"""Training steps, as training and the comparisons take them."""

import torch
from torch import Tensor, nn

from seqmodel.model import SequenceModel


def layer_step(layer: nn.Module, x: Tensor, d_h: Tensor) -> None:
    """Forward over x (T, B, I) and backward from d_h (T, B, H), to x and all weights."""
    layer(x)[0].backward(d_h)
    x.grad = None
    layer.zero_grad()


def model_gradient(model: SequenceModel, frames: Tensor, lengths: Tensor) -> None:
    """The gradient of the mean nats per frame of pieces (T, B, D), as training takes it."""
    inside = torch.arange(len(frames)).unsqueeze(1) < lengths
    model.zero_grad()
    h, past, _ = model.read(frames, model.start(frames.shape[1]))
    nats = (model.output.score(h, frames, past) * inside).sum()
    (nats / int(inside.sum())).backward()  # type: ignore[no-untyped-call]
