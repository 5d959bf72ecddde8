"""Compiled draws: what all have in common, and what those of notes or of samples share.

Everything is computed in float64, but packed matrices have their weights' dtype.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from math import exp
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.instructions import Inline, Pointer, translate
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.language import side_by_side
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import pack, row_matmul
from seqmodel.kernels.run.calls import ITEMSIZE, Call, Value, declare
from seqmodel.kernels.run.signature import Signature
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING, Uniforms
from seqmodel.outputs.notes import LinearNotesOutput, NotesOutput
from seqmodel.outputs.protocol import DrawSetting, Output
from seqmodel.outputs.samples import LEVEL_STEP, LOWEST, SampleBlocksOutput

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
        self.arguments = signature.arguments(e, self.field)
        """The fields, for a text of `code.language`."""
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

    def translate(self, text: Callable[[Any], None], **more: Any) -> None:
        """Write a text, whose argument has the fields and `more`."""
        translate(self.e, text, f=SimpleNamespace(**self.arguments | more))

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
            chunk, output.frame_size, dtype=self.dtype,
            spare=vector_lanes(ITEMSIZE) * self.dtype.itemsize,
        )  # fmt: skip
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

    def output(self, j: Any, lanes: Any) -> Vector:
        """Outputs of a `LinearNotesDraw`'s layer from column `j` on."""
        return self.load("product", j, lanes) + self.load("bias", j, lanes)


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


class LinearNotesDraw(NotesDraw):
    """A draw from h (H,)."""

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
    frame: NotesWriter, write: Callable[..., None], at_zero: bool, onsets: bool, end: bool
) -> Any:
    e, f = frame.e, frame.field
    frame.multiply(f["h"], f["H"], f["weight"], f["product"], f["columns"], add=False)
    write(frame, at_zero, onsets)
    if not end:
        return None
    one = e.first_lanes(e.int(1))
    logit = frame.output(e.builder.sub(f["columns"], e.int(1)), one)
    return frame.first(frame.below(logit, f["D"], one))


class SamplesDraw(Draw):
    """A draw of samples from h (H,) or (1, H), by a text below the output.

    x (C,) holds the last samples, standardised, for the unit; `line` (C + D,) those before the
    frame, then its own, also standardised; `frames` (chunk, D) are raw.
    """

    dtype = torch.float64

    def __init__(
        self, output: SampleBlocksOutput, setting: DrawSetting, text: Callable[..., None],
        weight: Tensor, bias: Tensor, calls: Callable[..., Mapping[str, Inline]] | None = None,
        **own: Value,
    ) -> None:  # fmt: skip
        """The text reads `parameters`, which this layer computes from h.

        `own` are fields of this draw alone; `calls(writer)` is what else the text calls.
        """
        (h, x, arena, _, temperature, _), H = setting, setting.h.shape[-1]
        K, C, spare = output.components, x.shape[0], vector_lanes(ITEMSIZE) * ITEMSIZE
        names = "mean", "deviation", "floor", "temperature"
        values = output.mean, output.deviation, output.floor, temperature
        constants = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
        fields: dict[str, Value] = {
            "H": H, "h": h.reshaped(H), "C": C, "K": K, "N": len(bias), "weight": pack(weight),
            "bias": bias.double().contiguous(),
            "parameters": arena.take(len(bias), spare=spare),
            "line": arena.take(C + output.frame_size, spare=spare),
            **{name: arena.take(K, spare=spare) for name in ("weights", "sizes")},
            **dict(zip(names, constants, strict=True)), **own,
        }  # fmt: skip
        if output.ending is not None:
            end_weight, end_bias = (part.double() for part in output.ending.parameters())
            fields |= {"end_weight": end_weight, "end_bias": end_bias}
        how = output.ending is not None, temperature == 0, text, calls
        super().__init__(
            output, setting, fields, _write_samples, *how, w_bytes=weight.element_size()
        )


def affine(frame: DrawWriter, weight: Any, bias: Any, c: Any, columns: Any) -> None:
    """C (columns,) = h B + bias; B packed."""
    frame.e.store(frame.e.zero(), frame.e.offset(c, columns))  # vectors extend beyond the end
    frame.e.copy(bias, c, columns)
    frame.multiply(frame.field["h"], frame.field["H"], weight, c, columns, add=True)


