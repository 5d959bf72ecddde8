"""Compiled draws: what all have in common, and what those of notes or of samples share.

Everything is computed in float64, but packed matrices have their weights' dtype.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.language import Pointer
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import pack, row_matmul
from seqmodel.kernels.run.calls import ITEMSIZE, Call, Value, declare
from seqmodel.kernels.run.signature import Signature
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING, Uniforms
from seqmodel.outputs.notes import LinearNotesOutput, NotesOutput
from seqmodel.outputs.protocol import DrawSetting, Output
from seqmodel.outputs.samples import LEVEL_STEP, LOWEST, MIN_UNIFORM, SampleBlocksOutput

_BYTE = ir.IntType(8)


def uniforms(e: Emitter, state: Any, n: Any) -> Vector:
    """A vector of uniforms, from number `n` on, of a stream in the given `state`."""
    b = e.builder
    lanes = ir.Constant(e.integers, [(lane + 1) * GAMMA % 2**64 for lane in range(e.lanes)])
    bits = b.add(e.splat(e.add(state, e.mul(n, GAMMA)), e.integers), lanes)
    for shift, factor in MIXING:
        bits = b.mul(b.xor(bits, b.lshr(bits, e.integer(shift))), e.integer(factor))
    return Vector(e, b.uitofp(b.lshr(bits, e.integer(64 - BITS)), e.vector)) * 2.0**-BITS


class DrawWriter:
    """The context of the code that draws step `n` of a chunk; `field` holds the fields by name."""

    def __init__(
        self, e: Emitter, signature: Signature, fields: Any, n: Any, *, w_bytes: int, fills: bool
    ) -> None:
        """`fields` is their address; packed matrices use `w_bytes` bytes per number."""
        self.e, self.fields, self.n, self.fills = e, fields, n, fills
        self.signature = signature
        self.weight_emitter = Emitter(e.builder, w_bytes)
        """Computes addresses within packed matrices."""
        self.field = signature.load(e, fields)
        self._first = e.mul(n, self.field["numbers"])  # of the step's uniforms

    def uniforms(self, j: Any) -> Vector:
        """A vector of the step's uniforms, from `j` on."""
        state = self.e.builder.load(self.field["uniforms"], typ=INT)
        return uniforms(self.e, state, self.e.add(self._first, j))

    def multiply(self, a: Any, k: Any, weight: Any, c: Any, columns: Any, *, add: bool) -> None:
        """C (columns,) = a B, added to C if `add`; a (k,), B packed."""
        w_bytes = self.weight_emitter.precision.itemsize
        row_matmul(self.e, w_bytes, a, weight, c, k, columns, add)

    def load(self, name: str, j: Any, lanes: Any) -> Vector:
        """Numbers from `j` on of the field `name`."""
        return Vector(self.e, self.e.load(self.e.offset(self.field[name], j), lanes))

    def broadcast(self, name: str, j: Any) -> Vector:
        """Number `j` of the field `name` in all lanes."""
        return Vector(self.e, self.e.broadcast(self.e.offset(self.field[name], j)))

    def finish(self) -> None:
        """Write what follows once the numbers are drawn; nothing unless overridden."""

    def first(self, lanes: Any) -> Any:
        """The first of a vector of bits or numbers."""
        return self.e.builder.extract_element(lanes, ir.IntType(32)(0))


