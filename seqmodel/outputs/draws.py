"""Compiled draws: what all have in common, and what those of notes or of samples share.

A draw is a text of `kernels.code.language`. Everything is computed in float64, but packed matrices
have their weights' dtype.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from math import exp
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.instructions import Inline, dot, of_vectors
from seqmodel.kernels.code.language import copy, side_by_side
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import matmul, pack, row_matmul
from seqmodel.kernels.run.calls import Call, Value, step_call
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING, Uniforms
from seqmodel.outputs.notes import LinearNotesOutput, NotesOutput
from seqmodel.outputs.protocol import DrawSetting, Output
from seqmodel.outputs.samples import LEVEL_STEP, LOWEST, SampleBlocksOutput

_BYTE = ir.IntType(8)


class Draw:
    """A draw in compiled code, which `sampling.compiled` calls for each step, usually a frame.

    Attributes:
        call: draws a step of a chunk from h, and leaves the last C numbers in x.
        stream: (2,), where the chunk begins in the stream of uniforms, and how many of its steps
            are drawn.
        ended: (1,), whether the piece ended with the last step drawn.
        frames: (chunk, D), the numbers drawn.
    """

    dtype: ClassVar[torch.dtype]
    """The dtype of `frames`."""

    def __init__(
        self, output: Output, setting: DrawSetting, text: Callable[[Any], Any],
        fields: Mapping[str, Value], *, calls: Sequence[Call] = (), **constants: Any,
    ) -> None:  # fmt: skip
        """The `text` draws a step and returns whether the piece ends; it may make the `calls`.

        `fields` and `constants` are its own. All draws also have D, the numbers that a step draws;
        `uniforms`, of which it uses the first `numbers`; x, `stream`, `ended` and `frames`; and
        whether the temperature is 0, numbers may be given (`fills`), and pieces end.
        """
        numbers, (_, x, arena, chunk, temperature, fills) = output.uniforms_per_frame, setting
        self._uniforms_per_chunk, self._frame_type = chunk * numbers, output.frame_type
        self.stream, self.ended = (arena.take(n, dtype=torch.int64) for n in (2, 1))
        self.frames = arena.take(chunk, output.frame_size, dtype=self.dtype)
        all_fields = {
            "D": output.frame_size, "numbers": numbers, "x": x, "stream": self.stream,
            "ended": self.ended, "frames": self.frames, "uniforms": arena.take(numbers), **fields,
        }  # fmt: skip
        self.call = step_call(
            draw_step, all_fields, calls, step_text=text, at_zero=temperature == 0, fills=fills,
            end=output.end, **constants,
        )  # fmt: skip

    def refill(self, memory: NDArray[np.uint8], uniforms: Uniforms) -> None:
        """Set the uniforms of the next chunk."""
        begin = uniforms.skip(self._uniforms_per_chunk), 0
        self.stream.of(memory).view(np.uint64)[:] = begin

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[Any]:
        """The numbers drawn in the first `count` steps of the chunk: (count, D)."""
        return self.frames.of(memory)[:count].astype(self._frame_type)


class NotesDraw(Draw):
    """A draw of notes, D zeros and ones, some of which may be given: see `sampling.compiled`.

    The text leaves them in x (D,), where it finds the previous frame. `factor` (1,) is for logits.

    Attributes:
        forced: (chunk, D + 1) if it fills: read instead of the uniforms where not 0.
        logits: (chunk, D + 1) if it fills: the logits by which each frame's numbers and the end are
            drawn.
    """

    dtype = torch.uint8

    def __init__(
        self, output: NotesOutput, setting: DrawSetting, text: Callable[[Any], Any],
        fields: Mapping[str, Value], **how: Any,
    ) -> None:  # fmt: skip
        """At temperature 0 the factor is 1."""
        (_, _, arena, chunk, temperature, fills), D = setting, output.frame_size
        self.forced = self.logits = None
        if fills:
            self.forced, self.logits = (arena.take(chunk, D + 1) for _ in range(2))
        factor = torch.tensor([1 / temperature if temperature else 1.0], dtype=torch.float64)
        draw_fields = {"factor": factor, "forced": self.forced, "logits": self.logits, **fields}
        super().__init__(output, setting, draw_notes, draw_fields, notes_text=text, **how)


class LinearNotesDraw(NotesDraw):
    """A draw from h (H,), by a text that reads a layer's outputs, `product`."""

    def __init__(
        self, output: LinearNotesOutput, setting: DrawSetting, text: Callable[[Any], None],
        **own: Value,
    ) -> None:  # fmt: skip
        """`own` are fields of this draw alone."""
        weight, bias = output.linear.weight, output.linear.bias.double()
        columns, H = weight.shape
        fields = {
            "H": H, "columns": columns, "h": setting.h, "weight": pack(weight), "bias": bias,
            "product": setting.arena.take(columns), "notes": output.notes, **own,
        }  # fmt: skip
        how = {"linear_text": text, "w_bytes": weight.element_size(), "onsets": output.onsets}
        super().__init__(output, setting, draw_linear, fields, **how)


