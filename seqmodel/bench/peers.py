"""The closest torch.nn counterpart of each unit and model.

The counterpart is not always the same unit: torch's LSTM has no peepholes, and its GRU, the
counterpart of every unit with a reset or update gate, resets after the matrix product.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.model.encoder import Past
from seqmodel.model.notes import NoteEncoder
from seqmodel.outputs.note_unit import note_inputs, notes_below
from seqmodel.outputs.notes_tied import below_size
from seqmodel.units import UnitSpec


def layer(spec: UnitSpec, inputs: int, hidden: int) -> nn.RNNBase:
    """torch.nn's counterpart of the unit: x (T, B, I) -> h (T, B, H) and the state."""
    return cast(nn.RNNBase, getattr(nn, _kind(spec))(inputs, hidden))


def _kind(spec: UnitSpec) -> str:
    if "c" in spec.state:
        return "LSTM"
    return "RNN" if spec.name == "tanh" else "GRU"


class FrameWise(nn.Module):
    """A layer over frames of `notes` (D) and a linear output; draws with torch.nn's cell."""

    def __init__(self, spec: UnitSpec, notes: int, hidden: int) -> None:
        super().__init__()
        self.layer, self.linear = layer(spec, notes, hidden), nn.Linear(hidden, notes)
        self.cell = getattr(nn, f"{_kind(spec)}Cell")(notes, hidden)

    def forward(self, frames: Tensor) -> Tensor:
        """-log p(x_1, ..., x_T) of frames (T, B, D), summed over the batch."""
        past = torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])
        logits = self.linear(self.layer(past)[0])
        return F.binary_cross_entropy_with_logits(logits, frames, reduction="sum")

    @torch.inference_mode()
    def draw(self, count: int) -> Tensor:
        """Frames (count, D), drawn step by step."""
        frame, state, drawn = torch.zeros(1, self.linear.out_features), None, []
        for _ in range(count):
            state = self.cell(frame, state)
            h = state[0] if isinstance(state, tuple) else state
            frame = torch.bernoulli(torch.sigmoid(self.linear(h)))
            drawn.append(frame)
        return torch.cat(drawn)


class Tied(nn.Module):
    """The tied model's own inputs, torch.nn's layers along time and along pitch, a linear layer."""

    def __init__(self, spec: UnitSpec, notes: int, hidden: int, note_hidden: int) -> None:
        super().__init__()
        self.encoder = NoteEncoder(notes)
        self.time = layer(spec, self.encoder.input_size, hidden)
        self.pitch = layer(spec, hidden + below_size(onsets=False), note_hidden)
        self.linear = nn.Linear(note_hidden, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """-log p(x_1, ..., x_T) of frames (T, B, D), summed over the batch."""
        T, B, D = frames.shape
        h = self.time(self.encoder.encode(frames, self.encoder.start(frames, B)).inputs)[0]
        flat = frames.view(T * B, D)
        read = self.pitch(note_inputs(h.reshape(T * B, D, -1), flat))[0]
        logits = self.linear(read).squeeze(2)
        return F.binary_cross_entropy_with_logits(logits, flat.t(), reduction="sum")

    @torch.inference_mode()
    def draw(self, count: int) -> Tensor:
        """Frames (count, D), drawn note by note."""
        frame, state, drawn = torch.zeros(1, self.encoder.rows), None, []
        for _ in range(count):
            h, state = self.time(self.encoder.encode_next(Past(frame)).inputs, state)
            frame, note_state = torch.zeros(1, self.encoder.rows), None
            for n in range(self.encoder.rows):
                x = torch.cat([h[0, n : n + 1], notes_below(frame, onsets=False)[n]], 1)
                read, note_state = self.pitch(x.unsqueeze(0), note_state)
                frame[:, n] = torch.bernoulli(torch.sigmoid(self.linear(read[0, 0])))
            drawn.append(frame)
        return torch.cat(drawn)
