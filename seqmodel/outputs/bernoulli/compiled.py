"""The Bernoulli output, compiled: the score, and the draw.

The plain score reads and writes the logits a dozen times. Here a block of rows stays in the L1
cache from the matrix product to the nats, and gradients overwrite the logits.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.run.signature import Array
from seqmodel.outputs.linear_score import likelihood, linear_nats, rows_of
from seqmodel.outputs.notes.draw import BYTE, NotesDraw, NotesWriter, draw_signature
from seqmodel.outputs.notes.linear import LinearNotesOutput
from seqmodel.outputs.notes.nats import write_nats, write_struck_nats
from seqmodel.outputs.protocol import DrawSetting


def bernoulli_nats(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    frames: Tensor,
    past: Tensor | None,
    weights: Tensor | None = None,
) -> Tensor:
    """h (..., H), weight (D, H), bias (D,), frames (..., D) of 0 and 1 -> nats (...).

    `past` (..., D) holds the previous frames if frames have onsets, else it is None; `weights` are
    those of `linear_nats`.
    """
    seen = {"frames": rows_of(frames)}
    if past is None:
        return linear_nats(_SCORE, h, weight, bias, weights, **seen)
    return linear_nats(_ONSETS_SCORE, h, weight, bias, weights, past=rows_of(past), **seen)


def _write_score(e: Emitter, f: dict[str, Any], start: Any, rows: Any, *, onsets: bool) -> None:
    N = f["N"]
    notes = e.builder.lshr(N, e.int(1)) if onsets else N
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, N)
        logits, frame = e.offset(f["slope"], row), e.offset(f["frames"], row)
        places = {"bias": f["bias"], "slopes": logits}
        nats = write_nats(e, notes, logits, frame, **places)
        if onsets:
            past = e.offset(f["past"], row)
            struck = write_struck_nats(e, notes, logits, frame, past, **places)
            nats = e.builder.fadd(nats, struck)
        e.builder.store(nats, e.offset(f["nats"], r))


# N numbers: notes, and with onsets as many strikes.
_FRAMES, _PAST = (Array(name, ("rows", "N")) for name in ("frames", "past"))
_SCORE = likelihood("bernoulli", (), (_FRAMES,), lambda *args: _write_score(*args, onsets=False))
_ONSETS_SCORE = likelihood(
    "bernoulli_onsets", (), (_FRAMES, _PAST), lambda *args: _write_score(*args, onsets=True)
)
_DRAW = draw_signature("bernoulli_draw")


def bernoulli_draw(output: LinearNotesOutput, setting: DrawSetting) -> NotesDraw:
    """The draw of a frame from h (H,)."""
    return NotesDraw(output, setting, _DRAW, {}, _write_draw)


def _write_draw(frame: NotesWriter, at_zero: bool, onsets: bool) -> None:
    draw, D = _Drawing(frame, at_zero=at_zero), frame.field["D"]
    if not onsets:
        draw.numbers(0, D, draw.likely, as_bytes=True)
        return
    b = frame.e.builder
    notes = b.lshr(D, frame.e.int(1))

    def unless_held(j: Any, lanes: Any) -> Any:
        return b.or_(draw.likely(j, lanes), b.not_(draw.ones(b.sub(j, notes), lanes)))

    def if_sounding(j: Any, lanes: Any) -> Any:
        return b.and_(draw.ones(j, lanes), draw.ones(b.sub(j, notes), lanes))

    # While x still holds the previous frame: struck if drawn as such, or if silent before.
    draw.numbers(notes, D, unless_held, as_bytes=False)
    draw.numbers(0, notes, draw.likely, as_bytes=True)
    draw.numbers(notes, D, if_sounding, as_bytes=True)


class _Drawing:
    """Writes the numbers of a frame to x and to the frame's bytes."""

    def __init__(self, frame: NotesWriter, *, at_zero: bool) -> None:
        self._frame, self._e, self._at_zero = frame, frame.e, at_zero

    def numbers(
        self, begin: Any, end: Any, which: Callable[[Any, Any], Any], *, as_bytes: bool
    ) -> None:
        """Put numbers `begin` to `end` in x, one where `which` holds; `as_bytes`: in bytes too."""
        e, b = self._e, self._e.builder
        with e.loop(begin, end, e.lanes) as j:
            lanes = e.first_lanes(b.sub(end, j))
            drawn = b.and_(which(j, lanes), lanes.mask)
            number = b.select(drawn, e.constant(1.0), e.zero())
            e.store(number, e.offset(self._frame.field["x"], j), lanes)
            if as_bytes:  # writes past `end` are overwritten by what is drawn next
                whole = b.zext(drawn, ir.VectorType(BYTE, e.lanes))
                b.store(whole, b.gep(self._frame.bytes, [j], source_etype=BYTE), align=1)

    def likely(self, j: Any, lanes: Any) -> Any:
        """Whether the numbers from j on are drawn as ones, each by its own logit."""
        e, logit = self._e, self._frame.output(j, lanes)
        if self._at_zero:  # the likelier value
            return e.builder.fcmp_ordered(">", logit.value, e.zero())
        return self._frame.below(logit * self._frame.factor, j, lanes)

    def ones(self, j: Any, lanes: Any) -> Any:
        """Which numbers of x from j on are one."""
        e = self._e
        x = e.load(e.offset(self._frame.field["x"], j), lanes)
        return e.builder.fcmp_ordered(">", x, e.zero())
