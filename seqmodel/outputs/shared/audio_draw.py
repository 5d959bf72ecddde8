"""What the compiled draws of audio share: the line of samples, and `levels` in compiled code."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.product import RowProduct
from seqmodel.kernels.run.calls import Call, Own, Room
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.outputs.gaussian.specification import GaussianMixtureOutput
from seqmodel.outputs.logistic.specification import DiscretisedLogisticOutput
from seqmodel.outputs.shared.levels import HIGHEST, LOWEST, STEP

_SIZES = ("F", "C", "K", "choices")
_ADDRESSES = (
    "frames",  # (chunk, F): raw samples
    "line",  # (C + chunk F,): the C samples before the chunk and then its own, standardised
    "x",  # (C,): the last C samples so far, standardised, for the unit
    "uniforms",  # (chunk, choices): for the components
    "noise",  # (chunk, F)
    "constants",  # as below
)
_CONSTANTS = ("mean", "deviation", "floor", "temperature")
_ITEMSIZE = 8  # bytes: draws are of float64 throughout

AudioOutput = GaussianMixtureOutput | DiscretisedLogisticOutput
Split = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From uniforms (chunk, U) those that choose components (chunk, choices), and noise (chunk, F)."""


class AudioDraw:
    """The compiled draw of single frames from h, and what it reads and writes.

    `call` is that of draw(fields, n), which draws frame n of a chunk from what the unit made of
    x (C,), the last C samples standardised, and moves x on; it returns 0, since audio has no end.
    """

    def __init__(
        self,
        output: AudioOutput,
        x: Own,
        room: Room,
        chunk: int,
        temperature: float,
        library: Library,
        own: Mapping[str, int | Tensor | Own],
        split: Split,
    ) -> None:
        """`own` are the fields of this output's draw, by the names with which it was compiled."""
        F, (C,) = output.frame_size, x.shape
        choices = output.uniforms_per_frame - F
        self._x, self._split, self._temperature = x, split, temperature
        self._shape = chunk, output.uniforms_per_frame
        self._frames, self._noise = room.take(chunk, F), room.take(chunk, F)
        self._uniforms, self._line = room.take(chunk, choices), room.take(C + chunk * F)
        # Divided by next to nothing, the logits leave weight to the highest alone.
        divisor = temperature or sys.float_info.min
        values = output.mean, output.deviation, output.floor, divisor
        constants = torch.tensor(values, dtype=torch.float64)
        buffers = [self._frames, self._line, x, self._uniforms, self._noise]
        sizes = [F, C, output.components, choices]
        own_sizes = [value for value in own.values() if isinstance(value, int)]
        own_addresses = [value for value in own.values() if not isinstance(value, int)]
        fields = [*sizes, *own_sizes, *buffers, constants, *own_addresses]
        self.call = Call(library.address("draw"), fields)

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Take the uniforms of the next frames, a chunk of them."""
        choices, noise = self._split(torch.from_numpy(uniforms.take(*self._shape)))
        # At 0 the first component that has weight is the likeliest.
        self._uniforms.of(memory)[:] = choices if self._temperature > 0 else 0
        np.multiply(noise, self._temperature, out=self._noise.of(memory))
        x = self._x.of(memory)
        self._line.of(memory)[: len(x)] = x

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[np.float32]:
        """The first `count` frames (count, F), raw."""
        return self._frames.of(memory)[:count].astype(np.float32)


class Frame:
    """A frame as the code that draws it sees it."""

    def __init__(self, e: Emitter, field: dict[str, Any], n: Any, multiply: RowProduct) -> None:
        self.e, self.field, self._n, self._multiply = e, field, n, multiply
        self._start = e.mul(n, field["F"])
        self.of_weights = Emitter(e.builder, multiply.stored)
        """Finds its way among packed numbers."""

    def load(self, name: str, j: Any, lanes: Any) -> Vector:
        """Numbers from `j` on of the field `name`."""
        return Vector(self.e, self.e.load(self.e.offset(self.field[name], j), lanes))

    def broadcast(self, name: str, j: Any) -> Vector:
        """Number `j` of the field `name` in all lanes."""
        return Vector(self.e, self.e.broadcast(self.e.offset(self.field[name], j)))

    def constant(self, name: str) -> Vector:
        """One of the constants in all lanes."""
        return self.broadcast("constants", _CONSTANTS.index(name))

    def noise(self, j: Any, lanes: Any) -> Vector:
        """The noise of the samples from `j` on, times the temperature."""
        return self.load("noise", self.e.add(self._start, j), lanes)

    def before(self, j: Any) -> Any:
        """Where the C samples before sample `j` lie, standardised."""
        return self.e.offset(self.field["line"], self._start, j)

    def affine(self, a: Any, k: Any, weight: Any, bias: Any, c: Any, columns: Any) -> None:
        """C (columns,) = a B + bias; a (k,), B packed."""
        self.e.copy(bias, c, columns)
        self.add_product(a, k, weight, c, columns)

    def add_product(self, a: Any, k: Any, weight: Any, c: Any, columns: Any) -> None:
        """C (columns,) += a B; a (k,), B packed."""
        self._multiply(self.e, a, weight, c, k, columns, True)

    def choose(self, name: str, j: Any) -> Any:
        """As `levels.choose`: the component by the logits in the field `name`, and uniform `j`.

        The field holds cumulated weights afterwards.
        """
        e, b, K, logits = self.e, self.e.builder, self.field["K"], self.field[name]
        highest = [e.constant(-math.inf)]
        with e.carrying(0, K, e.lanes, highest) as (k, inside):
            lanes = e.first_lanes(b.sub(K, k))
            higher = Vector(e, inside[0]).maximum(self.load(name, k, lanes))
            inside[0] = b.select(lanes.mask, higher.value, inside[0])
        top = Vector(e, highest[0]).over_lanes(Vector.maximum)
        temperature = self.constant("temperature")

        def weigh(k: Any, lanes: Any) -> None:
            exponent = (self.load(name, k, lanes) - top) / temperature
            weight = exponent.exp().replaced(exponent, "<", -745.0, 0.0)  # no number is so small
            e.store(weight.value, e.offset(logits, k), lanes)

        e.columns(K, weigh)
        total = [ir.Constant(e.real, 0.0)]
        with e.carrying(0, K, 1, total) as (k, inside):
            place = e.offset(logits, k)
            inside[0] = b.fadd(inside[0], b.load(place, typ=e.real))
            b.store(inside[0], place)
        uniform = self.broadcast("uniforms", e.add(e.mul(self._n, self.field["choices"]), j))
        whole = self.broadcast(name, b.sub(K, e.int(1)))
        passed = [e.int(0)]
        with e.carrying(0, K, e.lanes, passed) as (k, inside):
            lanes = e.first_lanes(b.sub(K, k))
            share = self.load(name, k, lanes) / whole
            below = b.and_(lanes.mask, b.fcmp_ordered("<=", share.value, uniform.value))
            count = b.ctpop(b.bitcast(below, ir.IntType(e.lanes)))
            inside[0] = b.add(inside[0], b.zext(count, INT))
        return passed[0]

    def put(self, j: Any, z: Vector, lanes: Any) -> None:
        """Samples from `j` on, standardised, into the line, at their nearest levels."""
        e, field = self.e, self.field
        mean, deviation = self.constant("mean"), self.constant("deviation")
        level = ((z * deviation + mean) * (1 / STEP)).clamp(float(LOWEST), float(HIGHEST))
        raw = Vector(e, e.rounded(level.value)) * STEP
        place = e.add(self._start, j)
        e.store(raw.value, e.offset(field["frames"], place), lanes)
        place = e.offset(field["line"], field["C"], place)
        e.store(((raw - mean) / deviation).value, place, lanes)

    def move_on(self) -> None:
        """Leave in x what the unit reads next."""
        self.e.copy(self.before(self.field["F"]), self.field["x"], self.field["C"])


def compile_draw(
    sizes: Sequence[str], addresses: Sequence[str], stored: int, write: Callable[[Frame], None]
) -> Library:
    """The draw that puts the samples `write` writes; its own fields are `sizes`, `addresses`.

    Packed matrices take `stored` bytes a number.
    """
    module = ir.Module("audio_draw")
    multiply = RowProduct.of(module, _ITEMSIZE, stored)
    made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "draw")
    e, (fields, n) = Emitter(ir.IRBuilder(made.append_basic_block()), _ITEMSIZE), made.args
    frame = Frame(e, e.fields(fields, (*_SIZES, *sizes), (*_ADDRESSES, *addresses)), n, multiply)
    write(frame)
    frame.move_on()
    e.builder.ret(e.int(0))
    return Library(module)
