"""The Bernoulli output's compiled draw."""

from llvmlite import ir

from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.outputs.bernoulli.specification import BernoulliOutput
from seqmodel.outputs.shared.notes_draw import (
    BYTE,
    Frame,
    NotesDraw,
    compile_draw,
    draw_signature,
)

_SIGNATURE = draw_signature("bernoulli_draw")


def bernoulli_draw(
    output: BernoulliOutput, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float
) -> NotesDraw:
    """The draw of a frame from h (H,)."""
    library = _library(output.linear.weight.element_size(), temperature == 0)
    return NotesDraw(output, h, x, arena, chunk, temperature, library, _SIGNATURE, {})


@compiled_once
def _library(stored: int, at_zero: bool) -> Library:
    def write(frame: Frame) -> None:
        e, b, D = frame.e, frame.e.builder, frame.field["D"]
        with e.loop(0, D, e.lanes) as j:
            lanes = e.first_lanes(b.sub(D, j))
            logit = frame.output(j, lanes)
            if at_zero:  # the likelier value
                drawn = b.fcmp_ordered(">", logit.value, e.zero())
            else:
                drawn = frame.below(logit * frame.factor, j)
            drawn = b.and_(drawn, lanes.mask)
            note = b.select(drawn, e.constant(1.0), e.zero())
            e.store(note, e.offset(frame.field["x"], j), lanes)
            # What this writes past the frame's end, the next frame overwrites.
            whole = b.zext(drawn, ir.VectorType(BYTE, e.lanes))
            b.store(whole, b.gep(frame.bytes, [j], source_etype=BYTE), align=1)

    return compile_draw(_SIGNATURE, stored, write)
