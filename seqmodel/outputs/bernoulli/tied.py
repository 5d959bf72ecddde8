"""Independent notes, from one unit row per note."""

from typing import TYPE_CHECKING, Self

from torch import Tensor

from seqmodel.config import Config
from seqmodel.outputs.notes.output import FillingDraw
from seqmodel.outputs.notes.tied import TiedOutput
from seqmodel.outputs.protocol import Drawn

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Slot
    from seqmodel.media.definitions import FrameDefinition


class TiedBernoulliOutput(TiedOutput):
    """Notes independent given the past: p(x_t) = prod_n Bernoulli(x_tn; sigmoid(w h_tn + b))."""

    def __init__(
        self, hidden_size: int, notes: int, *, end: bool = False, onsets: bool = False
    ) -> None:
        super().__init__(hidden_size, hidden_size, notes, end=end, onsets=onsets)

    @classmethod
    def build(cls, config: Config, frame: "FrameDefinition", h_size: int) -> Self:
        """See `Output.build`."""
        notes = frame.frame_size // 2 if frame.onsets else frame.frame_size
        return cls(h_size, notes, end=config.end, onsets=frame.onsets)

    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """See `NotesOutput.note_logits`; nothing depends on the frames."""
        return self.logits(h.view(*frames.shape[:-1], self.notes, -1))

    def weighted_score(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> Tensor:
        """See `NotesOutput.weighted_score`."""
        return self.weighted_nats(self.note_logits(h, frames), frames, weights.unsqueeze(-1), past)

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output.draw_frame`."""
        logits = self.logits(h.view(len(uniforms), self.notes, -1))
        frame = self.draw(logits, past, uniforms, temperature)
        return Drawn(frame, self.ends(h, uniforms))

    def compiled_draw(
        self, h: "Slot", x: "Slot", arena: "Arena", chunk: int, temperature: float,
        *, fills: bool = False,
    ) -> FillingDraw:  # fmt: skip
        """See `NotesOutput.compiled_draw`."""
        from seqmodel.outputs.notes.tied_draw import TiedDraw  # loads the compiler

        return TiedDraw(self, h, x, arena, chunk, temperature, fills=fills)
