"""The Bernoulli output's compiled draw."""

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import RowMatMul
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.kernels.run.signature import Array, Signature, packed
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING, Uniforms
from seqmodel.outputs.bernoulli.specification import BernoulliOutput

_SIGNATURE = Signature(
    "bernoulli_draw",
    ("H", "D", "columns", "chunk"),  # a column more than notes where the end is drawn too
    (
        Array("h", ("H",)),
        packed("weight", "H", "columns"),
        Array("bias", ("columns",)),
        Array("logits", ("columns",)),
        Array("factor", ("1",)),  # multiplies the notes' logits
        # The state of the stream before the chunk, of D + 1 numbers a frame; its bits are unsigned.
        Array("uniforms", ("1",), torch.int64),
        Array("frames", ("chunk", "D"), torch.uint8),  # with space for another vector behind them
        Array("x", ("D",)),  # the last frame drawn, for the unit
    ),
)
_ITEMSIZE = 8  # bytes: float64 throughout
_BYTE = ir.IntType(8)


class BernoulliDraw:
    """A compiled draw from h (H,), frame by frame, and the buffers that it reads and writes.

    `call` is draw(fields, n): it draws frame n of a chunk, copies it to x (D,), and returns whether
    the piece ends there.
    """

    def __init__(
        self,
        output: BernoulliOutput,
        h: Slot,
        x: Slot,
        arena: Arena,
        chunk: int,
        temperature: float,
    ) -> None:
        weight, bias = output.linear.weight, output.linear.bias.double()
        (columns, H), D = weight.shape, output.notes
        self._frames = arena.take(chunk, D, dtype=torch.uint8, spare=vector_lanes(_ITEMSIZE))
        self._count, self._uniforms = chunk * (D + 1), arena.take(1, dtype=torch.int64)
        at_zero = temperature == 0
        factor = bias.new_tensor([1.0 if at_zero else 1 / temperature])
        stored = weight.element_size()
        fields: dict[str, int | Tensor | Slot] = {
            "H": H, "D": D, "columns": columns, "chunk": chunk, "h": h,
            "weight": pack(weight.t()), "bias": bias, "logits": arena.take(columns),
            "factor": factor, "uniforms": self._uniforms, "frames": self._frames, "x": x,
        }  # fmt: skip
        address = _library(stored, at_zero).address("draw")
        self.call = Call(address, _SIGNATURE, _ITEMSIZE, fields, stored)

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Take the uniforms of the next chunk of frames."""
        self._uniforms.of(memory).view(np.uint64)[0] = uniforms.skip(self._count)

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """The first `count` frames (count, D), zeros and ones."""
        return self._frames.of(memory)[:count].copy()


@compiled_once
def _library(stored: int, at_zero: bool) -> Library:
    module = ir.Module("bernoulli_draw")
    matmul = RowMatMul.of(module, _ITEMSIZE, stored)
    made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "draw")
    b = ir.IRBuilder(made.append_basic_block())
    e, (fields, n) = Emitter(b, _ITEMSIZE), made.args
    f = _SIGNATURE.load(e, fields)
    D, columns = f["D"], f["columns"]
    matmul(e, f["h"], f["weight"], f["logits"], f["H"], columns, False)
    first = e.mul(n, e.add(D, 1))  # of the frame's uniforms
    factor = Vector(e, e.broadcast(f["factor"]))
    frame = b.gep(f["frames"], [e.mul(n, D)], source_etype=_BYTE)

    def logit(j: Any, lanes: Any) -> Vector:
        weighted, bias = (e.load(e.offset(f[name], j), lanes) for name in ("logits", "bias"))
        return Vector(e, weighted) + Vector(e, bias)

    def below(logit: Vector, j: Any, lanes: Any) -> Any:
        """Whether the uniforms of columns from j on are below their probability.

        u < 1 / (1 + exp(-logit)) is tested as u (1 + exp(-logit)) < 1, without a division.
        """
        uniform = _uniforms(e, b.load(f["uniforms"], typ=INT), e.add(first, j))
        product = uniform * (logit * -1.0).exp() + uniform
        return b.and_(b.fcmp_ordered("<", product.value, e.constant(1.0)), lanes.mask)

    with e.loop(0, D, e.lanes) as j:
        lanes = e.first_lanes(b.sub(D, j))
        if at_zero:  # the likelier value
            drawn = b.and_(b.fcmp_ordered(">", logit(j, lanes).value, e.zero()), lanes.mask)
        else:
            drawn = below(logit(j, lanes) * factor, j, lanes)
        note = b.select(drawn, e.constant(1.0), e.zero())
        e.store(note, e.offset(f["x"], j), lanes)
        # What this writes past the frame's end, the next frame overwrites.
        whole = b.zext(drawn, ir.VectorType(_BYTE, e.lanes))
        b.store(whole, b.gep(frame, [j], source_etype=_BYTE), align=1)
    with b.if_then(b.icmp_signed(">", columns, D)):
        one = e.first_lanes(e.int(1))
        ended = below(logit(D, one), D, one)
        b.ret(b.zext(b.bitcast(ended, ir.IntType(e.lanes)), INT))
    b.ret(e.int(0))
    return Library(module)


def _uniforms(e: Emitter, state: Any, n: Any) -> Vector:
    """A vector of the stream's uniforms, starting with number n after `state`."""
    b = e.builder

    def all_lanes(number: int) -> Any:
        return ir.Constant(e.integers, [number] * e.lanes)

    lanes = [(lane + 1) * GAMMA % 2**64 for lane in range(e.lanes)]
    bits = b.add(e.splat(e.add(state, e.mul(n, GAMMA)), e.integers), ir.Constant(e.integers, lanes))
    for shift, factor in MIXING:
        bits = b.mul(b.xor(bits, b.lshr(bits, all_lanes(shift))), all_lanes(factor))
    whole = b.uitofp(b.lshr(bits, all_lanes(64 - BITS)), e.vector)
    return Vector(e, whole) * 2.0**-BITS
