"""The Bernoulli output's compiled draw."""

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.linear.product import RowProduct
from seqmodel.kernels.run.calls import Call, Own, Room
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING, Uniforms
from seqmodel.outputs.bernoulli.specification import BernoulliOutput

_SIZES = ("H", "D", "columns")
_ADDRESSES = (
    "h",  # (H,)
    "weight",  # packed
    "bias", "logits",  # (columns,)
    "factor",  # (1,): by which the notes' logits are multiplied
    "uniforms",  # (1,): the state of the stream before the chunk, of D + 1 numbers a frame
    "frames",  # (chunk, D), with room for a vector more
    "x",  # (D,): the last frame drawn, for the unit
)  # fmt: skip
_ITEMSIZE = 8  # bytes: all is computed in float64
_BYTE = ir.IntType(8)


class BernoulliDraw:
    """The compiled draw of single frames from h (H,), and what it reads and writes.

    `call` is that of draw(fields, n), which draws frame n of a chunk, puts it into x (D,) too, and
    returns 1 where the piece ends.
    """

    def __init__(
        self, output: BernoulliOutput, h: Own, x: Own, room: Room, chunk: int, temperature: float
    ) -> None:
        weight, bias = output.linear.weight, output.linear.bias.double()
        (columns, H), D = weight.shape, output.notes  # a column more than notes: the end
        self._frames = room.take(chunk, D, kind=np.uint8, spare=vector_lanes(_ITEMSIZE))
        self._count, self._uniforms = chunk * (D + 1), room.take(1, kind=np.uint64)
        at_zero = temperature == 0
        factor = bias.new_tensor([1.0 if at_zero else 1 / temperature])
        self.call = Call(
            _library(weight.element_size(), at_zero).address("draw"),
            [
                H, D, columns,
                h, pack(weight.t()), bias, room.take(columns), factor, self._uniforms,
                self._frames, x,
            ],
        )  # fmt: skip

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Take the uniforms of the next frames, a chunk of them."""
        self._uniforms.of(memory)[0] = uniforms.skip(self._count)

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """The first `count` frames (count, D), zeros and ones."""
        return self._frames.of(memory)[:count].copy()


@compiled_once
def _library(stored: int, at_zero: bool) -> Library:
    module = ir.Module("bernoulli_draw")
    multiply = RowProduct.of(module, _ITEMSIZE, stored)
    made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "draw")
    b = ir.IRBuilder(made.append_basic_block())
    e, (fields, n) = Emitter(b, _ITEMSIZE), made.args
    f = e.fields(fields, _SIZES, _ADDRESSES)
    D, columns = f["D"], f["columns"]
    multiply(e, f["h"], f["weight"], f["logits"], f["H"], columns, False)
    first = e.mul(n, e.add(D, 1))  # of the frame's uniforms
    factor = Vector(e, e.broadcast(f["factor"]))
    frame = b.gep(f["frames"], [e.mul(n, D)], source_etype=_BYTE)

    def logit(j: Any, lanes: Any) -> Vector:
        weighted, bias = (e.load(e.offset(f[name], j), lanes) for name in ("logits", "bias"))
        return Vector(e, weighted) + Vector(e, bias)

    def below(logit: Vector, j: Any, lanes: Any) -> Any:
        """Which of the numbers from j on are drawn: their uniform is below the probability.

        That is 1 / (1 + exp(-logit)), by which nothing needs to be divided.
        """
        uniform = _uniforms(e, b.load(f["uniforms"], typ=INT), e.add(first, j))
        product = uniform * (logit * -1.0).exp() + uniform
        return b.and_(b.fcmp_ordered("<", product.value, e.constant(1.0)), lanes.mask)

    with e.loop(0, D, e.lanes) as j:
        lanes = e.first_lanes(b.sub(D, j))
        if at_zero:  # what is likelier
            drawn = b.and_(b.fcmp_ordered(">", logit(j, lanes).value, e.zero()), lanes.mask)
        else:
            drawn = below(logit(j, lanes) * factor, j, lanes)
        note = b.select(drawn, e.constant(1.0), e.zero())
        e.store(note, e.offset(f["x"], j), lanes)
        # Bytes behind the frame's end are the next frame's, which is yet to be drawn.
        whole = b.zext(drawn, ir.VectorType(_BYTE, e.lanes))
        b.store(whole, b.gep(frame, [j], source_etype=_BYTE), align=1)
    with b.if_then(b.icmp_signed(">", columns, D)):
        one = e.first_lanes(e.int(1))
        ended = below(logit(D, one), D, one)
        b.ret(b.zext(b.bitcast(ended, ir.IntType(e.lanes)), INT))
    b.ret(e.int(0))
    return Library(module)


def _uniforms(e: Emitter, state: Any, n: Any) -> Vector:
    """A vector of the stream's uniforms, from number n behind the state on."""
    b = e.builder

    def all_lanes(number: int) -> Any:
        return ir.Constant(e.integers, [number] * e.lanes)

    lanes = [(lane + 1) * GAMMA % 2**64 for lane in range(e.lanes)]
    bits = b.add(e.splat(e.add(state, e.mul(n, GAMMA)), e.integers), ir.Constant(e.integers, lanes))
    for shift, factor in MIXING:
        bits = b.mul(b.xor(bits, b.lshr(bits, all_lanes(shift))), all_lanes(factor))
    whole = b.uitofp(b.lshr(bits, all_lanes(64 - BITS)), e.vector)
    return Vector(e, whole) * 2.0**-BITS