class SamplesDraw(Draw):
    """A draw of samples from h (H,) or (1, H), by a text below the output.

    x (C,) holds the last samples, standardised, for the unit; `line` (C + D,) those before the
    frame, then its own, also standardised; `frame` (D,) its own, raw.
    """

    dtype = torch.float64

    def __init__(
        self, output: SampleBlocksOutput, setting: DrawSetting, text: Callable[[Any], None],
        weight: Tensor, bias: Tensor, fields: Mapping[str, Value] = MappingProxyType({}),
        **constants: Any,
    ) -> None:  # fmt: skip
        """The text reads `parameters`, which this layer computes from h.

        `fields` and `constants` are those of this draw alone.
        """
        (h, x, arena, _, temperature, _), H = setting, setting.h.shape[-1]
        K, C, D = output.components, x.shape[0], output.frame_size
        names = "mean", "deviation", "floor", "temperature"
        values = output.mean, output.deviation, output.floor, temperature
        tensors = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
        sizes = {"parameters": len(bias), "line": C + D, "frame": D, "weights": K, "sizes": K}
        all_fields: dict[str, Value] = {
            "H": H, "h": h.reshaped(H), "C": C, "K": K, "N": len(bias), "weight": pack(weight),
            "bias": bias.double().contiguous(), **dict(zip(names, tensors, strict=True)),
            **{name: arena.take(n) for name, n in sizes.items()}, **fields,
        }  # fmt: skip
        if output.ending is not None:
            end_weight, end_bias = (part.double() for part in output.ending.parameters())
            all_fields |= {"end_weight": end_weight, "end_bias": end_bias}
        how = {"samples_text": text, "w_bytes": weight.element_size(), **constants}
        super().__init__(output, setting, draw_samples, all_fields, **how)


# ---- what texts call


def uniforms(e: Emitter, state: Any, n: Any) -> Vector:
    """A vector of uniforms, from number `n` on, of a stream in the given `state`."""
    b = e.builder
    lanes = ir.Constant(e.integers, [(lane + 1) * GAMMA % 2**64 for lane in range(e.lanes)])
    bits = b.add(e.splat(e.add(state, e.mul(n, GAMMA)), e.integers), lanes)
    for shift, factor in MIXING:
        bits = b.mul(b.xor(bits, b.lshr(bits, e.integer(shift))), e.integer(factor))
    return Vector(e, b.uitofp(b.lshr(bits, e.integer(64 - BITS)), e.vector)) * 2.0**-BITS


def write_uniforms(e: Emitter, state: Any, first: Any, to: Any, count: Any) -> None:
    """Write `count` uniforms, in whole vectors, from number `first` of a stream on."""
    with e.loop(0, count, e.lanes) as n:
        e.store(uniforms(e, state, e.add(first, n)).value, e.offset(to, n))


