"""The Bernoulli output's compiled draw."""

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.cpu.calls import Call, Own, Room
from seqmodel.cpu.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.cpu.jit import Library, compiled_once
from seqmodel.cpu.packing import pack
from seqmodel.cpu.product import RowProduct
from seqmodel.cpu.vectors import Vector
from seqmodel.outputs.bernoulli import BernoulliOutput

_SIZES = ("H", "D", "columns")
_ADDRESSES = (
    "h",  # (H,)
    "weight",  # packed
    "bias", "factor", "logits",  # (columns,); the logits are taken times the factor
    "frames", "uniforms",  # (chunk, D), (chunk, D + 1), each with room for a vector more
    "x",  # (D,): the last frame drawn, for the unit
)  # fmt: skip
_ITEMSIZE = 8  # bytes: all is computed in float64
_BYTE, _WORD = ir.IntType(8), ir.IntType(32)


class BernoulliDraw:
    """The compiled draw of single frames from h (H,), and what it reads and writes.

    `call` is that of draw(fields, n), which draws frame n of a chunk, puts it into x (D,) too, and
    returns 1 where the piece ends.
    """

    def __init__(
        self, output: BernoulliOutput, h: Own, x: Own, room: Room, chunk: int, temperature: float
    ) -> None:
        weight, bias = output.linear.weight, output.linear.bias.double()
        D, columns, vector = output.notes, len(weight), vector_lanes(_ITEMSIZE)
        self._frames = room.take(chunk, D, kind=np.uint8, spare=vector)
        self._uniforms = room.take(chunk, D + 1, kind=np.uint32, spare=4 * vector)
        self._at_zero, self._notes = temperature == 0, D
        # All logits but the end's are divided by the temperature, at 0 by next to nothing.
        factor = bias.new_ones(columns)
        factor[:D] = 1 / (temperature or sys.float_info.min)
        self.call = Call(
            _library(weight.element_size()).address("draw"),
            [
                len(weight[0]), D, columns,
                h, pack(weight.t()), bias, factor, room.take(columns), self._frames,
                self._uniforms, x,
            ],
        )  # fmt: skip

    def refill(self, memory: NDArray[np.uint8], uniforms: NDArray[np.uint32]) -> None:
        """Take the uniforms (chunk, D + 1) of the next frames, in parts of 2^32."""
        ours = self._uniforms.of(memory)
        ours[:] = uniforms
        if self._at_zero:  # below 1/2 is the probability of what is likelier off
            ours[:, : self._notes] = 2**31

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """The first `count` frames (count, D), zeros and ones."""
        return self._frames.of(memory)[:count].copy()


@compiled_once
def _library(stored: int) -> Library:
    module = ir.Module("bernoulli_draw")
    multiply = RowProduct.of(module, _ITEMSIZE, stored)
    made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "draw")
    b = ir.IRBuilder(made.append_basic_block())
    e, (fields, n) = Emitter(b, _ITEMSIZE), made.args
    f = e.fields(fields, _SIZES, _ADDRESSES)
    D, columns = f["D"], f["columns"]
    multiply(e, f["h"], f["weight"], f["logits"], f["H"], columns, False)
    uniforms = b.gep(f["uniforms"], [e.mul(n, e.add(D, 1))], source_etype=_WORD)
    frame = b.gep(f["frames"], [e.mul(n, D)], source_etype=_BYTE)

    def below(j: Any, lanes: Any) -> Any:
        """Which of the numbers from j on are drawn: their uniform is below the probability.

        That is 1 / (1 + exp(-logit)), by which nothing needs to be divided.
        """
        logit, bias, factor = (
            Vector(e, e.load(e.offset(f[name], j), lanes)) for name in ("logits", "bias", "factor")
        )
        place = b.gep(uniforms, [j], source_etype=_WORD)
        parts = b.load(place, typ=ir.VectorType(_WORD, e.lanes), align=4)
        uniform = Vector(e, b.uitofp(parts, e.vector))
        odds = ((logit + bias) * factor * -1.0).exp()
        product = uniform * odds + uniform
        drawn = b.fcmp_ordered("<", product.value, e.constant(2.0**32))
        return b.and_(drawn, lanes.mask)

    with e.loop(0, D, e.lanes) as j:
        lanes = e.first_lanes(b.sub(D, j))
        drawn = below(j, lanes)
        note = b.select(drawn, e.constant(1.0), e.zero())
        e.store(note, e.offset(f["x"], j), lanes)
        # Bytes behind the frame's end are the next frame's, which is yet to be drawn.
        whole = b.zext(drawn, ir.VectorType(_BYTE, e.lanes))
        b.store(whole, b.gep(frame, [j], source_etype=_BYTE), align=1)
    with b.if_then(b.icmp_signed(">", columns, D)):
        one = e.first_lanes(e.int(1))
        b.ret(b.zext(b.bitcast(below(D, one), ir.IntType(e.lanes)), INT))
    b.ret(e.int(0))
    return Library(module)
