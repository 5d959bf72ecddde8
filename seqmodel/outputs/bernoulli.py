"""Frames of notes that are independent given the past: specification, compiled score and draw.

The plain score reads and writes the logits a dozen times. In the compiled one a block of rows stays
in the L1 cache from the matrix product to the nats, and gradients overwrite the logits.
"""

from typing import Any, Self

from torch import Tensor
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.language import copy, translate
from seqmodel.kernels.run.signature import Array
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.draws import LinearNotesDraw, LinearNotesWriter
from seqmodel.outputs.linear_score import likelihood, linear_nats, rows_of
from seqmodel.outputs.notes import LinearNotesOutput, needed, note_count
from seqmodel.outputs.notes_kernels import write_frame_nats
from seqmodel.outputs.notes_tied import TiedDraw, TiedOutput
from seqmodel.outputs.protocol import CompiledDraw, DrawSetting


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
        return cls(h_size, note_count(frame), end=config.end, onsets=frame.onsets)

    def note_logits(
        self, h: Tensor, frames: Tensor | None = None, past: Tensor | None = None
    ) -> Tensor:
        """See `NotesOutput.note_logits`; nothing depends on the frames."""
        return F.linear(h, *self.without_end())

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        before = rows_of(needed(past)) if self.onsets else None
        layer = self.without_end()
        return linear_nats(_SCORE, weights, h, *layer, frames=rows_of(frames), past=before)

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        return LinearNotesDraw(self, setting, _DRAW, _write_draw)


class TiedBernoulliOutput(TiedOutput):
    """The same from one unit row per note: p(x_t) = prod_n Bernoulli(x_tn; sigmoid(w h_tn + b))."""

    def __init__(
        self, hidden_size: int, notes: int, *, end: bool = False, onsets: bool = False
    ) -> None:
        super().__init__(hidden_size, hidden_size, notes, end=end, onsets=onsets)

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        return cls(h_size, note_count(frame), end=config.end, onsets=frame.onsets)

    def note_logits(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """See `NotesOutput.note_logits`; nothing depends on the frames."""
        logits: Tensor = self(h)
        return logits

    def forward(self, h: Tensor) -> Tensor:
        """The logits (..., B, F) of frames, from h (..., B D, H)."""
        return self.logits(h.view(*h.shape[:-2], -1, self.notes, h.shape[-1]))

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        return TiedDraw(self, setting)


def _write_score(e: Emitter, f: dict[str, Any], r: Any, _: Any) -> None:
    logits = e.offset(f["slope"], e.mul(r, f["N"]))
    nats = write_frame_nats(e, f, r, f["N"], logits, bias=f["bias"], slopes=logits)
    e.builder.store(nats, e.offset(f["nats"], r))


# N numbers: notes, and with onsets as many strikes, which depend on the past.
_FRAMES, _PAST = Array("frames", ("rows", "N")), Array("past", ("rows", "N"), optional=True)
_SCORE = likelihood("bernoulli", (), (_FRAMES, _PAST), _write_score)
_DRAW = LinearNotesWriter.signature("bernoulli_draw")


def _write_draw(frame: LinearNotesWriter, at_zero: bool, onsets: bool) -> None:
    e, b, D = frame.e, frame.e.builder, frame.field["D"]
    factor = frame.broadcast("factor", 0)

    def draw(j: Any, lanes: Any) -> None:
        """Each number by its own logit, whose place it takes; at temperature 0 the likelier."""
        logit = frame.output(j, lanes)
        positive = b.fcmp_ordered(">", logit.value, e.zero())
        one = positive if at_zero else frame.below(logit * factor, j, lanes)
        number = b.select(one, e.constant(1.0), e.zero())
        e.store(number, e.offset(frame.field["product"], j), lanes)

    e.columns(D, draw)
    notes = b.lshr(D, e.int(1)) if onsets else D
    drawn, x = frame.array("product"), frame.array("x")
    translate(e, put_frame, drawn=drawn, x=x, notes=notes, onsets=onsets)


def put_frame(drawn: Any, x: Any, notes: Any, onsets: bool) -> None:
    """Replace the previous frame by the one drawn; see `notes` for which strikes are free."""
    if onsets:
        for n in range(notes):
            x[notes + n] = drawn[n] * max(drawn[notes + n], 1.0 - x[n])
    copy(drawn, x, notes)
