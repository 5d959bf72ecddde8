"""Sampling in compiled code: unit, output and draw, frame by frame, without torch in between."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.instructions import Inline
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.language import copy
from seqmodel.kernels.run.calls import (
    ITEMSIZE,
    Arena,
    Call,
    CallFields,
    Slot,
    Value,
    make_calls,
    step_call,
    write_calls,
)
from seqmodel.kernels.run.threads import thread_count
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.labels import column_count
from seqmodel.model.encoder import CompiledInputs, Encoder
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs.draws import NotesDraw
from seqmodel.outputs.notes import NotesOutput
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.system import native
from seqmodel.units.cpu.stepping import steps
from seqmodel.units.module import units_of
from seqmodel.units.own_module import ModuleUnit

FREE, ON, OFF = 0.0, -1.0, 2.0
"""Uniforms that force a number: -1 is below every probability and 2 below none, so the draw of
frames also places given numbers; FREE forces nothing."""


Stream = Iterator[tuple[NDArray[Any], bool]]
"""Endless frames, in chunks (n, F), each with whether the piece ends there."""
DrawStream = Callable[[Carry, Uniforms, float], Stream]
"""Draws a piece that continues from a carry and does not end before this many steps."""


class PythonStep:
    """The step of layers in float64, between slots of the arena in which it is called.

    Attributes:
        call: the call that makes a step.
        states: the slots of the layers' states, in the order of `Carry.tensors`.
        h: the slot of the last layer's h.
    """

    def __init__(self, layers: Sequence[ModuleUnit], x: Slot, arena: Arena) -> None:
        self._layers = [deepcopy(layer).double().eval() for layer in layers]
        self._x, self._arena, (*rows, _) = x, arena, x.shape
        self._layer_states: list[list[Slot]] = []
        for layer in self._layers:
            state = layer.zero_state(*(rows or [1]))
            self._layer_states.append([arena.take(*t.shape, dtype=t.dtype) for t in state])
        self.states = [slot for layer in self._layer_states for slot in layer]
        self.h = arena.take(*rows, self._layers[-1].hidden_size)
        self._failure: BaseException | None = None
        address, self._callback = native.callback(self._step)
        count = int(np.prod(x.shape))
        self.call: Call = step_call(
            step_in_python, {"callback": address, "N": count, "x": x.reshaped(count)}
        )

    def check(self) -> None:
        """Raise any error of a step, which compiled code cannot do."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _step(self, x: int) -> None:
        if self._failure is not None:
            return
        try:
            with torch.inference_mode():
                base = native.memory_at(x - self._x.start, self._arena.size)
                self._advance(np.frombuffer(base, np.uint8))
        except BaseException as error:
            self._failure = error

    def _advance(self, memory: NDArray[np.uint8]) -> None:
        values = torch.from_numpy(self._x.of(memory)).view(1, -1, self._x.shape[-1])
        for layer, slots in zip(self._layers, self._layer_states, strict=True):
            states = [slot.of(memory) for slot in slots]
            before = tuple(torch.from_numpy(part).clone() for part in states)
            values, after = layer(values, before)
            for part, new in zip(states, after, strict=True):
                part[:] = new.numpy()
        self.h.of(memory)[:] = values.view(self.h.shape).numpy()


