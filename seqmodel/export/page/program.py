"""A run's sampling as a WebAssembly module and the memory that it works in, for `model.js`.

It runs exactly what `seqmodel sample` runs: the same calls of the same kernels, emitted for
narrower vectors. From `STACK` on, memory holds the tensors that they read, the fields of the calls,
and the initial arena of a piece. Draws at different temperatures have their own fields, and share
everything else.
"""

import math
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, PORTABLE, emitting_for
from seqmodel.kernels.code.jit import function
from seqmodel.kernels.code.wasm import STACK, webassembly
from seqmodel.kernels.run.calls import ITEMSIZE, Call, Slot, kernel_call, step_call, write_calls
from seqmodel.kernels.uniforms import GAMMA
from seqmodel.model.marks import MarkOutput
from seqmodel.model.marks_kernel import levels_kernel, strikes_kernel
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs.draws import NotesDraw, take_uniforms
from seqmodel.outputs.notes import NotesOutput
from seqmodel.sampling.compiled import FREE, OFF, ON, CompiledModel, copy_call
from seqmodel.sampling.filling import CANDIDATES, RESAMPLE, SHARE, WEIGH, kernel_of
from seqmodel.sampling.sampler import Sampler
from seqmodel.units.module import units_of

TEMPERATURES = [k / 20 for k in range(41)]
"""The settings of the page's slider."""
PARTICLES = 16
"""The number that draw the voices below a melody."""
_ALIGNED = 64
_PAGE = 1 << 16
"""Bytes: WebAssembly's memory has whole pages."""


