"""Shared by the outputs of the sample-wise model, over single samples."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from seqmodel.data.dataset import Split
from seqmodel.outputs.ends import EndingOutput, log_odds
from seqmodel.outputs.protocol import Drawn, Loss
from seqmodel.outputs.samples.blocks import SampleBlocksOutput


class SampleWiseOutput(SampleBlocksOutput, EndingOutput):
    """An output over samples one at a time, each from its own row of h.

    A frame is of S samples, and the rows of a frame follow each other. Pieces end with a frame: the
    row of its last sample says whether.
    """

    def __init__(self, h_size: int, frame_size: int, components: int, *, end: bool = False) -> None:
        """`h_size` is the size of a row, `frame_size` is S."""
        self.steps, self.end = frame_size, end
        super().__init__(h_size, 1, components, mean=0.0, deviation=1.0, context=1)
        self.uniforms_per_frame += end
        if end:
            self.ending = nn.Linear(h_size, 1)
            with torch.no_grad():
                self.ending.weight.mul_(0.1)

    def start_at(self, train: Split) -> None:
        """Start at the share in train of frames that are a piece's last."""
        if self.ending is not None:
            with torch.no_grad():
                self.ending.bias.copy_(log_odds(np.array([len(train)]), train.frames))

    def loss(
        self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor, lengths: NDArray[np.int64]
    ) -> Loss:
        """See `Output.loss`."""
        nats = self.weighted_score(h, frames, past, weights)
        return self.with_ends(nats, h, weights, lengths)

    def weighted_score(self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor) -> Tensor:
        """The sum of the frames' nats times weights (T, B), for training."""
        return torch.dot(self.score(h, frames, past).reshape(-1), weights.reshape(-1))

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """See `EndingOutput.end_score`: h (T S, B, H)."""
        logits = self.end_logits(h[self.steps - 1 :: self.steps])
        return functional.binary_cross_entropy_with_logits(logits, last, reduction="none")

    def end_logits(self, h: Tensor) -> Tensor:
        """The logits (...) of the end, from rows of h (..., H)."""
        assert self.ending is not None
        logits: Tensor = self.ending(h)
        return logits.squeeze(-1)

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output.draw_frame`.

        Whether the piece ends follows from the last of the uniforms, whatever the temperature.
        """
        drawn = super().draw_frame(h, past, uniforms, temperature)
        if not self.end:
            return drawn
        return Drawn(drawn.frame, uniforms[:, -1] < torch.sigmoid(self.end_logits(h)))

    def of_steps(self, frames: Tensor) -> Tensor:
        """The samples (T S, B) of frames (T, B, S), one for each row of h."""
        return frames.transpose(1, 2).flatten(0, 1)

    def of_frames(self, nats: Tensor) -> Tensor:
        """The nats of frames (T, B) from those of their samples (T S, B)."""
        return nats.view(len(nats) // self.steps, self.steps, nats.shape[1]).sum(1)
