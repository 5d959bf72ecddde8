"""Sampling in compiled code: unit, output and draw, frame by frame, without torch in between."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, call_at, compiled_once
from seqmodel.kernels.run.calls import Arena, Call, CallFields, Slot
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.beside import beside
from seqmodel.model.carry import Carry
from seqmodel.model.encoder import CompiledInputs, Encoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.protocol import CompiledDraw, DrawSetting

Steps = Callable[..., tuple[list[Call], list[Slot]]]


def compiled_sampler(
    model: SequenceModel, steps: Steps, chunk: int, temperature: float
) -> "CompiledSampler | None":
    """The compiled sampler of a model, or None if its output has no compiled draw.

    `steps` compiles the unit's layers, see `units.backends.stepper`. Weights may be float32;
    everything is computed in float64.
    """
    arena = Arena()
    with torch.no_grad():
        step = compiled_step(model, steps, arena)
        setting = DrawSetting(step.h, step.inputs.kept, arena, chunk, temperature)
        draw = model.output.compiled_draw(setting)
    if draw is None:
        return None
    calls = [*step.calls, draw.call]
    loop = _loop(tuple((call.function, len(call.fields)) for call in calls))
    fields = CallFields(calls)
    return CompiledSampler(
        model.encoder, arena, step.inputs, step.states, draw, chunk, fields, loop
    )


class CompiledStep(NamedTuple):
    """What comes before each draw, in compiled code."""

    inputs: CompiledInputs
    calls: Sequence[Call]
    """The calls that compute the inputs, the unit's new state, and h."""
    states: Sequence[Slot]
    """Of the layers' states in the arena."""
    h: Slot
    """What the output reads."""


def compiled_step(model: SequenceModel, steps: Steps, arena: Arena) -> CompiledStep:
    """Compile a model's step up to the draw; see `compiled_sampler`."""
    layers, inputs = model.layers(), model.encoder.compiled(arena)
    calls, states = steps(layers, inputs.x, arena, binary=model.encoder.binary)
    h = states[-len(layers[-1].spec.state)]  # a layer's first state
    if model.encoder.beside_size:
        h, joining = beside(h, inputs.x, model.encoder.beside_size, arena)
        calls.append(joining)
    return CompiledStep(inputs, [*inputs.calls, *calls], states, h)


@dataclass(frozen=True)
class CompiledSampler:
    """As `sampler._draw_plainly`, with weights copied once for all pieces."""

    encoder: Encoder
    arena: Arena
    inputs: CompiledInputs
    states: Sequence[Slot]
    """Of the layers' states in the arena."""
    frame: CompiledDraw
    chunk: int
    fields: CallFields
    loop: "_Loop"

    def draw(
        self, carry: Carry, uniforms: Uniforms, shortest: float
    ) -> Iterator[tuple[NDArray[Any], bool]]:
        """As `Sampler.draw`, onwards from the carry, in steps."""
        memory = self.arena.memory()
        fields = self.fields.over(memory)
        states = [tensor for layer in carry.layers() for tensor in layer]
        for slot, state in zip(self.states, states, strict=True):
            slot.of(memory)[:] = state.view(slot.shape).numpy()
        inputs, past, steps = self.inputs, carry.past, self.encoder.steps
        inputs.kept.of(memory)[:] = self.encoder.kept(past.numbers)[0].numpy()
        if inputs.memory is not None and past.memory is not None:
            inputs.memory.of(memory)[:] = past.memory.numpy()
        for done in count(0, self.chunk):
            self.frame.refill(memory, uniforms)
            endless = int(min(max(0, shortest - 1 - done), self.chunk))
            drawn = self.loop.run(fields, self.chunk, endless, steps)
            yield self.frame.drawn(memory, abs(drawn)).reshape(abs(drawn) // steps, -1), drawn < 0


class _Loop:
    """The compiled run(fields, count, endless, whole): returns the steps drawn, negated at an end.

    The first `endless` steps do not end the piece, and others only if they complete `whole` steps.
    It calls the functions at these addresses, the last being the draw, each with its number of
    fields.
    """

    def __init__(self, calls: Sequence[tuple[int, int]]) -> None:
        module = ir.Module("sample")
        made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT, INT, INT]), "run")
        b = ir.IRBuilder(made.append_basic_block())
        e, (fields, count, endless, whole_steps) = Emitter(b, 8), made.args

        def fields_from(start: int) -> Any:
            return b.gep(fields, [e.int(start)], source_etype=INT)

        *layers, (draw, _) = calls
        with e.loop(0, count) as n:
            start = 0
            for address, size in layers:
                call_at(b, address, ir.VoidType(), [fields_from(start)])
                start += size
            ended = call_at(b, draw, INT, [fields_from(start), n])
            over = b.srem(e.add(n, 1), whole_steps)
            may_end = b.and_(b.icmp_signed(">=", n, endless), b.icmp_signed("==", over, e.int(0)))
            with b.if_then(b.and_(may_end, b.icmp_signed("!=", ended, e.int(0)))):
                b.ret(b.sub(e.int(-1), n))
        b.ret(count)
        self._library = Library(module)
        whole = ctypes.c_int64
        kind = ctypes.CFUNCTYPE(whole, ctypes.c_void_p, whole, whole, whole)
        self._run = kind(self._library.address("run"))

    def run(self, fields: NDArray[np.int64], count: int, endless: int, whole: int) -> int:
        """Make `count` steps, or fewer: see the class."""
        return int(self._run(fields.ctypes.data, count, endless, whole))


@compiled_once
def _loop(calls: tuple[tuple[int, int], ...]) -> _Loop:
    """The loop over these calls, compiled at first use."""
    return _Loop(calls)
