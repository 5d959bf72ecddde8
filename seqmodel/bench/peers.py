"""The closest torch.nn counterpart of each unit: the layer, the whole model, sampling from it.

The counterpart is not always the same unit: torch's LSTM has no peepholes, and its GRU, the
counterpart of every unit with a reset or update gate, resets after the matrix product.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.units import UnitSpec


def layer(spec: UnitSpec, inputs: int, hidden: int, layers: int = 1) -> nn.RNNBase:
    """torch.nn's counterpart of the unit: x (T, B, I) -> h (T, B, H) and the state."""
    return cast(nn.RNNBase, getattr(nn, _kind(spec))(inputs, hidden, layers))


def _kind(spec: UnitSpec) -> str:
    if "c" in spec.state:
        return "LSTM"
    return "RNN" if spec.name == "tanh" else "GRU"


class PeerModel(nn.Module):
    """A layer and a linear output; returns the summed nats of frames (T, B, D)."""

    def __init__(self, spec: UnitSpec, notes: int, hidden: int) -> None:
        super().__init__()
        self.layer, self.linear = layer(spec, notes, hidden), nn.Linear(hidden, notes)

    def forward(self, frames: Tensor) -> Tensor:
        """-log p(x_1, ..., x_T), each frame given those before it, summed over the batch."""
        past = torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])
        logits = self.linear(self.layer(past)[0])
        return F.binary_cross_entropy_with_logits(logits, frames, reduction="sum")


class PeerSampler:
    """Draws frames with a torch.nn cell, step by step; `bias` (D,) is the output layer's."""

    def __init__(self, spec: UnitSpec, hidden: int, bias: Tensor) -> None:
        notes = len(bias)
        self.cell = getattr(nn, f"{_kind(spec)}Cell")(notes, hidden)
        self.linear = nn.Linear(hidden, notes)
        with torch.no_grad():
            self.linear.bias.copy_(bias)

    @torch.inference_mode()
    def draw(self, count: int) -> Tensor:
        """Frames (count, D) of zeros and ones."""
        frame, state = torch.zeros(1, self.linear.out_features), None
        drawn = []
        for _ in range(count):
            state = self.cell(frame, state)
            h = state[0] if isinstance(state, tuple) else state
            frame = torch.bernoulli(torch.sigmoid(self.linear(h)))
            drawn.append(frame)
        return torch.cat(drawn)