class Draw:
    """A draw in compiled code, which `sampling.compiled` calls for each step, usually a frame.

    Attributes:
        call: draw(fields, n), which draws step n of a chunk from h, leaves the last C numbers in x,
            and returns 1 if the piece ends there, else 0.
        uniforms: (1,), where the chunk begins in the stream.
        frames: (chunk, D), the numbers drawn.
    """

    writer: ClassVar[type[DrawWriter]] = DrawWriter
    dtype: ClassVar[torch.dtype]
    """The dtype of `frames`."""

    def __init__(
        self,
        output: Output,
        setting: DrawSetting,
        fields: Mapping[str, Value],
        write: Callable[..., Any],
        *parameters: Any,
        w_bytes: int = ITEMSIZE,
        calls: Sequence[Call] = (),
    ) -> None:
        """`fields` are those of this draw alone, by which its code finds them.

        All draws also have D, the numbers that a step draws; `numbers`, the uniforms that it uses;
        `chunk`, the number of steps; x; `frames`; and the state of the stream of `uniforms` before
        the chunk. `w_bytes` is as in `DrawWriter`.

        `write(writer, *parameters)` writes the code, which may make the `calls`, and returns
        whether the piece ends, or None if it never does.
        """
        numbers, (_, x, arena, chunk, *_) = output.uniforms_per_frame, setting
        self._uniforms_per_chunk, self._frame_type = chunk * numbers, output.frame_type
        self.uniforms = arena.take(1, dtype=torch.int64)
        # Code may write a vector that extends beyond the end.
        self.frames = arena.take(
            chunk, output.frame_size, dtype=self.dtype, spare=vector_lanes(ITEMSIZE)
        )
        all_fields = {
            "D": output.frame_size, "numbers": numbers, "chunk": chunk, "x": x,
            "uniforms": self.uniforms, "frames": self.frames, **fields,
        }  # fmt: skip
        signature, ordered = declare(type(output).__name__, all_fields)
        library = _library(signature, self.writer, w_bytes, setting.fills, write, parameters)
        self.call = Call(library.address("draw"), ordered, calls)

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Set the uniforms of the next chunk."""
        self.uniforms.of(memory).view(np.uint64)[0] = uniforms.skip(self._uniforms_per_chunk)

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[Any]:
        """The numbers drawn in the first `count` steps of the chunk: (count, D)."""
        return self.frames.of(memory)[:count].astype(self._frame_type)


@compiled_once
def _library(
    signature: Signature, writer: type[DrawWriter], w_bytes: int, fills: bool,
    write: Callable[..., Any], parameters: tuple[Any, ...],
) -> Library:  # fmt: skip
    module = ir.Module(signature.name)
    with function(module, "draw", [POINTER, INT], ITEMSIZE, INT) as (e, fields, n):
        step = writer(e, signature, fields, n, w_bytes=w_bytes, fills=fills)
        ends = write(step, *parameters)
        step.finish()
        e.builder.ret(e.int(0) if ends is None else e.builder.zext(ends, INT))
    return Library(module)


class NotesWriter(DrawWriter):
    """The same for a draw of notes: D zeros and ones, which may be given if it `fills`.

    x (D,) is the previous frame, then the one drawn, for the unit. The notes' logits are multiplied
    by `factor` (1,).
    """

    def array(self, name: str) -> Pointer:
        """A field for a text of `code.language`."""
        return Pointer(self.field[name], self.e.real)

    @property
    def logits(self) -> Pointer | None:
        """Where to store the logits by which the frame is drawn, if it `fills`."""
        address = self.e.offset(self.field["logits"], self._first)
        return Pointer(address, self.e.real) if self.fills else None

    def finish(self) -> None:
        """Write the frame that is in x."""
        e, b, f = self.e, self.e.builder, self.field
        with e.loop(0, f["D"], e.lanes) as j:
            x = e.load(e.offset(f["x"], j), e.first_lanes(b.sub(f["D"], j)))
            numbers = b.zext(b.fcmp_ordered(">", x, e.zero()), ir.VectorType(_BYTE, e.lanes))
            address = b.gep(f["frames"], [e.add(e.mul(self.n, f["D"]), j)], source_etype=_BYTE)
            b.store(numbers, address, align=1)  # what lies beyond the end is overwritten later

    def uniforms(self, j: Any) -> Vector:
        """See `DrawWriter.uniforms`; given numbers take the place of uniforms."""
        drawn = super().uniforms(j)
        if not self.fills:
            return drawn
        e, b = self.e, self.e.builder
        forced = e.load(e.offset(self.field["forced"], self._first, j))
        return Vector(e, b.select(b.fcmp_ordered("==", forced, e.zero()), drawn.value, forced))

    def below(self, logit: Vector, j: Any, lanes: Any) -> Any:
        """Which uniforms from `j` on are below the probabilities; stores the logits if asked."""
        if self.logits is not None:
            self.e.store(logit.value, self.e.offset(self.logits.address, j), lanes)
        return self.uniforms(j).below(logit)


class NotesDraw(Draw):
    """A draw of notes that uses given numbers if it fills: see `sampling.compiled`.

    Attributes:
        forced: (chunk, D + 1) if it fills: read instead of the uniforms where not 0.
        logits: (chunk, D + 1) if it fills: the logits by which each frame's numbers and the end are
            drawn.
    """

    writer, dtype = NotesWriter, torch.uint8

    def __init__(
        self, output: NotesOutput, setting: DrawSetting, fields: Mapping[str, Value], *write: Any,
        **options: Any,
    ) -> None:  # fmt: skip
        """At temperature 0 the factor is 1."""
        (_, _, arena, chunk, temperature, fills), D = setting, output.frame_size
        self.forced = self.logits = None
        if fills:
            self.forced = arena.take(chunk, D + 1, spare=vector_lanes(ITEMSIZE) * ITEMSIZE)
            self.logits = arena.take(chunk, D + 1)
        factor = torch.tensor([1 / temperature if temperature else 1.0], dtype=torch.float64)
        draw_fields = {"factor": factor, "forced": self.forced, "logits": self.logits, **fields}
        super().__init__(output, setting, draw_fields, *write, **options)


class LinearNotesWriter(NotesWriter):
    """The same for a layer's outputs, whose product with h (H,) is in `product` (columns,)."""

    def output(self, j: Any, lanes: Any) -> Vector:
        """The layer's outputs from column `j` on."""
        return self.load("product", j, lanes) + self.load("bias", j, lanes)


