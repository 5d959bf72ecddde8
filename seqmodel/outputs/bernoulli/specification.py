"""Frames of notes that are independent given the past."""

from typing import TYPE_CHECKING, Self

from torch import Tensor, sigmoid
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.kernels import device
from seqmodel.outputs.protocol import CompiledDraw, Drawn
from seqmodel.outputs.shared.notes import NotesOutput

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Slot
    from seqmodel.media.definitions import FrameDefinition


class BernoulliOutput(NotesOutput):
    """Notes independent given the past: p(x_t) = prod_k Bernoulli(x_tk; sigmoid(logit_tk))."""

    def __init__(self, hidden_size: int, notes: int, *, end: bool = False) -> None:
        super().__init__(hidden_size, notes, notes, end=end)

    @classmethod
    def build(cls, config: Config, frame: "FrameDefinition") -> Self:
        """See `Output.build`."""
        assert config.hidden is not None
        return cls(config.hidden, frame.frame_size, end=config.end)

    def note_logits(self, h: Tensor, frames: Tensor | None = None) -> Tensor:
        """See `NotesOutput.note_logits`; nothing depends on the frames."""
        return F.linear(h, *self.without_end())

    def nats(self, logits: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """-log p(x_t | x_<t) of frames (..., D) of zeros and ones, summed over notes: (...).

        `past` is unused: the logits already depend on it.
        """
        notes = logits[..., : self.notes]
        return F.binary_cross_entropy_with_logits(notes, frames, reduction="none").sum(-1)

    def score(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """`nats(forward(h), frames)`: h (T, B, H), frames (T, B, D) -> (T, B)."""
        weight, bias = self.without_end()
        if not h.numel() or device.why_not((h, weight, bias, frames)) is not None:
            return self.nats(self(h), frames)
        from seqmodel.outputs.bernoulli.score import (
            BernoulliNats,  # the compiler loads at first use
        )

        nats: Tensor = BernoulliNats.apply(h, weight, bias, frames)  # type: ignore[no-untyped-call]
        return nats

    def weighted_score(self, h: Tensor, frames: Tensor, weights: Tensor) -> Tensor:
        """See `NotesOutput.weighted_score`."""
        weight, bias = self.without_end()
        if not h.numel() or device.why_not((h, weight, bias, frames, weights)) is not None:
            return (self.nats(self(h), frames) * weights).sum()
        from seqmodel.outputs.bernoulli.score import WeightedBernoulliNats  # as above

        total: Tensor = WeightedBernoulliNats.apply(h, weight, bias, frames, weights)  # type: ignore[no-untyped-call]
        return total

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
        return (uniforms[..., : self.notes] < sigmoid(notes)).to(logits.dtype)

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output.draw_frame`."""
        logits = self(h)
        frame = self.draw(logits, past, uniforms, temperature)
        return Drawn(frame, self.ends(logits, uniforms))

    def compiled_draw(
        self, h: "Slot", x: "Slot", arena: "Arena", chunk: int, temperature: float
    ) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.bernoulli.draw import bernoulli_draw  # loads the compiler

        return bernoulli_draw(self, h, x, arena, chunk, temperature)
