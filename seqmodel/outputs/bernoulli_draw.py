"""The Bernoulli output's compiled draw."""

import ctypes
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.cpu.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.cpu.jit import Library, compiled_once
from seqmodel.cpu.packing import pack
from seqmodel.cpu.product import Product
from seqmodel.cpu.vectors import GATE_ACTIVATIONS, Vector
from seqmodel.outputs.bernoulli import BernoulliOutput

_SIZES = ("H", "D", "columns")
_ADDRESSES = (
    "h",  # (H,)
    "weight",  # packed
    "bias", "logits",  # (columns,)
    "frames", "uniforms",  # (chunk, D) and room for a vector more, (chunk, D + 1)
    "x",  # (D,): the last frame drawn, for the unit
)  # fmt: skip


class BernoulliDraw:
    """The compiled draw of single frames from h, and what it reads and writes.

    `address` is that of draw(fields, n), which draws frame n of a chunk from h (H,), puts it into
    x (D,) too, and returns 1 where the piece ends. Everything is computed in the type of h.
    """

    def __init__(
        self, output: BernoulliOutput, h: Tensor, x: Tensor, *, chunk: int, temperature: float
    ) -> None:
        weight, bias = output.linear.weight.to(h), output.linear.bias.to(h)
        D, columns = output.notes, len(weight)  # a column more than notes: the end
        room = torch.empty(chunk * D + vector_lanes(h.element_size()), dtype=torch.uint8)
        self._frames = room[: chunk * D].view(chunk, D)
        self._uniforms = h.new_empty(chunk, D + 1)
        # Dividing the weights divides the logits, but for the end's.
        scale = h.new_ones(columns, 1)
        scale[:D] = 1 / temperature if temperature > 0 else 1
        self._at_zero = temperature == 0
        tensors = (
            h, pack((weight * scale).t()), bias * scale[:, 0], h.new_empty(columns),
            self._frames, self._uniforms, x,
        )  # fmt: skip
        numbers = [len(h), D, columns, *(tensor.data_ptr() for tensor in tensors)]
        array = (ctypes.c_int64 * len(numbers))(*numbers)
        library = _library(h.element_size())
        self.address, self.fields = library.address("draw"), ctypes.addressof(array)
        self._alive = tensors, array, library

    def refill(self, uniforms: NDArray[np.float32]) -> None:
        """Take the uniforms (chunk, D + 1) of the next frames."""
        self._uniforms.copy_(torch.from_numpy(uniforms))
        if self._at_zero:  # below 1/2 is the probability of what is likelier off
            self._uniforms[:, : self._frames.shape[1]] = 0.5

    def drawn(self, count: int) -> NDArray[np.uint8]:
        """The first `count` frames (count, D), zeros and ones."""
        return self._frames[:count].numpy().copy()


@compiled_once
def _library(itemsize: int) -> Library:
    module = ir.Module("bernoulli_draw")
    multiply = Product.of(module, itemsize)
    made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "draw")
    b = ir.IRBuilder(made.append_basic_block())
    e, (fields, n) = Emitter(b, itemsize), made.args
    f = e.fields(fields, _SIZES, _ADDRESSES)
    H, D, columns, logits = f["H"], f["D"], f["columns"], f["logits"]
    multiply(e, f["h"], H, f["weight"], logits, columns, e.int(1), H, columns, False)
    uniforms = e.offset(f["uniforms"], e.mul(n, e.add(D, 1)))
    frame = b.gep(f["frames"], [e.mul(n, D)], source_etype=ir.IntType(8))

    def below(j: Any, lanes: Any) -> Any:
        """Which of the numbers from j on are drawn: their uniform is below the probability."""
        logit = Vector(e, e.load(e.offset(logits, j), lanes))
        bias = Vector(e, e.load(e.offset(f["bias"], j), lanes))
        probability = GATE_ACTIVATIONS["sigmoid"](logit + bias)
        drawn = b.fcmp_ordered("<", e.load(e.offset(uniforms, j), lanes), probability.value)
        return b.and_(drawn, lanes.mask)

    with e.loop(0, D, e.lanes) as j:
        lanes = e.first_lanes(b.sub(D, j))
        drawn = below(j, lanes)
        note = b.select(drawn, e.constant(1.0), e.zero())
        e.store(note, e.offset(f["x"], j), lanes)
        # Bytes behind the frame's end are the next frame's, which is yet to be drawn.
        byte = ir.IntType(8)
        whole = b.zext(drawn, ir.VectorType(byte, e.lanes))
        b.store(whole, b.gep(frame, [j], source_etype=byte), align=1)
    with b.if_then(b.icmp_signed(">", columns, D)):
        one = e.first_lanes(e.int(1))
        b.ret(b.zext(b.bitcast(below(D, one), ir.IntType(e.lanes)), INT))
    b.ret(e.int(0))
    return Library(module)