class LinearNotesDraw(NotesDraw):
    """A draw from h (H,)."""

    writer = LinearNotesWriter

    def __init__(
        self, output: LinearNotesOutput, setting: DrawSetting, write: Callable[..., None],
        **own: Value,
    ) -> None:  # fmt: skip
        """`write(frame, at_zero, onsets)` stores the notes in x."""
        weight, bias = output.linear.weight, output.linear.bias.double()
        columns, H = weight.shape
        fields = {
            "H": H, "columns": columns, "h": setting.h, "weight": pack(weight), "bias": bias,
            "product": setting.arena.take(columns), **own,
        }  # fmt: skip
        parameters = write, setting.temperature == 0, output.onsets, output.end
        w_bytes = weight.element_size()
        super().__init__(output, setting, fields, _write_notes, *parameters, w_bytes=w_bytes)


def _write_notes(
    frame: LinearNotesWriter, write: Callable[..., None], at_zero: bool, onsets: bool, end: bool
) -> Any:
    e, f = frame.e, frame.field
    frame.multiply(f["h"], f["H"], f["weight"], f["product"], f["columns"], add=False)
    write(frame, at_zero, onsets)
    if not end:
        return None
    one = e.first_lanes(e.int(1))
    logit = frame.output(e.builder.sub(f["columns"], e.int(1)), one)
    return frame.first(frame.below(logit, f["D"], one))


