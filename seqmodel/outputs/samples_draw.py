"""Compiled draws of audio: the history of samples, and what `samples` does in compiled code."""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import row_matmul
from seqmodel.kernels.run.calls import Call, Slot
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples import LEVEL_STEP, LOWEST, SampleBlocksOutput

_SIZES = ("H", "F", "C", "K", "choices", "chunk")
_ARRAYS = (
    Array("h", ("H",)),
    Array("frames", ("chunk", "F")),  # raw samples
    Array("line", ("C + chunk * F",)),  # the C samples before the chunk, then its own; standardised
    Array("x", ("C",)),  # the last C samples, standardised, for the unit
    Array("uniforms", ("chunk", "choices")),  # to choose components
    Array("noise", ("chunk", "F")),
    Array("constants", ("4",)),  # see _CONSTANTS
    # Where pieces have an end: the layer of its logit, and a uniform for each frame.
    Array("end_weight", ("1", "H"), optional=True),
    Array("end_bias", ("1",), optional=True),
    Array("ends", ("chunk",), optional=True),
)
_CONSTANTS = ("mean", "deviation", "floor", "temperature")
_ITEMSIZE = 8  # bytes: float64 throughout


def draw_signature(name: str, sizes: tuple[str, ...], arrays: tuple[Array, ...]) -> Signature:
    """The fields of an audio draw: the shared ones, and an output's own."""
    return Signature(name, (*_SIZES, *sizes), (*_ARRAYS, *arrays))


class AudioDraw:
    """A `CompiledDraw` of audio, and the buffers that it reads and writes."""

    def __init__(
        self,
        output: SampleBlocksOutput,
        setting: DrawSetting,
        signature: Signature,
        own: Mapping[str, int | Tensor | Slot],
        write: Callable[..., None],
        *parameters: Any,
    ) -> None:
        """From h (H,) or (1, H); `own` are this output's own fields.

        Its packed matrices have its weights' dtype. `write(frame, *parameters)` puts the samples.
        """
        h, x, arena, chunk, temperature, _ = setting
        F, (C,), H = output.frame_size, x.shape, h.shape[-1]
        choices = output.split(torch.zeros(output.uniforms_per_frame))[0].shape[-1]
        self._x, self._split, self._temperature = x, output.split, temperature
        self._shape = chunk, output.uniforms_per_frame
        self._frames, self.noise = arena.take(chunk, F), arena.take(chunk, F)
        self._uniforms, self._line = arena.take(chunk, choices), arena.take(C + chunk * F)
        # Dividing by the smallest normal number leaves no weight to any but the highest logit.
        divisor = temperature or sys.float_info.min
        values = output.mean, output.deviation, output.floor, divisor
        fields: dict[str, int | Tensor | Slot] = {
            "H": H, "h": h.reshaped(H),
            "F": F, "C": C, "K": output.components, "choices": choices, "chunk": chunk,
            "frames": self._frames, "line": self._line, "x": x, "uniforms": self._uniforms,
            "noise": self.noise, "constants": torch.tensor(values, dtype=torch.float64),
        }  # fmt: skip
        self._ends = None if output.ending is None else arena.take(chunk)
        if self._ends is not None and output.ending is not None:
            end_weight, end_bias = (part.double() for part in output.ending.parameters())
            fields |= {"end_weight": end_weight, "end_bias": end_bias, "ends": self._ends}
        stored = output.linear.weight.element_size()
        library = _compiled(signature, stored, write, parameters)
        self.call = Call(library.address("draw"), signature, _ITEMSIZE, fields | {**own}, stored)

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Take the uniforms of the next chunk of frames."""
        numbers = uniforms.take(*self._shape)
        choices, noise = self._split(torch.from_numpy(numbers))
        if self._ends is not None:
            self._ends.of(memory)[:] = numbers[:, -1]
        # At temperature 0 only the likeliest component has weight, so a uniform of 0 chooses it.
        self._uniforms.of(memory)[:] = choices if self._temperature > 0 else 0
        np.multiply(noise, self._temperature, out=self.noise.of(memory))
        x = self._x.of(memory)
        self._line.of(memory)[: len(x)] = x

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[np.float32]:
        """The first `count` frames (count, F), raw."""
        return self._frames.of(memory)[:count].astype(np.float32)


class SamplesWriter:
    """What the code that draws a frame works with."""

    def __init__(self, e: Emitter, field: dict[str, Any], n: Any, stored: int) -> None:
        self.e, self.field, self.n, self._stored = e, field, n, stored
        self._start = e.mul(n, field["F"])
        self.of_weights = Emitter(e.builder, stored)
        """Computes addresses within packed matrices."""

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

    def choice(self, j: Any) -> Vector:
        """The frame's uniform `j` of those that choose, in all lanes; 0 at temperature 0."""
        return self.broadcast("uniforms", self.e.add(self.e.mul(self.n, self.field["choices"]), j))

    def before(self, j: Any) -> Any:
        """The address of the C samples before sample `j`, standardised."""
        return self.e.offset(self.field["line"], self._start, j)

    def affine(self, a: Any, k: Any, weight: Any, bias: Any, c: Any, columns: Any) -> None:
        """C (columns,) = a B + bias; a (k,), B packed."""
        self.e.copy(bias, c, columns)
        row_matmul(self.e, self._stored, a, weight, c, k, columns, True)

    def highest(self, name: str) -> Vector:
        """The largest of the first K numbers of the field `name`, in all lanes."""
        e, K, highest = self.e, self.field["K"], [self.e.constant(-math.inf)]
        with e.carrying(0, K, e.lanes, highest) as (k, inside):
            lanes = e.first_lanes(e.builder.sub(K, k))
            higher = Vector(e, inside[0]).maximum(self.load(name, k, lanes))
            inside[0] = e.builder.select(lanes.mask, higher.value, inside[0])
        return Vector(e, highest[0]).over_lanes(Vector.maximum)

    def choose(self, name: str, j: Any) -> Any:
        """Like `samples.choose`: a component, from the logits in the field `name` and uniform `j`.

        Cumulative weights overwrite the logits.
        """
        e, b, K, logits = self.e, self.e.builder, self.field["K"], self.field[name]
        top, temperature = self.highest(name), self.constant("temperature")

        def weigh(k: Any, lanes: Any) -> None:
            exponent = (self.load(name, k, lanes) - top) / temperature
            weight = exponent.exp().replaced(exponent, "<", -745.0, 0.0)  # where exp underflows
            e.store(weight.value, e.offset(logits, k), lanes)

        e.columns(K, weigh)
        total = [ir.Constant(e.real, 0.0)]
        with e.carrying(0, K, 1, total) as (k, inside):
            place = e.offset(logits, k)
            inside[0] = b.fadd(inside[0], b.load(place, typ=e.real))
            b.store(inside[0], place)
        uniform = self.choice(j)
        whole = self.broadcast(name, b.sub(K, e.int(1)))
        passed = [e.int(0)]
        with e.carrying(0, K, e.lanes, passed) as (k, inside):
            lanes = e.first_lanes(b.sub(K, k))
            share = self.load(name, k, lanes) / whole
            below = b.and_(lanes.mask, b.fcmp_ordered("<=", share.value, uniform.value))
            count = b.ctpop(b.bitcast(below, ir.IntType(e.lanes)))
            inside[0] = b.add(inside[0], b.zext(count, INT))
        return passed[0]

    def put(self, j: Any, z: Vector, lanes: Any, spacing: Vector | None = None) -> None:
        """Append samples from `j` on, given standardised, rounded as `samples.nearest_level` does.

        The `spacing` is that of single levels if None.
        """
        e, field = self.e, self.field
        mean, deviation = self.constant("mean"), self.constant("deviation")
        spacing = spacing or Vector(e, e.constant(LEVEL_STEP))
        nearest = Vector(e, e.rounded(((z * deviation + mean) / spacing).value)) * spacing
        raw = nearest.where("<", LOWEST * LEVEL_STEP, LOWEST * LEVEL_STEP).where(
            ">=", 1.0, 1.0 - spacing
        )
        place = e.add(self._start, j)
        e.store(raw.value, e.offset(field["frames"], place), lanes)
        place = e.offset(field["line"], field["C"], place)
        e.store(((raw - mean) / deviation).value, place, lanes)


