"""The Bernoulli output's compiled draw."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.outputs.notes.draw import BYTE, NotesDraw, NotesWriter, compile_draw, draw_signature
from seqmodel.outputs.notes.linear import LinearNotesOutput

_SIGNATURE = draw_signature("bernoulli_draw")


def bernoulli_draw(
    output: LinearNotesOutput, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float,
    *, fills: bool,
) -> NotesDraw:  # fmt: skip
    """The draw of a frame from h (H,)."""
    stored = output.linear.weight.element_size()
    library = _library(stored, temperature == 0, output.onsets, fills)
    return NotesDraw(output, h, x, arena, chunk, temperature, library, _SIGNATURE, {}, fills=fills)


@compiled_once
def _library(stored: int, at_zero: bool, onsets: bool, fills: bool) -> Library:
    def write(frame: NotesWriter) -> None:
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

    return compile_draw(_SIGNATURE, stored, write, fills=fills)


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