def program(model: SequenceModel, *, voices: bool) -> dict[str, Any] | None:
    """What `model.js` needs to draw, and `voices.js` if there are to be voices below a melody.

    None for an output whose draw cannot be compiled.
    """
    units_of(model.unit)  # UsageError: compiled code calls Python for others
    sampler = Sampler(model)
    model = sampler.model
    mark_calls, mark_slots = list[list[Call]](), dict[str, Slot]()
    with torch.no_grad(), emitting_for(PORTABLE):
        compiled = CompiledModel.of(model)
        past_size = compiled.arena.size
        stream, draws = compiled.arena.take(1, dtype=torch.int64), list[list[Call]]()
        if model.marks is not None:
            mark_calls, mark_slots = _marks(model.marks.outputs(), compiled)
        for temperature in TEMPERATURES:  # all have their buffers in the same places
            own_model = replace(compiled, arena=copy(compiled.arena))
            draw = model.output.compiled_draw(own_model.draw_setting(1, temperature))
            if draw is None:
                return None
            count = model.output.uniforms_per_frame
            draws.append([_take_call(stream, draw.stream, count, later=True), draw.call])
        voice_calls, slots = list[list[Call]](), dict[str, Slot]()
        if voices and isinstance(model.output, NotesOutput):
            own_model = replace(compiled, arena=copy(compiled.arena))
            voice_calls, slots = _voices(model.output, own_model, stream)
        sequences = [compiled.calls, *draws, *voice_calls, *mark_calls]
        variants = {_functions(calls): calls for calls in sequences[1:]}
        code = _code(compiled.calls, [*variants.values()])
    start, last = own_model.arena.memory(), compiled.inputs.last
    start[:] = 0
    compiled.begin(start, sampler.start)
    memory = _Memory()
    tensors = {
        _key(field): field.numpy()
        for calls in sequences
        for call in calls
        for field in call.fields
        if isinstance(field, Tensor)
    }
    narrow = {key: array for key, array in tensors.items() if _is_narrow(array)}
    addresses = {key: memory.put(array, narrow=True) for key, array in narrow.items()}
    widened = (memory.end - STACK) // ITEMSIZE
    arena = memory.put(start)
    addresses |= {key: memory.put(array) for key, array in tensors.items() if key not in narrow}

    def number(field: int | Tensor | Slot) -> int:
        if isinstance(field, Slot):
            return arena + field.start
        return field if isinstance(field, int) else addresses[_key(field)]

    before, *field_addresses = (
        memory.put(np.array([number(field) for call in calls for field in call.fields]))
        for calls in sequences
    )
    numbers = {functions: k for k, functions in enumerate(variants)}
    kinds = [numbers[_functions(calls)] for calls in sequences[1:]]
    steps = [*zip(field_addresses, kinds, strict=True)]
    marking = {name: number(slot) for name, slot in mark_slots.items()}
    return {
        "program": b64encode(zlib.compress(memory.data + code, 9)).decode("ascii"),
        "code": len(memory.data),
        "base": STACK,
        "widened": widened,
        "pages": -(-memory.end // _PAGE),
        "before": before,
        "draws": steps[: len(draws)],
        "arena": [arena, len(start)],
        "stream": arena + stream.start,
        "last": [arena + last.start, *last.shape],
        "ended": arena + draw.ended.start,
        "frames": [arena + draw.frames.start, draw.frames.dtype.itemsize],
        "frameSize": model.output.frame_size,
        "labels": _label_effects(model, compiled, sampler.start),
        "voices": {
            **{"particles": PARTICLES, "candidates": CANDIDATES, "past": past_size},
            **{name: number(slot) for name, slot in slots.items()},
            "steps": steps[len(draws) : len(draws) + len(voice_calls)],
            "by": {"free": FREE, "on": ON, "off": OFF},
        },
        "marking": marking and {"step": steps[-1], **marking},
    }


def _label_effects(
    model: SequenceModel, compiled: CompiledModel, start: Carry
) -> list[tuple[int, int, float]]:
    """What labels add to a piece's initial numbers: the index among those of the arena, the index
    of the value among those of all labels, and the amount.
    """

    def initial_memory(labels: list[int]) -> NDArray[np.float64]:
        memory = compiled.arena.memory()
        memory[:] = 0
        compiled.begin(memory, model.with_labels(start, np.array([labels])))
        return memory.view(np.float64)

    sizes = [len(values) for values in model.known_labels.values()]
    place_of = [(label, value) for label, size in enumerate(sizes) for value in range(1, 1 + size)]
    effects = list[tuple[int, int, float]]()
    for number, (label, value) in enumerate(place_of):
        effect = initial_memory([value * (k == label) for k in range(len(sizes))])
        effect -= initial_memory([0] * len(sizes))
        effects += [(place, number, effect[place]) for place in np.flatnonzero(effect).tolist()]
    return effects


def _voices(
    output: NotesOutput, model: CompiledModel, stream: Slot
) -> tuple[list[list[Call]], dict[str, Slot]]:
    """The calls that fill like `sampling.filling`, one particle after another, and their slots.

    They compute a particle's candidates; their weights, before the last frame and there;
    resampling; the choice of one.
    """
    N, M, F, take = PARTICLES, CANDIDATES, output.frame_size, model.arena.take
    draw = output.compiled_draw(model.draw_setting(M, 1.0, fills=True))
    assert isinstance(draw, NotesDraw)
    assert draw.forced is not None
    assert draw.logits is not None
    last = model.inputs.last
    copied, one = take(*last.shape), take(1)
    byte, int64 = torch.uint8, torch.int64
    arrays = {
        "frames": take(N, M, F, dtype=byte), "logits": take(N, M, F + 1),
        "x": take(F, dtype=byte), "free": take(F, dtype=byte), "at": take(N),
        "before": take(N, F, dtype=byte), "gains": take(N, M), "weights": take(N),
        "chosen": take(N, dtype=int64),
    }  # fmt: skip
    shares, facts = take(N), take(2)
    ancestors, picked = take(N, dtype=int64), take(1, dtype=int64)
    settings = {"N": N, "M": M, "F": F, "D": output.notes, "ends": int(output.end)}
    weigh_calls = [kernel_call(kernel_of(WEIGH), over=k, **settings, **arrays) for k in (0, 1)]
    weights = {"weights": arrays["weights"], "shares": shares, "facts": facts}
    share = kernel_call(kernel_of(SHARE), N=N, number=N, **weights)
    for_all, for_one = (
        kernel_call(
            kernel_of(RESAMPLE), N=N, count=count, A=1, shares=shares, at=one, ancestors=chosen
        )
        for count, chosen in ((N, ancestors), (1, picked))
    )
    uniforms, one_uniform = _take_call(stream, arrays["at"], N), _take_call(stream, one, 1)
    refill = _take_call(stream, draw.stream, M * output.uniforms_per_frame, later=True)
    sequences = [
        [refill, *[copy_call(copied, last), draw.call] * M],
        *([uniforms, weigh, share] for weigh in weigh_calls),
        [one_uniform, for_all],
        [share, one_uniform, for_one],
    ]
    return sequences, {
        **{"forced": draw.forced, "drawn": draw.frames, "scores": draw.logits},
        **{"copied": copied, "facts": facts, "ancestors": ancestors, "picked": picked},
        **arrays,
    }


def _marks(
    outputs: Mapping[str, MarkOutput], model: CompiledModel
) -> tuple[list[list[Call]], dict[str, Slot]]:
    """The calls that draw the marks of the last frame, from a stream of their own, and slots."""
    take, int64, Q, x = model.arena.take, torch.int64, len(outputs), model.inputs.last
    D, H = x.shape[0] // 2, model.h.shape[-1]
    h = model.h.reshaped(math.prod(model.h.shape) // H, H)
    stream, count = take(1, dtype=int64), take(1, dtype=int64)
    given, temperature = take(1), take(1)
    levels, uniforms = take(Q, 1, 1, D, dtype=int64), take(D, Q)
    listed = kernel_call(
        strikes_kernel(), D=D, Q=Q, x=x, given=given, levels=levels, uniforms=count
    )
    calls = [listed, _take_call(stream, uniforms, count)]
    for mark in outputs.values():
        fields = mark.draw_fields(levels)
        fields |= {name: take(*shape) for name, shape in {
            "features": (1, fields["K"]), "memory": (1, mark.memory_size),
            "seen": (fields["J"],), "odds": (fields["L"],),
        }.items()}  # fmt: skip
        fields |= {"H": H, "h": h, "U": D, "uniforms": uniforms, "temperature": temperature}
        calls.append(kernel_call(levels_kernel(ITEMSIZE, draws=True), **fields))
    slots = {"stream": stream, "given": given, "temperature": temperature, "levels": levels}
    return [calls], slots


def _functions(calls: Sequence[Call]) -> tuple[int, ...]:
    return tuple(call.function for call in calls)


def _code(before: Sequence[Call], sequences: Sequence[Sequence[Call]]) -> bytes:
    """step(fields of `before` or 0, fields of a sequence, its number).

    It makes all calls of `before`, then those of the sequence, if there is one of that number.
    """
    module = ir.Module("page")
    kinds = [POINTER, POINTER, ir.IntType(32)]
    with function(module, "step", kinds, ITEMSIZE) as (e, fields, own, number):
        b = e.builder
        with b.if_then(b.icmp_unsigned("!=", fields, ir.Constant(POINTER, None))):
            write_calls(e, [call.shape for call in before], fields)
        shapes = [[call.shape for call in calls] for calls in sequences]
        cases = [partial(write_calls, e, of_calls, own) for of_calls in shapes]
        e.choose(b.sext(number, INT), [*cases, lambda: None])
    return webassembly(module, "step")


class _Memory:
    """The memory from `STACK` on; `data` stores narrow arrays as float32."""

    def __init__(self) -> None:
        self.end, self.data = STACK, b""

    def put(self, array: NDArray[Any], *, narrow: bool = False) -> int:
        """Append an array, and return its address."""
        address, size = self.end, -(-array.nbytes // _ALIGNED) * _ALIGNED
        stored = array.astype("<f4") if narrow else array
        self.data += stored.tobytes().ljust(size // 2 if narrow else size, b"\0")
        self.end += size
        return address


def _key(tensor: Tensor) -> Any:
    """A key, equal for tensors of equal content."""
    return tensor.dtype, tensor.contiguous().numpy().tobytes()


def _is_narrow(array: NDArray[Any]) -> bool:
    """Whether float32 represents a float64 array exactly."""
    return array.dtype == np.float64 and bool((array == array.astype(np.float32)).all())


# ---- the uniforms of the piece's stream


def _take_call(stream: Slot, uniforms: Slot, count: int | Slot, *, later: bool = False) -> Call:
    """The call that takes the next uniforms; with `later`, a draw does so, from its `stream`."""
    counted, fields = isinstance(count, Slot), {"count": count, "stream": stream, "to": uniforms}
    return step_call(take, fields, later=later, counted=counted)


def take(f: Any) -> None:
    """A text of `kernels.code.language`: see `_take_call`."""
    count = f.count[0] if f.counted else f.count
    if f.later:
        f.to[0] = f.stream[0]
        f.to[1] = 0
    else:
        take_uniforms(f.stream[0], 0, f.to, count)
    f.stream[0] += count * GAMMA