@compiled_once
def _compiled(
    signature: Signature, stored: int, write: Callable[..., None], parameters: tuple[Any, ...]
) -> Library:
    module = ir.Module(signature.name)
    with function(module, "draw", [POINTER, INT], _ITEMSIZE, INT) as (e, fields, n):
        frame = SamplesWriter(e, signature.load(e, fields), n, stored)
        write(frame, *parameters)
        e.copy(frame.before(frame.field["F"]), frame.field["x"], frame.field["C"])
        _write_end(frame)
    return Library(module)


def _write_end(frame: SamplesWriter) -> None:
    """Return whether the piece ends with the frame."""
    e, b, f = frame.e, frame.e.builder, frame.field
    with b.if_then(b.icmp_unsigned("!=", f["end_weight"], POINTER(None))):
        logit = Vector(e, e.splat(e.dot(f["h"], f["end_weight"], f["H"]), e.vector))
        ends = frame.broadcast("ends", frame.n).below(logit + frame.broadcast("end_bias", 0))
        b.ret(b.zext(b.extract_element(ends, e.int(0)), INT))
    b.ret(e.int(0))


def log_and_inverse(scale: Vector, log_scale: Vector, floor: Vector) -> tuple[Vector, Vector]:
    """log(floor + scale) and 1 / (floor + scale), where `scale` is exp(log_scale)."""
    total = scale + floor
    one = Vector(scale.to, scale.to.constant(1.0))
    # Where exp is clamped, the floor is far below the last digit.
    limit = 0.9 * scale.to.precision.largest
    return total.log().replaced(log_scale, ">", limit, log_scale), one / total
