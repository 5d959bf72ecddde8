"""Frames of notes of which each depends on those below it: a NADE."""

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.errors import UsageError
from seqmodel.kernels import device
from seqmodel.outputs.protocol import CompiledDraw, Drawn
from seqmodel.outputs.shared.notes import NotesOutput

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Slot
    from seqmodel.media.definitions import FrameDefinition


class NadeOutput(NotesOutput):
    """Notes from the lowest to the highest, each given those below and the past.

    A NADE (Larochelle and Murray 2011) whose biases are affine in h, as in the RNN-NADE of
    Boulanger-Lewandowski et al. 2012:

        b_v = W_v h + c_v,  b_h = W_h h + c_h
        a_d = b_h + sum_{e<d} x_e V_e
        p(x_d = 1 | x_<d, h) = s(b_v,d + U_d . s(a_d))

    s is the logistic sigmoid, b_v has D numbers, b_h and each row of V and U (D, K) have K. The
    layer `linear` computes b_v, then b_h, then the logit of the end, where there is one.
    """

    def __init__(self, hidden_size: int, notes: int, width: int, *, end: bool = False) -> None:
        """`width` is K."""
        super().__init__(hidden_size, notes, notes + width, end=end)
        self.width = width
        # At zero the notes start out independent, at b_v. The rows of W_h, which are random, keep
        # the hidden units apart.
        self.V = nn.Parameter(torch.zeros(notes, width))
        self.U = nn.Parameter(torch.zeros(notes, width))

    @classmethod
    def build(cls, config: Config, frame: "FrameDefinition") -> Self:
        """See `Output.build`."""
        assert config.hidden is not None
        if frame.onsets:
            raise UsageError(
                "--output nade does not know notes struck and held: take bernoulli, or prepare the "
                f"{frame.medium.name} without --onsets"
            )
        return cls(config.hidden, frame.frame_size, config.nade_hidden, end=config.end)

    def conditional_logits(self, outputs: Tensor, frames: Tensor) -> Tensor:
        """The logit of each note given those below it in frames (..., D): (..., D).

        `outputs` (..., D + K or more) are the layer's. Takes D K numbers a frame.
        """
        b_v, b_h = outputs[..., : self.notes], outputs[..., self.notes : self.notes + self.width]
        steps = frames.unsqueeze(-1) * self.V
        a = torch.cat([b_h.unsqueeze(-2), steps[..., :-1, :]], -2).cumsum(-2)
        return b_v + (self.U * a.sigmoid()).sum(-1)

    def nats(self, outputs: Tensor, frames: Tensor) -> Tensor:
        """-log p(x_t | x_<t) of frames (..., D) of zeros and ones: (...)."""
        logits = self.conditional_logits(outputs, frames)
        return F.binary_cross_entropy_with_logits(logits, frames, reduction="none").sum(-1)

    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """See `NotesOutput.note_logits`; given the frame's lower notes. Without a gradient."""
        with torch.no_grad():
            if self._only_plain(h, frames):
                return self.conditional_logits(self(h), frames)
            from seqmodel.outputs.nade.score import (
                conditional_logits,  # the compiler loads at first use
            )

            return conditional_logits(h, *self.without_end(), self.V, self.U, frames)

    def score(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """`nats(forward(h), frames)`: h (T, B, H), frames (T, B, D) -> (T, B)."""
        if self._only_plain(h, frames):
            return self.nats(self(h), frames)
        from seqmodel.outputs.nade.score import NadeNats  # as above

        nats: Tensor = NadeNats.apply(h, *self.without_end(), self.V, self.U, frames)  # type: ignore[no-untyped-call]
        return nats

    def weighted_score(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> Tensor:
        """See `NotesOutput.weighted_score`."""
        if self._only_plain(h, frames, weights):
            return (self.nats(self(h), frames) * weights).sum()
        from seqmodel.outputs.nade.score import WeightedNadeNats  # as above

        total: Tensor = WeightedNadeNats.apply(  # type: ignore[no-untyped-call]
            h, *self.without_end(), self.V, self.U, frames, weights
        )
        return total

    def _only_plain(self, h: Tensor, *others: Tensor) -> bool:
        """Whether compiled code cannot run over these tensors."""
        return not h.numel() or device.why_not((h, *others, *self.parameters())) is not None

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """Draw a frame of each piece, from the lowest note to the highest.

        A note sounds where its number of `uniforms` (B, D + 1), in [0, 1), is below its
        probability given the notes drawn so far. Each conditional logit is divided by
        `temperature`; at 0 each note in turn takes its likelier value.
        """
        outputs = self(h)
        b_v, a = outputs[:, : self.notes], outputs[:, self.notes : self.notes + self.width]
        notes: list[Tensor] = []
        for d in range(self.notes):
            logit = b_v[:, d] + a.sigmoid() @ self.U[d]
            if temperature == 0:
                note = logit > 0
            else:
                note = uniforms[:, d] < torch.sigmoid(logit / temperature)
            notes.append(note.to(h.dtype))
            a = a + notes[-1].unsqueeze(1) * self.V[d]
        return Drawn(torch.stack(notes, 1), self.ends(outputs, uniforms))

    def compiled_draw(
        self, h: "Slot", x: "Slot", arena: "Arena", chunk: int, temperature: float
    ) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.nade.draw import nade_draw  # loads the compiler

        return nade_draw(self, h, x, arena, chunk, temperature)
