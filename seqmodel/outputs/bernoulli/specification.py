"""Frames of notes that are independent given the past."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.kernels import device
from seqmodel.outputs.bernoulli.figures import NoteFigures, describe
from seqmodel.outputs.protocol import CompiledDraw, Drawn, Loss, Output

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Slot
    from seqmodel.media.definitions import FrameDefinition


class BernoulliOutput(Output):
    """Notes independent given the past: p(x_t) = prod_k Bernoulli(x_tk; sigmoid(logit_tk)).

    With `end`, one more logit after the notes' gives the probability that the piece ends with this
    frame. Everything is computed from logits: log(sigmoid) and log(1 - sigmoid) lose all precision
    where the model is confident.
    """

    discrete = True
    frame_type = np.uint8

    def __init__(self, hidden_size: int, notes: int, *, end: bool = False) -> None:
        super().__init__()
        self.notes, self.end = notes, end
        self.frame_size, self.uniforms_per_frame = notes, notes + 1
        self.linear = nn.Linear(hidden_size, notes + end)

    @classmethod
    def build(cls, config: Config, frame: "FrameDefinition") -> Self:
        """See `Output.build`."""
        assert config.hidden is not None
        return cls(config.hidden, frame.frame_size, end=config.end)

    def start_at(self, train: Split) -> None:
        """Start at the frequency of each note and of ends in the training split."""
        self.start_at_marginals(train.totals(), train.frames, len(train))

    def start_at_marginals(self, note_counts: NDArray[np.int64], frames: int, pieces: int) -> None:
        """Set the bias to the frequencies of notes (D,) and ends, so that training starts there.

        Half a count is added on either side, so that a note never seen stays possible.
        """
        counts = np.append(note_counts, pieces) if self.end else note_counts
        logits = np.log(counts + 0.5) - np.log(frames - counts + 0.5)
        with torch.no_grad():
            self.linear.bias.copy_(torch.from_numpy(logits))

    def forward(self, h: Tensor) -> Tensor:
        """The logits (..., D), or (..., D + 1) with `end`."""
        logits: Tensor = self.linear(h)
        return logits

    def nats(self, logits: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """-log p(x_t | x_<t) of frames (..., D) of zeros and ones, summed over notes: (...).

        `past` is unused: the logits already depend on it.
        """
        notes = logits[..., : self.notes]
        return F.binary_cross_entropy_with_logits(notes, frames, reduction="none").sum(-1)

    def score(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """`nats(forward(h), frames)`: h (T, B, H), frames (T, B, D) -> (T, B)."""
        weight, bias = self._of_notes()
        if not h.numel() or device.why_not((h, weight, bias, frames)) is not None:
            return self.nats(self(h), frames)
        from seqmodel.outputs.bernoulli.score import (
            BernoulliNats,  # the compiler loads at first use
        )

        nats: Tensor = BernoulliNats.apply(h, weight, bias, frames)  # type: ignore[no-untyped-call]
        return nats

    def weighted_score(self, h: Tensor, frames: Tensor, weights: Tensor) -> Tensor:
        """The sum of `score(h, frames)` times weights (T, B), in one fused pass for training."""
        weight, bias = self._of_notes()
        if not h.numel() or device.why_not((h, weight, bias, frames, weights)) is not None:
            return (self.nats(self(h), frames) * weights).sum()
        from seqmodel.outputs.bernoulli.score import WeightedBernoulliNats  # as above

        total: Tensor = WeightedBernoulliNats.apply(h, weight, bias, frames, weights)  # type: ignore[no-untyped-call]
        return total

    def loss(
        self,
        h: Tensor,
        frames: Tensor,
        past: Tensor,
        weights: Tensor,
        lengths: NDArray[np.int64],
    ) -> Loss:
        """See `Output.loss`."""
        nats = self.weighted_score(h, frames, weights)
        if not self.end:
            return Loss(nats, nats.detach())
        last = torch.from_numpy(np.arange(len(frames))[:, None] == lengths - 1).to(h)
        ends = self.end_score(h, last)
        return Loss(nats + torch.dot(ends.view(-1), weights.view(-1)), nats.detach())

    def _of_notes(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the notes' logits, without the end's."""
        weight, bias = self.linear.weight, self.linear.bias
        return (weight[: self.notes], bias[: self.notes]) if self.end else (weight, bias)

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """`end_nats(forward(h), last)` for training, from h (T, B, H)."""
        ends = slice(self.notes, None)
        logit = F.linear(h, self.linear.weight[ends], self.linear.bias[ends]).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logit, last, reduction="none")

    def end_nats(self, logits: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (...), 1 at a piece's last frame."""
        return F.binary_cross_entropy_with_logits(logits[..., self.notes], last, reduction="none")

    def predicted(self, logits: Tensor) -> Tensor:
        """The notes (..., D) that are more likely on than off, as booleans."""
        return logits[..., : self.notes] > 0

    def draw(
        self, logits: Tensor, past: Tensor | None, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw a frame (..., D) of zeros and ones; `past` is unused.

        A note sounds where its number of `uniforms` (..., D + 1), in [0, 1), is below its
        probability. The logits are divided by `temperature`; at 0 each note takes its likelier
        value.
        """
        if temperature == 0:
            return self.predicted(logits).to(logits.dtype)
        notes = logits[..., : self.notes] / temperature
        return (uniforms[..., : self.notes] < torch.sigmoid(notes)).to(logits.dtype)

    def ends(self, logits: Tensor, uniforms: Tensor) -> Tensor:
        """Draw whether the piece ends (...) with the frame, by the last of the `uniforms`.

        The temperature does not apply: it is about which notes sound, not about a piece's length.
        """
        if not self.end:
            return torch.zeros(uniforms.shape[:-1], dtype=torch.bool)
        return uniforms[..., self.notes] < torch.sigmoid(logits[..., self.notes])

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output.draw_frame`."""
        logits = self(h)
        frame = self.draw(logits, past, uniforms, temperature)
        return Drawn(frame, self.ends(logits, uniforms))

    def compiled_draw(
        self, h: "Slot", x: "Slot", arena: "Arena", chunk: int, temperature: float
    ) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.bernoulli.draw import BernoulliDraw  # loads the compiler

        return BernoulliDraw(self, h, x, arena, chunk, temperature)

    def figures(self) -> NoteFigures:
        """Accuracy, precision and recall over all notes; the nats of ends, where they are known."""
        return NoteFigures(self)

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Output.describe`."""
        return describe(figures)
