"""The compiled draw of a frame note by note, each from its own row of h."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from llvmlite import ir

from seqmodel.kernels.code.emit import INT, POINTER
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.run.calls import Arena, Call, Nested, Slot
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.outputs.notes.below import below_size
from seqmodel.outputs.notes.below_writer import WORK, NotesBelow
from seqmodel.outputs.notes.draw import BYTE, ITEMSIZE, FramesDraw, NotesWriter
from seqmodel.outputs.notes.tied import TiedOutput

_SIZES = ("H", "notes", "D", "R", "chunk")  # D is the size of a frame, onsets included
_ARRAYS = (
    Array("h", ("notes", "H")),
    Array("weight", ("D // notes", "R")),
    Array("bias", ("D // notes",)),
    Array("end_weight", ("H",), optional=True),
    Array("end_bias", ("1",), optional=True),
    Array("factor", ("1",)),  # multiplies the notes' logits
    # The state of the stream before the chunk, D + 1 numbers per frame; its bits are unsigned.
    Array("uniforms", ("1",), torch.int64),
    Array("frames", ("chunk", "D"), torch.uint8),
    Array("kept", ("D",)),  # the previous frame, then the one drawn
)


class Steps(NamedTuple):
    """A unit that runs over the notes of a frame."""

    x: Slot
    """Its input: a note's h, and `notes_below`."""
    calls: Sequence[Call]
    """The calls that advance it by a note."""
    states: Sequence[Slot]
    """Its states, zero before the lowest note."""
    read: Slot
    """Its output."""


class TiedDraw(FramesDraw):
    """A `CompiledDraw` whose notes are drawn one after another."""

    def __init__(
        self, output: TiedOutput, h: Slot, kept: Slot, arena: Arena, chunk: int,
        temperature: float, steps: Steps | None = None,
    ) -> None:  # fmt: skip
        """`steps` read each note's row of h; without them the output layer reads the row itself."""
        super().__init__(output, arena, chunk, temperature)
        notes, H = h.shape
        weight, bias = (parameter.double() for parameter in output.linear.parameters())
        fields = self.fields | {
            "H": H, "notes": notes, "R": weight.shape[1], "h": h, "kept": kept,
            "weight": weight, "bias": bias,
        }  # fmt: skip
        if output.ending is not None:
            end_weight, end_bias = (p.double() for p in output.ending.parameters())
            fields |= {"end_weight": end_weight[0], "end_bias": end_bias}
        inner: Sequence[Call] = ()
        states = [] if steps is None else [slot.shape[0] for slot in steps.states]
        if steps is not None:
            inner = steps.calls
            fields |= {"note_x": steps.x, "read": steps.read, "work": arena.take(2 * notes + WORK)}
            fields |= {f"state{k}": slot for k, slot in enumerate(steps.states)}
        signature = _signature(tuple(states), output.onsets)
        addresses = tuple((call.function, len(call.fields)) for call in inner)
        library = _library(signature, addresses, temperature == 0, output.onsets)
        outer = Call(library.address("draw"), signature, ITEMSIZE, fields)
        self.call = Nested(outer, inner)


@compiled_once
def _signature(states: tuple[int, ...], onsets: bool) -> Signature:
    """The fields of a draw whose unit has states of these sizes; with none, without a unit."""
    of_unit = [
        Array("note_x", (f"H + {below_size(onsets=onsets)}",)),
        Array("work", (f"2 * notes + {WORK}",)),
        Array("read", ("R",)),
        *(Array(f"state{k}", (str(size),)) for k, size in enumerate(states)),
    ]
    return Signature("tied_draw", _SIZES, (*_ARRAYS, *(of_unit if states else ())))


@compiled_once
def _library(
    signature: Signature, calls: tuple[tuple[int, int], ...], at_zero: bool, onsets: bool
) -> Library:
    """draw(fields, n), which makes `calls`, addresses and field counts, for each note."""
    module = ir.Module("tied_draw")
    with function(module, "draw", [POINTER, INT], ITEMSIZE, INT) as (e, fields, n):
        b, f = e.builder, signature.load(e, fields)
        notes, H, frame = f["notes"], f["H"], NotesWriter(e, f, n)
        below = None
        if calls:
            below = NotesBelow(e, f["work"], notes, onsets=onsets)
            for array in signature.arrays:
                if array.name.startswith("state"):
                    e.clear(f[array.name], e.int(int(array.shape[0])))

        def drawn(read: Any, column: int, number: Any) -> Any:
            """Whether this number of the frame is drawn as one, given what is read of its note."""
            weight = e.offset(f["weight"], e.mul(f["R"], column))
            logit = Vector(e, e.splat(e.dot(read, weight, f["R"]), e.vector))
            logit = logit + Vector(e, e.broadcast(e.offset(f["bias"], column)))
            if at_zero:  # the likelier value
                ones = b.fcmp_ordered(">", logit.value, e.zero())
            else:
                ones = frame.below(logit * frame.factor, number)
            return frame.first(ones)

        def put(one: Any, number: Any) -> Any:
            """Write this number of the frame, and return it."""
            value = b.uitofp(one, e.real)
            b.store(value, e.offset(f["kept"], number))
            b.store(b.zext(one, BYTE), b.gep(frame.bytes, [number], source_etype=BYTE))
            return value

        with e.loop(0, notes) as note:
            read = e.offset(f["h"], e.mul(note, H))
            if below is not None:
                e.copy(read, f["note_x"], H)
                below.write(note, e.offset(f["note_x"], H))
                start = len(signature.fields)
                for address, size in calls:
                    place = b.gep(fields, [e.int(start)], source_etype=INT)
                    call_at(b, address, ir.VoidType(), [place])
                    start += size
                read = f["read"]
            before = b.load(e.offset(f["kept"], note), typ=e.real)
            sounds = drawn(read, 0, note)
            sounding, struck = put(sounds, note), None
            if onsets:
                again = e.add(notes, note)
                silent = b.fcmp_ordered("==", before, ir.Constant(e.real, 0.0))
                struck = put(b.and_(sounds, b.or_(silent, drawn(read, 1, again))), again)
            if below is not None:
                below.add(note, sounding, struck)
        _write_end(frame)
    return Library(module)


def _write_end(frame: NotesWriter) -> None:
    """Return whether the piece ends with the frame."""
    e, b, f = frame.e, frame.e.builder, frame.field
    with b.if_then(b.icmp_unsigned("!=", f["end_weight"], POINTER(None))):
        total = [e.zero()]
        with e.carrying(0, f["notes"], 1, total) as (note, inside):
            row = e.offset(f["h"], e.mul(note, f["H"]))
            of_note = e.splat(e.dot(row, f["end_weight"], f["H"]), e.vector)
            inside[0] = (Vector(e, inside[0]) + Vector(e, of_note).exp()).value
        notes = Vector(e, e.splat(b.sitofp(f["notes"], e.real), e.vector))
        logit = (Vector(e, total[0]).log() - notes.log()) + Vector(e, e.broadcast(f["end_bias"]))
        b.ret(b.zext(frame.first(frame.below(logit, f["D"])), INT))
    b.ret(e.int(0))
