"""Frames of notes that are independent given the past: specification, compiled score and draw.

The plain score reads and writes the logits a dozen times. In the compiled score a block of rows
stays in the L1 cache from the matrix product to the nats, and gradients overwrite the logits.
"""

import math
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from seqmodel.kernels.code.emit import POINTER, Emitter, Lanes
from seqmodel.kernels.code.language import copy, side_by_side
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.run.signature import Array
from seqmodel.outputs.draws import LinearNotesDraw, below
from seqmodel.outputs.linear_score import likelihood, linear_nats, rows_of
from seqmodel.outputs.notes import LinearNotesOutput, require_past
from seqmodel.outputs.notes_tied import TiedDraw, TiedOutput
from seqmodel.outputs.protocol import DrawSetting


class BernoulliOutput(LinearNotesOutput):
    """Notes independent given the past: p(x_t) = prod_k Bernoulli(x_tk; sigmoid(logit_tk)).

    With `onsets` each note has a second logit: that it is struck if it might also be held.
    """

    def note_logits(
        self, h: Tensor, frames: Tensor | None = None, past: Tensor | None = None
    ) -> Tensor:
        return F.linear(h, *self.without_end())

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        before = rows_of(require_past(past)) if self.onsets else None
        layer = self.without_end()
        return linear_nats(_SCORE, weights, h, *layer, frames=rows_of(frames), past=before)

    def compiled_draw(self, setting: DrawSetting) -> LinearNotesDraw:
        return LinearNotesDraw(self, setting, draw_at_once)


class TiedBernoulliOutput(TiedOutput):
    """The same from one unit row per note: p(x_t) = prod_n Bernoulli(x_tn; sigmoid(w h_tn + b))."""

    def note_logits(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        return self(h)

    def forward(self, h: Tensor) -> Tensor:
        """The logits (..., B, F) of frames, from h (..., B D, H)."""
        return self.logits(h.view(*h.shape[:-2], -1, self.notes, h.shape[-1]))

    def compiled_draw(self, setting: DrawSetting) -> TiedDraw:
        return TiedDraw(self, setting)


def _write_score(e: Emitter, f: dict[str, Any], r: Any, _: Any) -> None:
    logits = e.offset(f["slope"], e.mul(r, f["N"]))
    nats = write_frame_nats(e, f, r, f["N"], logits, bias=f["bias"], slopes=logits)
    e.builder.store(nats, e.offset(f["nats"], r))


def write_frame_nats(
    e: Emitter,
    f: dict[str, Any],
    r: Any,
    D: Any,
    logits: Any,
    *,
    bias: Any = None,
    slopes: Any = None,
) -> Any:
    """The nats of row `r` of the fields `frames` and, with onsets, `past`, given its D logits.

    `bias` is the address of biases added to the logits. The nats' slopes go to `slopes`, which may
    be the logits' address.
    """
    b, row = e.builder, e.mul(r, D)
    frame, past = e.offset(f["frames"], row), e.offset(f["past"], row)
    onsets = b.icmp_unsigned("!=", f["past"], POINTER(None))
    notes = b.select(onsets, b.lshr(D, e.int(1)), D)

    def load(address: Any, j: Any, lanes: Lanes | None) -> Vector:
        return Vector(e, e.load(e.offset(address, j), lanes))

    def nats_and_slope(j: Any, lanes: Lanes | None) -> tuple[Vector, Vector]:
        """The nats of the numbers from j on, and their slopes with respect to the logits."""
        logit, x = load(logits, j, lanes), load(frame, j, lanes)
        if bias is not None:
            logit = logit + load(bias, j, lanes)
        # -log p of a sounding note is that of a silent one at the negated logit. Computed this way,
        # confident predictions lose no precision.
        sign = 1.0 - x * 2.0
        nats, probability = (logit * sign).softplus()
        return nats, sign * probability

    def store_slope(nats: Vector, slope: Vector, j: Any, lanes: Lanes | None) -> Any:
        if slopes is not None:
            e.store(slope.value, e.offset(slopes, j), lanes)
        return (nats.masked(lanes) if lanes else nats).value

    def sounds(j: Any, lanes: Lanes | None) -> Any:
        return store_slope(*nats_and_slope(j, lanes), j, lanes)

    def strikes(note: Any, lanes: Lanes | None) -> Any:
        """The nats of the bits that state which notes are struck; they follow a frame's notes.

        See `NotesOutput.onset_nats`: bits that are not free cost nothing and have no slope; an
        impossible frame costs infinity.
        """
        j = e.add(notes, note)
        nats, slope = nats_and_slope(j, lanes)
        sounding, struck = load(frame, note, lanes), load(frame, j, lanes)
        free, mismatch = sounding * load(past, note, lanes), struck - sounding
        cost = Vector(e, e.zero()).replaced(mismatch * mismatch, ">", 0.5, math.inf)
        nats, slope = nats.replaced(free, "<", 0.5, cost), slope.replaced(free, "<", 0.5, 0.0)
        return store_slope(nats, slope, j, lanes)

    total = [e.sum_of(notes, sounds)]
    with e.when(onsets, total) as inside:
        inside[0] = b.fadd(inside[0], e.sum_of(notes, strikes))
    return total[0]


# N numbers: notes and, with onsets, as many strikes, which depend on the past.
_FRAMES, _PAST = Array("frames", ("rows", "N")), Array("past", ("rows", "N"), optional=True)
_SCORE = likelihood("bernoulli", (), (_FRAMES, _PAST), _write_score)


def draw_at_once(f: Any) -> None:
    """Draw each number in place of its own logit, a text of `kernels.code.language`."""
    for j in range(0, f.D, f.lanes):
        side_by_side(f.product[j:])[0] = side_by_side(f.product[j:])[0] * f.factor[0]
    if f.fills:
        copy(f.product, f.logits[f.stream[1] * f.numbers :], f.D)
    for j in range(0, f.D, f.lanes):
        logit = side_by_side(f.product[j:])[0]
        one = logit > 0.0 if f.at_zero else below(side_by_side(f.uniforms[j:])[0], logit)
        side_by_side(f.product[j:])[0] = 1.0 if one else 0.0
    if f.onsets:  # see `notes` for free strikes
        for n in range(f.notes):
            f.x[f.notes + n] = f.product[n] * max(f.product[f.notes + n], 1.0 - f.x[n])
    copy(f.product, f.x, f.notes)
