"""Frames of notes that are independent given the past."""

from typing import TYPE_CHECKING, Any, Self

from torch import Tensor
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.outputs.notes.linear import LinearNotesOutput
from seqmodel.outputs.notes.output import FillingDraw
from seqmodel.outputs.protocol import Drawn

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Slot
    from seqmodel.media.definitions import FrameDefinition


class BernoulliOutput(LinearNotesOutput):
    """Notes independent given the past: p(x_t) = prod_k Bernoulli(x_tk; sigmoid(logit_tk)).

    With `onsets` each note has a second logit, of being struck where it might also be held.
    """

    def __init__(
        self, hidden_size: int, notes: int, *, end: bool = False, onsets: bool = False
    ) -> None:
        columns = 2 * notes if onsets else notes
        super().__init__(hidden_size, notes, columns, end=end, onsets=onsets)

    @classmethod
    def build(cls, config: Config, frame: "FrameDefinition", h_size: int) -> Self:
        """See `Output.build`."""
        notes = frame.frame_size // 2 if frame.onsets else frame.frame_size
        return cls(h_size, notes, end=config.end, onsets=frame.onsets)

    def note_logits(self, h: Tensor, frames: Tensor | None = None) -> Tensor:
        """See `NotesOutput.note_logits`; nothing depends on the frames."""
        return F.linear(h, *self.without_end())

    def compiled_scores(self) -> tuple[Any, Any]:
        """See `LinearNotesOutput.compiled_scores`."""
        from seqmodel.outputs.bernoulli.score import BernoulliNats, WeightedBernoulliNats

        return BernoulliNats, WeightedBernoulliNats

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output.draw_frame`."""
        logits = self(h)
        frame = self.draw(logits, past, uniforms, temperature)
        return Drawn(frame, self.ends(logits, uniforms))

    def compiled_draw(
        self, h: "Slot", x: "Slot", arena: "Arena", chunk: int, temperature: float,
        *, fills: bool = False,
    ) -> FillingDraw:  # fmt: skip
        """See `NotesOutput.compiled_draw`."""
        from seqmodel.outputs.bernoulli.draw import bernoulli_draw  # loads the compiler

        return bernoulli_draw(self, h, x, arena, chunk, temperature, fills=fills)