@dataclass(frozen=True)
class CompiledModel:
    """A model in compiled code, in float64, with its weights copied once for all pieces."""

    encoder: Encoder
    arena: Arena
    inputs: CompiledInputs
    states: Sequence[Slot]
    """The slots of the layers' states in the arena."""
    h: Slot
    """What the output reads."""
    calls: Sequence[Call]
    """The calls that compute the inputs, the unit's new state, and h: everything before a draw."""
    python: PythonStep | None
    """The step of a unit that is a module, to be checked for errors."""
    labels: Slot | None = None
    """(1, N), as in `Carry`."""

    @classmethod
    def of(cls, model: SequenceModel) -> "CompiledModel":
        """Compile everything but the draw of a model on the CPU."""
        arena, layers, encoder = Arena(), model.layers(), model.encoder
        inputs, labels, skip = encoder.compiled(arena), None, encoder.skip_size
        if count := column_count(model.known_labels):
            labels = arena.take(1, count)
            width, I = inputs.x.shape[-1] - skip, inputs.x.shape[-1]  # noqa: E741
            x, calls = concat(arena, (inputs.x, 0, width), (labels, 0, count), (inputs.x, width, I))
            inputs, skip = inputs._replace(x=x, calls=[*inputs.calls, *calls]), skip + count
        modules = [layer for layer in layers if isinstance(layer, ModuleUnit)]
        python = PythonStep(modules, inputs.x, arena) if modules else None
        if python is not None:
            calls, states, h = [python.call], python.states, python.h
        else:
            units = units_of(model.unit)
            calls, states = steps(units, inputs.x, arena, sparse=encoder.sparse)
            h = states[-len(units[-1].spec.state)]  # a layer's first state
        if inputs.changed is not None:
            calls = [conditional_call(inputs.changed, calls)]
        if skip:
            I = inputs.x.shape[-1]  # noqa: E741
            h, joining = concat(arena, (h, 0, h.shape[-1]), (inputs.x, I - skip, I))
            calls += joining
        return cls(encoder, arena, inputs, states, h, [*inputs.calls, *calls], python, labels)

    def draw_setting(self, chunk: int, temperature: float, *, fills: bool = False) -> DrawSetting:
        """The setting of a draw from h."""
        return DrawSetting(self.h, self.inputs.last, self.arena, chunk, temperature, fills)

    def begin(self, memory: NDArray[np.uint8], carry: Carry) -> None:
        """Let this arena's piece continue from a carry in double precision."""
        slots = (*self.states, self.inputs.last, self.inputs.memory, self.labels)
        past = carry.past._replace(numbers=self.encoder.scaled(carry.past.numbers))
        tensors = carry._replace(past=past).tensors()
        for slot, tensor in zip(filter(None, slots), tensors, strict=True):
            slot.of(memory)[:] = tensor.view(slot.shape).numpy()


