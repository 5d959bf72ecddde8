"""Code generation for outputs over notes: the nats of a frame, and its draw."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, Lanes, vector_lanes
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import pack, row_matmul
from seqmodel.kernels.run.calls import Call, Slot
from seqmodel.kernels.run.signature import Array, Signature, packed
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING, Uniforms
from seqmodel.outputs.notes import LinearNotesOutput, NotesOutput
from seqmodel.outputs.protocol import DrawSetting

ITEMSIZE = 8
"""Bytes: float64 throughout."""
BYTE = ir.IntType(8)
FRAMES = (
    Array("factor", ("1",)),  # multiplies the notes' logits
    # The state of the stream before the chunk, D + 1 numbers per frame; its bits are unsigned.
    Array("uniforms", ("1",), torch.int64),
    Array("frames", ("chunk", "D"), torch.uint8),  # with space for another vector at the end
    # For a draw that `fills`: where not 0, the number's uniform; by which each number was drawn.
    Array("forced", ("chunk", "D + 1"), optional=True),
    Array("logits", ("chunk", "D + 1"), optional=True),
)
"""The fields of a `FramesDraw`."""
# D is the size of a frame, onsets included; `end` is 1 where the last column is the end's.
_SIZES = ("H", "D", "columns", "end", "chunk")
_ARRAYS = (
    Array("h", ("H",)),
    packed("weight", "H", "columns"),
    Array("bias", ("columns",)),
    Array("product", ("columns",)),
    Array("x", ("D",)),  # the last frame drawn, for the unit
    *FRAMES,
)


def write_nats(
    e: Emitter, count: Any, logits: Any, frame: Any, *, bias: Any = None, slopes: Any = None
) -> Any:
    """The sum of the nats of `count` notes, zeros and ones at `frame`, given the logits' address.

    `bias` is the address of biases to add to the logits; the nats' slopes go to `slopes`, which may
    be the logits' address.
    """

    def notes(j: Any, lanes: Lanes | None) -> Vector:
        nats, slope = _nats_and_slope(e, logits, frame, bias, j, lanes)
        if slopes is not None:
            e.store(slope.value, e.offset(slopes, j), lanes)
        return nats

    return _sum(e, count, notes)


def write_struck_nats(
    e: Emitter,
    count: Any,
    logits: Any,
    frame: Any,
    past: Any,
    *,
    bias: Any = None,
    slopes: Any = None,
) -> Any:
    """Like `write_nats`, for the bits that say which of `count` notes are struck.

    The bits follow the notes in a frame, as their logits do. Each address is of the frame's first
    number, `past` of the previous frame's. See `notes.struck_nats`: bits that are not free cost
    nothing and have no slope; an impossible frame costs infinity.
    """

    def strikes(note: Any, lanes: Lanes | None) -> Vector:
        j = e.add(count, note)
        nats, slope = _nats_and_slope(e, logits, frame, bias, j, lanes)
        sounding, struck, sounded = (
            Vector(e, e.load(e.offset(place, k), lanes))
            for place, k in ((frame, note), (frame, j), (past, note))
        )
        free, wrong = sounding * sounded, struck - sounding
        cost = Vector(e, e.zero()).replaced(wrong * wrong, ">", 0.5, math.inf)
        if slopes is not None:
            e.store(slope.replaced(free, "<", 0.5, 0.0).value, e.offset(slopes, j), lanes)
        return nats.replaced(free, "<", 0.5, cost)

    return _sum(e, count, strikes)


def _nats_and_slope(
    e: Emitter, logits: Any, frame: Any, bias: Any, j: Any, lanes: Lanes | None
) -> tuple[Vector, Vector]:
    """The nats of the numbers from j on, and their slopes with respect to the logits."""
    logit, x = (Vector(e, e.load(e.offset(place, j), lanes)) for place in (logits, frame))
    if bias is not None:
        logit = logit + Vector(e, e.load(e.offset(bias, j), lanes))
    # -log p of a sounding note is that of a silent one at the negated logit. Computed this way,
    # confident predictions lose no precision.
    sign = 1.0 - x * 2.0
    nats, probability = (logit * sign).softplus()
    return nats, sign * probability


def _sum(e: Emitter, count: Any, notes: Callable[[Any, Lanes | None], Vector]) -> Any:
    """The sum of `notes` over `count` notes, a vector at a time."""
    whole = e.builder.and_(count, e.int(-e.lanes))  # notes in full vectors
    total = [e.zero()]
    with e.carrying(0, whole, e.lanes, total) as (j, inside):
        inside[0] = (Vector(e, inside[0]) + notes(j, None)).value
    with e.carrying(whole, count, e.lanes, total) as (j, inside):
        lanes = e.first_lanes(e.builder.sub(count, j))
        inside[0] = (Vector(e, inside[0]) + notes(j, lanes).masked(lanes)).value
    return e.sum(total[0])


def draw_signature(
    name: str, sizes: tuple[str, ...] = (), arrays: tuple[Array, ...] = ()
) -> Signature:
    """The fields of a draw of notes: the shared ones, and an output's own."""
    return Signature(name, (*_SIZES, *sizes), (*_ARRAYS, *arrays))