def _write_samples(
    frame: DrawWriter, end: bool, at_zero: bool, text: Callable[..., None],
    calls: Callable[..., Mapping[str, Inline]] | None,
) -> Any:  # fmt: skip
    e, b, f = frame.e, frame.e.builder, frame.field
    e.copy(f["x"], f["line"], f["C"])
    affine(frame, f["weight"], f["bias"], f["parameters"], f["N"])
    frame.translate(
        text,
        frame=Pointer(e.offset(f["frames"], e.mul(frame.n, f["D"])), e.real),
        uniform=Inline(lambda j: frame.first(frame.uniforms(j).value)),
        uniforms=Inline(lambda j: frame.uniforms(j).value),
        lanes=e.lanes, at_zero=at_zero, **(calls(frame) if calls else {}),
    )  # fmt: skip
    e.copy(e.offset(f["line"], f["D"]), f["x"], f["C"])
    if not end:
        return None
    logit = Vector(e, e.splat(e.dot(f["h"], f["end_weight"], f["H"]), e.vector))
    uniform = frame.uniforms(b.sub(f["numbers"], e.int(1)))
    return frame.first(uniform.below(logit + frame.broadcast("end_bias", 0)))


# Texts of `kernels.code.language` for draws of samples. `f` has the fields of the draw; `frame`,
# the raw samples to draw; `uniform(j)` or `uniforms(j)`, the j-th or as many as lanes from it on;
# and whether the temperature is 0.


def by_rows(
    output: SampleBlocksOutput, text: Callable[[Any], None], parameters: Tensor, uniforms: Tensor,
    temperature: float, **own: Any,
) -> Tensor:  # fmt: skip
    """Draw raw frames (B, D) from `parameters` (B, N) by a text that Python runs.

    A row also takes the place of h, of which a text reads only numbers that the row ends with.
    """
    D, K, C = output.frame_size, output.components, output.context
    frames = np.zeros((len(parameters), D))
    rows = zip(parameters.double().numpy(), uniforms.numpy(), frames, strict=True)
    for row, numbers, frame in rows:
        fields = SimpleNamespace(
            parameters=row, h=row, H=len(row), D=D, K=K, C=C, frame=frame, line=np.zeros(C + D),
            weights=np.zeros(K), sizes=np.zeros(K), mean=[output.mean], floor=[output.floor],
            deviation=[output.deviation], temperature=[temperature], at_zero=temperature == 0,
            uniform=numbers.item, uniforms=numbers.item, lanes=1, **own,
        )  # fmt: skip
        try:
            with np.errstate(all="ignore"):
                text(fields)
        except (OverflowError, ValueError):  # of exp and round, where compiled code has inf or nan
            frame[:] = math.nan
    return torch.from_numpy(frames).to(parameters)


def choose(f: Any) -> Any:
    """Choose one of K components by their logits, the first parameters, over the temperature.

    The first whose cumulative weight exceeds uniform 0; at temperature 0 the most likely.
    """
    component = 0
    if f.at_zero:
        for k in range(1, f.K):
            component = k if f.parameters[k] > f.parameters[component] else component
    else:
        weigh(f, f.temperature[0])
        total = 0.0
        for k in range(f.K):
            total += f.weights[k]
            f.weights[k] = total
        uniform = f.uniform(0)
        for k in range(f.lanes - 1, f.K, f.lanes):  # whole vectors first
            component += f.lanes if f.weights[k] / total <= uniform else 0
        for k in range(component, min(component + f.lanes, f.K)):
            component += f.weights[k] / total <= uniform
    return component


def weigh(f: Any, temperature: Any) -> None:
    """The components' weights, up to a factor."""
    peak = f.parameters[f.K - 1]
    for k in range(0, f.K - 1, 2):  # half as many waits for the last maximum
        pair = max(f.parameters[k], f.parameters[k + 1])
        peak = max(peak, pair)
    for k in range(0, f.K, f.lanes):
        exponent = (side_by_side(f.parameters[k:])[0] - peak) / temperature
        # Compiled, exp is at least the smallest normal number.
        side_by_side(f.weights[k:])[0] = exp(exponent) if exponent > -745.0 else 0.0


def put(f: Any, j: Any, z: Any, spacing: Any) -> None:
    """Put standardised samples from `j` on, rounded to the nearest multiple of `spacing`."""
    raw = nearest_level(z * f.deviation[0] + f.mean[0], spacing)
    side_by_side(f.frame[j:])[0] = raw
    side_by_side(f.line[f.C + j :])[0] = (raw - f.mean[0]) / f.deviation[0]


def nearest_level(sample: Any, spacing: Any) -> Any:
    """A raw sample rounded to the nearest multiple of `spacing` in [-1, 1)."""
    nearest = max(round(sample / spacing) * spacing, LOWEST * LEVEL_STEP)
    return 1.0 - spacing if nearest >= 1.0 else nearest