def compiled_sampler(model: SequenceModel, chunk: int, temperature: float) -> DrawStream | None:
    """`sampler.plain_sampler`, compiled; None if the model's output has no compiled draw."""
    with torch.no_grad():
        compiled = CompiledModel.of(model)
        frame = model.output.compiled_draw(compiled.draw_setting(chunk, temperature))
    if frame is None:
        return None
    calls, steps_per_frame = [*compiled.calls, frame.call], model.encoder.steps
    shared, run = CallFields(calls, frame.ended), _loop(tuple(call.shape for call in calls))

    def draw(carry: Carry, uniforms: Uniforms, shortest: float) -> Stream:
        memory = compiled.arena.memory()
        fields, stops = shared.for_user(memory)[np.newaxis], np.array([chunk])
        compiled.begin(memory, carry)
        for done in count(0, chunk):
            frame.refill(memory, uniforms)
            endless = int(min(max(0, shortest - 1 - done), chunk))
            ended = run(fields, stops, endless, steps_per_frame)
            if compiled.python is not None:
                compiled.python.check()
            drawn = frame.drawn(memory, ended or chunk)
            yield drawn.reshape(len(drawn) // steps_per_frame, -1), ended > 0

    return draw


class CompiledParticles:
    """N drafts of a piece of music that advance together, with some of their numbers given.

    A draft's next frame is drawn several times, as candidates, one of which is kept. Drafts with
    the same past, as after resampling, share an arena, and with it the unit's step and whatever
    their candidates have in common.
    """

    def __init__(self, model: SequenceModel, number: int, temperature: float) -> None:
        output = model.output
        assert isinstance(output, NotesOutput)
        self._number = number
        with torch.no_grad():
            self._model = CompiledModel.of(model)
            draw = output.compiled_draw(self._model.draw_setting(1, temperature, fills=True))
        assert isinstance(draw, NotesDraw)
        self._draw, last = draw, self._model.inputs.last
        self._copy_of_last = self._model.arena.take(*last.shape)  # a draw replaces it
        calls = [*self._model.calls, copy_call(self._copy_of_last, last), draw.call]
        self._fields = CallFields(calls, draw.ended)
        external = filter(None, (draw.forced, draw.logits, draw.frames))
        self._columns = [self._fields.columns(slot) for slot in external]
        self._pool = ThreadPoolExecutor()  # compiled code runs without the interpreter's lock
        self._run = _loop(tuple(call.shape for call in calls), len(self._model.calls))
        self.size = self._model.arena.size
        """The size of each arena in bytes."""

    @cached_property
    def _memories(self) -> NDArray[np.uint8]:
        """An arena for each draft, made on first use, so that the size can be checked before."""
        memories = self._model.arena.memories(self._number)
        self._draw.stream.of_all(memories)[:] = 0  # every number is forced
        return memories

    @cached_property
    def _fields_of_all(self) -> NDArray[np.int64]:
        """The fields (N, ...) of the calls in each arena."""
        return np.stack([self._fields.for_user(memory) for memory in self._memories])

    def begin(self, carry: Carry) -> None:
        """Let all particles continue from the carry of a piece, in double precision."""
        memory = self._memories[0]
        self._model.begin(memory, carry)
        self._copy_of_last.of(memory)[:] = self._model.inputs.last.of(memory)
        self._arenas = np.zeros(self._number, np.int64)  # the arena of each particle

    def draw(
        self, forced: NDArray[np.float64], uniforms: Uniforms
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Draw candidates for the next frame (N, M, F), given what is `forced` (N, M, F).

        Also returns the logits (N, M, F + 1) by which the numbers were drawn, see
        `NotesOutput.tempered`, and that of the piece ending here, if the model predicts ends.
        """
        N, M, F = forced.shape
        numbers = uniforms.take(N, M, F + 1)
        numbers[..., :F] = np.where(forced == FREE, numbers[..., :F], forced)
        order = np.argsort(self._arenas, kind="stable")
        used, starts = np.unique(self._arenas[order], return_index=True)
        padding = vector_lanes(8)  # vectors can extend beyond the end
        numbers_read, logits = np.empty((2, numbers.size + padding))
        frames = np.empty(forced.size + padding, np.uint8)
        numbers_read[: numbers.size] = numbers[order].ravel()
        self._draw.stream.of_all(self._memories)[used] = 0
        fields = self._fields_of_all[used]
        external: tuple[NDArray[Any], ...] = (numbers_read, logits, frames)
        for array, columns in zip(external, self._columns, strict=True):
            stride = M * (F if array is frames else F + 1) * array.itemsize  # bytes of a particle
            fields[:, columns] = (array.ctypes.data + starts * stride)[:, None]
        counts, parts = np.diff(starts, append=N) * M, thread_count(len(used))
        shares = np.array_split(fields, parts), np.array_split(counts, parts)
        list(self._pool.map(self._advance, *shares))
        if self._model.python is not None:
            self._model.python.check()
        back = np.argsort(order)
        logits = logits[: numbers.size].reshape(N, M, F + 1)[back]
        return frames[: forced.size].reshape(N, M, F)[back], logits

    def _advance(self, fields: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Advance the arenas with these fields (N, ...), and draw `counts` candidates (N,)."""
        self._run(fields, counts, int(counts.max()), 1)

    def keep(self, ancestors: NDArray[np.int64], frames: NDArray[np.uint8]) -> None:
        """Let particle k become `ancestors[k]` followed by `frames[k]`, for n <= N, (n, F)."""
        arenas, model, memories = self._arenas[ancestors], self._model, self._memories
        paths = np.hstack([arenas[:, None].view(np.uint8), np.packbits(frames, axis=1)])
        _, firsts, path_of = np.unique(paths, axis=0, return_index=True, return_inverse=True)
        # One path stays in its arena; the others move to unused arenas.
        before = arenas[firsts]
        _, staying = np.unique(before, return_index=True)
        moved = np.delete(np.arange(len(firsts)), staying)
        after = before.copy()
        after[moved] = np.setdiff1d(np.arange(self._number), before)[: len(moved)]
        for slot in filter(None, (*model.states, model.inputs.memory, model.labels)):
            state = slot.of_all(memories)
            state[after[moved]] = state[before[moved]]
        for slot in (model.inputs.last, self._copy_of_last):
            slot.of_all(memories)[after] = frames[firsts]
        self._arenas = after[path_of.ravel()]


@compiled_once
def _loop(calls: tuple[tuple[int, int], ...], once: int = 0) -> Callable[..., int]:
    """run(fields, stops, endless, whole): a compiled loop over calls, the last being a draw.

    It makes `stops` (N,) steps in each arena, with its `fields` (N, ...), the last of which is
    whether the piece `ended`; the first `once` calls run only at step 0. Draws below `endless` do
    not end the piece, and others only if n + 1 is a multiple of `whole`. Returns n + 1 at an end,
    else 0.
    """
    module, kinds = ir.Module("sample"), [POINTER, INT, INT, POINTER, INT, INT]
    first, others = calls[:once], calls[once:]
    with function(module, "run", kinds, ITEMSIZE, INT) as (e, fields, arenas, *more):
        b, (size, stops, endless, whole) = e.builder, more
        with e.loop(0, arenas) as k:
            base = b.gep(fields, [e.mul(k, size)], source_etype=INT)
            rest = b.gep(base, [e.int(sum(count for _, count in first))], source_etype=INT)
            stop = b.load(b.gep(stops, [k], source_etype=INT), typ=INT)
            with e.loop(0, stop) as n:
                with b.if_then(b.icmp_signed("==", n, e.int(0))):
                    write_calls(e, first, base)
                ended = b.load(b.load(write_calls(e, others, rest), typ=POINTER), typ=INT)
                frame_ends = b.icmp_signed("==", b.srem(e.add(n, 1), whole), e.int(0))
                may_end = b.and_(b.icmp_signed(">=", n, endless), frame_ends)
                with b.if_then(b.and_(may_end, b.icmp_signed("!=", ended, e.int(0)))):
                    b.ret(e.add(n, 1))
        b.ret(e.int(0))
    compiled = Library(module).function("run", kinds, INT)

    def run(fields: NDArray[Any], stops: NDArray[Any], endless: int, whole: int) -> int:
        rows, size = fields.shape
        return int(compiled(fields.ctypes.data, rows, size, stops.ctypes.data, endless, whole))

    return run


def conditional_call(flag: Slot, calls: Sequence[Call]) -> Call:
    """A call that makes the calls if the flag is not 0."""
    return step_call(make_conditional, {"flag": flag}, calls)


def make_conditional(f: Any) -> None:
    """A text of `kernels.code.language`, like those below."""
    if f.flag[0] != 0:
        make_calls(f)


def concat(arena: Arena, *parts: tuple[Slot, int, int]) -> tuple[Slot, list[Call]]:
    """Rows side by side: a range of columns from each slot (R, I), or one row for all.

    The first slot can also be (I,); then the result is a single row as well.
    """
    rows, ends = parts[0][0].shape[:-1], [*accumulate(stop - first for _, first, stop in parts)]
    to = arena.take(*rows, ends[-1])
    starts = [0, *ends]
    return to, [
        copy_call(slot, to, first, stop - first, at)
        for (slot, first, stop), at in zip(parts, starts, strict=False)
    ]


def copy_call(source: Slot, to: Slot, first: int = 0, size: int | None = None, at: int = 0) -> Call:
    """The call that copies columns, by default all, from `first` on to those from `at` on."""
    width = source.shape[-1]
    fields: dict[str, Value] = {
        "R": math.prod(to.shape[:-1]), "step": width * (math.prod(source.shape[:-1]) > 1),
        "J": to.shape[-1], "start": first, "at": at, "size": width if size is None else size,
        "source": source, "to": to,
    }  # fmt: skip
    return step_call(copy_rows, fields)


def copy_rows(f: Any) -> None:
    """See `copy_call`."""
    for row in range(f.R):
        copy(f.source[row * f.step + f.start :], f.to[row * f.J + f.at :], f.size)


def step_in_python(f: Any) -> None:
    """See `PythonStep`."""
    call_python(f.callback, f.x)


def _write_python(e: Emitter, callback: Any, x: Any) -> None:
    kind = ir.PointerType(ir.FunctionType(ir.VoidType(), [POINTER]))
    e.builder.call(e.builder.inttoptr(callback, kind), [x])


call_python: Any = Inline(_write_python)