class FramesDraw:
    """A `CompiledDraw` of notes that, if it fills, takes numbers as given: `sampling.plain`.

    Attributes:
        fields: what it reads and writes besides the output's own.
        frames: (chunk, D), as drawn.
        uniforms: (1,), where the chunk begins in the stream.
        forced: if it fills, (chunk, D + 1), read instead of the uniforms where not 0.
        logits: if it does, (chunk, D + 1), those of each frame's numbers, divided by the
            temperature, and of the end.
    """

    call: Call
    forced: Slot | None
    logits: Slot | None

    def __init__(self, output: NotesOutput, setting: DrawSetting) -> None:
        _, _, arena, chunk, temperature, fills = setting
        D = output.frame_size
        self.frames = arena.take(chunk, D, dtype=torch.uint8, spare=vector_lanes(ITEMSIZE))
        self._count, self.uniforms = chunk * (D + 1), arena.take(1, dtype=torch.int64)
        self.fields: dict[str, int | Tensor | Slot | None] = {
            "D": D, "chunk": chunk, "uniforms": self.uniforms, "frames": self.frames,
            "factor": torch.tensor([1 / temperature if temperature else 1.0], dtype=torch.float64),
        }  # fmt: skip
        self.forced = self.logits = None
        if fills:
            self.forced = arena.take(chunk, D + 1, spare=vector_lanes(ITEMSIZE) * ITEMSIZE)
            self.logits = arena.take(chunk, D + 1)
            self.fields |= {"forced": self.forced, "logits": self.logits}

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Take the uniforms of the next chunk of frames."""
        self.uniforms.of(memory).view(np.uint64)[0] = uniforms.skip(self._count)

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """The first `count` frames (count, D), zeros and ones."""
        return self.frames.of(memory)[:count].copy()


class NotesDraw(FramesDraw):
    """A `CompiledDraw` from h (H,); x (D,) holds the previous frame, then the one drawn."""

    def __init__(
        self,
        output: LinearNotesOutput,
        setting: DrawSetting,
        signature: Signature,
        own: Mapping[str, int | Tensor | Slot | None],
        write: Callable[..., None],
    ) -> None:
        """`own` are this output's own fields. At temperature 0 the factor is 1.

        `write(frame, at_zero, onsets)` stores the notes in x and in the frame's bytes.
        """
        super().__init__(output, setting)
        weight, bias = output.linear.weight, output.linear.bias.double()
        columns, H = weight.shape
        fields = self.fields | {
            "H": H, "columns": columns, "end": int(output.end), "h": setting.h, "x": setting.x,
            "weight": pack(weight), "bias": bias, "product": setting.arena.take(columns), **own,
        }  # fmt: skip
        stored, parameters = weight.element_size(), (setting.temperature == 0, output.onsets)
        library = _compiled(signature, stored, setting.fills, write, *parameters)
        self.call = Call(library.address("draw"), signature, ITEMSIZE, fields, stored)


class NotesWriter:
    """What the code that draws a frame works with."""

    def __init__(self, e: Emitter, field: dict[str, Any], n: Any, *, fills: bool) -> None:
        self.e, self.field, self.fills = e, field, fills
        self._first = e.mul(n, e.add(field["D"], 1))  # of the frame's uniforms
        self.bytes = e.builder.gep(field["frames"], [e.mul(n, field["D"])], source_etype=BYTE)
        """The address of the frame's notes."""
        self.factor = Vector(e, e.broadcast(field["factor"]))

    def output(self, j: Any, lanes: Any) -> Vector:
        """The layer's outputs from column `j` on."""
        e = self.e
        both = (e.load(e.offset(self.field[name], j), lanes) for name in ("product", "bias"))
        product, bias = (Vector(e, value) for value in both)
        return product + bias

    def below(self, logit: Vector, j: Any, lanes: Any) -> Any:
        """Which of the frame's uniforms from `j` on are below the probabilities.

        The logits of the `lanes` are written where they are asked for.
        """
        self.put_logits(logit, j, lanes)
        return self.chosen(logit, j)

    def chosen(self, logit: Vector, j: Any) -> Any:
        """The same, once the logits are written."""
        return self.uniforms(j).below(logit)

    def logit_of(self, j: Any, *, of_first: bool = False) -> Vector:
        """The logit that was written of number `j`, in all lanes; of the chunk's first frame's."""
        place = self.e.int(0) if of_first else self._first
        return Vector(self.e, self.e.broadcast(self.e.offset(self.field["logits"], place, j)))

    def put_logits(self, logit: Vector, j: Any, lanes: Any) -> None:
        """Write the logits by which the numbers from `j` on are drawn, if they are asked for."""
        if self.fills:
            self.e.store(logit.value, self.e.offset(self.field["logits"], self._first, j), lanes)

    def uniforms(self, j: Any) -> Vector:
        """A vector of the frame's uniforms, from `j` on."""
        e, b = self.e, self.e.builder
        state, n = b.load(self.field["uniforms"], typ=INT), e.add(self._first, j)

        lanes = ir.Constant(e.integers, [(lane + 1) * GAMMA % 2**64 for lane in range(e.lanes)])
        bits = b.add(e.splat(e.add(state, e.mul(n, GAMMA)), e.integers), lanes)
        for shift, factor in MIXING:
            bits = b.mul(b.xor(bits, b.lshr(bits, e.whole(shift))), e.whole(factor))
        drawn = Vector(e, b.uitofp(b.lshr(bits, e.whole(64 - BITS)), e.vector)) * 2.0**-BITS
        if not self.fills:
            return drawn
        forced = e.load(e.offset(self.field["forced"], self._first, j))
        return Vector(e, b.select(b.fcmp_ordered("==", forced, e.zero()), drawn.value, forced))

    def first(self, lanes: Any) -> Any:
        """The first of a vector of bits."""
        return self.e.builder.extract_element(lanes, ir.IntType(32)(0))


@compiled_once
def _compiled(
    signature: Signature, stored: int, fills: bool, write: Callable[..., None], *parameters: bool
) -> Library:
    """The draw; the packed weight takes `stored` bytes per number."""
    module = ir.Module(signature.name)
    with function(module, "draw", [POINTER, INT], ITEMSIZE, INT) as (e, fields, n):
        b, f = e.builder, signature.load(e, fields)
        row_matmul(e, stored, f["h"], f["weight"], f["product"], f["H"], f["columns"], False)
        frame = NotesWriter(e, f, n, fills=fills)
        write(frame, *parameters)
        with b.if_then(b.icmp_signed(">", f["end"], e.int(0))):
            one = e.first_lanes(e.int(1))
            end = frame.output(b.sub(f["columns"], e.int(1)), one)
            b.ret(b.zext(frame.first(frame.below(end, f["D"], one)), INT))
        b.ret(e.int(0))
    return Library(module)
