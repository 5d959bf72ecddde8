"""Frames of notes that are independent given the past."""

from collections.abc import Callable
from typing import Self

from torch import Tensor
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.notes.linear import LinearNotesOutput
from seqmodel.outputs.notes.tied import TiedOutput
from seqmodel.outputs.protocol import CompiledDraw, Drawn, DrawSetting


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
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        """See `Output.build`."""
        notes = frame.frame_size // 2 if frame.onsets else frame.frame_size
        return cls(h_size, notes, end=config.end, onsets=frame.onsets)

    def note_logits(self, h: Tensor, frames: Tensor | None = None) -> Tensor:
        """See `NotesOutput.note_logits`; nothing depends on the frames."""
        return F.linear(h, *self.without_end())

    def compiled_nats(self) -> Callable[..., Tensor]:
        """See `LinearNotesOutput.compiled_nats`."""
        from seqmodel.outputs.bernoulli.compiled import bernoulli_nats

        return bernoulli_nats

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output.draw_frame`."""
        logits = self(h)
        frame = self.draw(logits, past, uniforms, temperature)
        return Drawn(frame, self.ends(logits, uniforms))

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.bernoulli.compiled import bernoulli_draw  # loads the compiler

        return bernoulli_draw(self, setting)


class TiedBernoulliOutput(TiedOutput):
    """The same from one unit row per note: p(x_t) = prod_n Bernoulli(x_tn; sigmoid(w h_tn + b))."""

    def __init__(
        self, hidden_size: int, notes: int, *, end: bool = False, onsets: bool = False
    ) -> None:
        super().__init__(hidden_size, hidden_size, notes, end=end, onsets=onsets)

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
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

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.notes.tied_draw import TiedDraw  # loads the compiler

        return TiedDraw(self, setting)