def _write_affine(e: Emitter, f: Any, weight: Any, bias: Any, c: Any, columns: Any) -> None:
    e.store(e.zero(), e.offset(c, columns))  # vectors extend beyond the end
    e.copy(bias, c, columns)
    row_matmul(e, f.w_bytes, f.h.address, weight, c, f.H, columns, True)


def _write_bytes(e: Emitter, x: Any, to: Any, count: Any) -> None:
    b = e.builder
    whole = b.and_(count, e.int(-e.lanes))
    # Then one by one: what lies beyond the end may be another thread's.
    for lanes, first, last in ((e.lanes, 0, whole), (1, whole, count)):
        part, kind = Emitter(b, e.precision.itemsize, lanes), ir.VectorType(_BYTE, lanes)
        with e.loop(first, last, lanes) as j:
            ones = b.fcmp_ordered(">", part.load(e.offset(x, j)), part.zero())
            b.store(b.zext(ones, kind), b.gep(to, [j], source_etype=_BYTE), align=1)


take_uniforms: Any = Inline(write_uniforms)
"""take_uniforms(state, first, to, count), see `write_uniforms`."""
below = of_vectors(Vector.below)
"""below(u, logit): whether a uniform is below a logit's probability."""
affine: Any = Inline(_write_affine)
"""affine(f, weight, bias, c, columns): c (columns,) = h B + bias, with B packed as weight."""
multiply: Any = Inline(lambda e, *product: matmul(e, *product, False))
"""multiply(a, a_stride, b, c, c_stride, rows, k, columns): c (rows, columns) = a b, b packed."""
put_bytes: Any = Inline(_write_bytes)
"""put_bytes(x, to, count): write zeros and ones as bytes."""


# Texts of `kernels.code.language`. `f` has the fields and the constants of the draw.


def draw_step(f: Any) -> None:
    """Draw the next step."""
    take_uniforms(f.stream[0], f.stream[1] * f.numbers, f.uniforms, f.numbers)
    f.ended[0] = f.step_text(f)
    f.stream[1] += 1


def draw_notes(f: Any) -> Any:
    """Draw a frame of notes; given numbers take the place of uniforms."""
    if f.fills:
        for j in range(0, f.numbers, f.lanes):
            forced = side_by_side(f.forced[f.stream[1] * f.numbers + j :])[0]
            drawn = side_by_side(f.uniforms[j:])[0]
            side_by_side(f.uniforms[j:])[0] = drawn if forced == 0 else forced
    ended = f.notes_text(f)
    put_bytes(f.x, f.frames[f.stream[1] * f.D :], f.D)
    return ended


def draw_linear(f: Any) -> Any:
    """Draw a frame of notes by what a layer computes from h."""
    affine(f, f.weight, f.bias, f.product, f.columns)
    ended = ends(f, f.product[f.columns - 1]) if f.end else False
    f.linear_text(f)  # which may write whole vectors over the numbers' columns
    return ended


def draw_samples(f: Any) -> Any:
    """Draw a frame of samples by what a layer computes from h."""
    copy(f.x, f.line, f.C)
    affine(f, f.weight, f.bias, f.parameters, f.N)
    f.samples_text(f)
    copy(f.frame, f.frames[f.stream[1] * f.D :], f.D)
    copy(f.line[f.D :], f.x, f.C)
    return ends(f, dot(f.h, f.end_weight, f.H) + f.end_bias[0]) if f.end else False


def ends(f: Any, logit: Any) -> Any:
    """Whether the piece ends, by the last uniform; keeps the logit if numbers may be given."""
    if f.fills:
        f.logits[f.stream[1] * f.numbers + f.D] = logit
    return below(f.uniforms[f.numbers - 1], logit)


# Draws of samples read `parameters`, which a layer computes from h, and leave raw samples in
# `frame`.


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
            uniforms=numbers, lanes=1, **own,
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
        uniform = f.uniforms[0]
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