class SamplesWriter(DrawWriter):
    """The same for a draw of samples.

    x (C,) holds the last samples, standardised, for the unit; `line` (C + D,) those before the
    frame, then its own, also standardised; `frames` (chunk, D) are raw.
    """

    def constant(self, name: str) -> Vector:
        """One of the constants in all lanes."""
        return self.broadcast(name, 0)

    def noise(self, j: Any, quantile: Callable[[Vector], Vector]) -> Vector:
        """Noise with these quantiles at the uniforms from `j` on, times the temperature."""
        u = self.uniforms(j).where("<", MIN_UNIFORM, MIN_UNIFORM)
        return quantile(u) * self.constant("temperature")

    def choice(self, j: Any) -> Vector:
        """Uniform `j` in all lanes; 0 at temperature 0."""
        u = self.e.splat(self.first(self.uniforms(j).value), self.e.vector)
        return Vector(self.e, u) * self.constant("chance")

    def affine(self, a: Any, k: Any, weight: Any, bias: Any, c: Any, columns: Any) -> None:
        """C (columns,) = a B + bias; a (k,), B packed."""
        self.e.copy(bias, c, columns)
        self.multiply(a, k, weight, c, columns, add=True)

    def highest(self, name: str) -> Vector:
        """The largest of the first K numbers of the field `name`, in all lanes."""
        e, K, highest = self.e, self.field["K"], [self.e.constant(-math.inf)]
        with e.carrying(0, K, e.lanes, highest) as (k, inside):
            lanes = e.first_lanes(e.builder.sub(K, k))
            higher = Vector(e, inside[0]).maximum(self.load(name, k, lanes))
            inside[0] = e.builder.select(lanes.mask, higher.value, inside[0])
        return Vector(e, highest[0]).over_lanes(Vector.maximum)

    def choose(self, name: str) -> Any:
        """Like `samples.choose`, by uniform 0; cumulative weights overwrite the logits `name`."""
        e, b, K, logits = self.e, self.e.builder, self.field["K"], self.field[name]
        peak, divisor = self.highest(name), self.constant("divisor")

        def weigh(k: Any, lanes: Any) -> None:
            exponent = (self.load(name, k, lanes) - peak) / divisor
            weight = exponent.exp().replaced(exponent, "<", -745.0, 0.0)  # where exp underflows
            e.store(weight.value, e.offset(logits, k), lanes)

        e.columns(K, weigh)
        total = [ir.Constant(e.real, 0.0)]
        with e.carrying(0, K, 1, total) as (k, inside):
            address = e.offset(logits, k)
            inside[0] = b.fadd(inside[0], b.load(address, typ=e.real))
            b.store(inside[0], address)
        uniform, total_weight = self.choice(0), self.broadcast(name, b.sub(K, e.int(1)))
        count_below = [e.int(0)]
        with e.carrying(0, K, e.lanes, count_below) as (k, inside):
            lanes = e.first_lanes(b.sub(K, k))
            share = self.load(name, k, lanes) / total_weight
            below = b.and_(lanes.mask, b.fcmp_ordered("<=", share.value, uniform.value))
            count = b.ctpop(b.bitcast(below, ir.IntType(e.lanes)))
            inside[0] = b.add(inside[0], b.zext(count, INT))
        return count_below[0]

    def put(self, j: Any, z: Vector, lanes: Any, spacing: Vector | None = None) -> None:
        """Put standardised samples from `j` on, rounded to multiples of `spacing`, or to levels."""
        e, f = self.e, self.field
        mean, deviation = self.constant("mean"), self.constant("deviation")
        spacing = spacing or Vector(e, e.constant(LEVEL_STEP))
        nearest = Vector(e, e.rounded(((z * deviation + mean) / spacing).value)) * spacing
        raw = nearest.where("<", LOWEST * LEVEL_STEP, LOWEST * LEVEL_STEP).where(
            ">=", 1.0, 1.0 - spacing
        )
        e.store(raw.value, e.offset(f["frames"], e.mul(self.n, f["D"]), j), lanes)
        e.store(((raw - mean) / deviation).value, e.offset(f["line"], f["C"], j), lanes)


class SamplesDraw(Draw):
    """A draw of samples from h (H,) or (1, H)."""

    writer, dtype = SamplesWriter, torch.float64

    def __init__(
        self, output: SampleBlocksOutput, setting: DrawSetting, write: Callable[..., None],
        *parameters: Any, **own: Value,
    ) -> None:  # fmt: skip
        """`write(frame, *parameters)` puts the samples; `own` are fields of this draw alone."""
        (h, x, arena, _, temperature, _), H = setting, setting.h.shape[-1]
        # Dividing by the smallest normal number leaves weight only to the highest logits, of which
        # a uniform of 0 chooses the first.
        divisor = temperature or sys.float_info.min
        names = "mean", "deviation", "floor", "temperature", "divisor", "chance"
        values = output.mean, output.deviation, output.floor, temperature, divisor, temperature > 0
        constants = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
        fields: dict[str, Value] = {
            "H": H, "h": h.reshaped(H), "C": x.shape[0], "K": output.components,
            "line": arena.take(x.shape[0] + output.frame_size),
            **dict(zip(names, constants, strict=True)), **own,
        }  # fmt: skip
        if output.ending is not None:
            end_weight, end_bias = (part.double() for part in output.ending.parameters())
            fields |= {"end_weight": end_weight, "end_bias": end_bias}
        head, size = (output.ending is not None, write), output.linear.weight.element_size()
        super().__init__(output, setting, fields, _write_samples, *head, *parameters, w_bytes=size)


def _write_samples(
    frame: SamplesWriter, end: bool, write: Callable[..., None], *parameters: Any
) -> Any:
    e, b, f = frame.e, frame.e.builder, frame.field
    e.copy(f["x"], f["line"], f["C"])
    write(frame, *parameters)
    e.copy(e.offset(f["line"], f["D"]), f["x"], f["C"])
    if not end:
        return None
    logit = Vector(e, e.splat(e.dot(f["h"], f["end_weight"], f["H"]), e.vector))
    uniform = frame.uniforms(b.sub(f["numbers"], e.int(1)))
    return frame.first(uniform.below(logit + frame.broadcast("end_bias", 0)))
