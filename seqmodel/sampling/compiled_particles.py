"""Particles in compiled code: a step for each different past, in an arena of its own."""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.run.calls import Arena, Call, CallFields
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.kernels.run.team import thread_count
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.carry import Carry
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.notes.draw import FramesDraw
from seqmodel.outputs.notes.output import NotesOutput
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.sampling.compiled import Steps, compiled_step
from seqmodel.sampling.particles import FREE, Candidates


class CompiledParticles:
    """See `particles.Particles`.

    Those with the same past, as after resampling, share an arena, and with it the unit's step and
    whatever their candidates have in common.
    """

    def __init__(self, model: SequenceModel, steps: Steps, number: int, temperature: float) -> None:
        output = model.output
        assert isinstance(output, NotesOutput)
        self._end, self._number = output.end, number
        self._arena = arena = Arena()
        with torch.no_grad():
            self._step = compiled_step(model, steps, arena)
            kept = self._step.inputs.kept
            setting = DrawSetting(self._step.h, kept, arena, 1, temperature, fills=True)
            draw = output.compiled_draw(setting)
        assert isinstance(draw, FramesDraw)
        self._draw = draw
        self._copy_of_kept = arena.take(*kept.shape)  # a draw replaces what is kept
        (length,) = kept.shape
        restore = Call(
            _restore().address("step"), _RESTORE, 8,
            {"F": length, "before": self._copy_of_kept, "kept": kept},
        )  # fmt: skip
        calls = [*self._step.calls, restore, draw.call]
        self._fields = CallFields(calls)
        assert draw.forced is not None
        assert draw.logits is not None
        outside = (draw.forced, draw.logits, draw.frames)
        self._columns = [self._fields.columns(slot) for slot in outside]
        self._team = ThreadPoolExecutor()  # compiled code runs without the interpreter's lock
        self._loop = _loop(tuple((call.function, len(call.fields)) for call in calls))

    @property
    def size(self) -> int:
        """See `Particles`."""
        return self._arena.size

    @cached_property
    def _arenas(self) -> "_Arenas":
        """Made when they are first needed, so that their size may be checked before."""
        memories, step = self._arena.memories(self._number), self._step
        self._draw.uniforms.of_all(memories)[:] = 0  # every number is forced
        kept = [slot for slot in (*step.states, step.inputs.memory) if slot is not None]
        return _Arenas(
            np.stack([self._fields.over(memory) for memory in memories]),
            [slot.of_all(memories) for slot in kept],
            step.inputs.kept.of_all(memories),
            self._copy_of_kept.of_all(memories),
        )

    def begin(self, carry: Carry) -> None:
        """See `Particles`."""
        arenas, past = self._arenas, carry.past
        states = [state for layer in carry.layers() for state in layer]
        if past.memory is not None:
            states.append(past.memory)
        for ours, state in zip(arenas.states, states, strict=True):
            ours[0] = state.view(ours.shape[1:]).numpy()
        arenas.kept[0] = arenas.before[0] = past.numbers.numpy()
        self._homes = np.zeros(self._number, np.int64)  # the arena of each particle

    def draw(self, forced: NDArray[np.float64], uniforms: Uniforms) -> Candidates:
        """See `Particles`."""
        N, M, F = forced.shape
        numbers = uniforms.take(N, M, F + 1)
        numbers[..., :F] = np.where(forced == FREE, numbers[..., :F], forced)
        order = np.argsort(self._homes, kind="stable")
        used, starts = np.unique(self._homes[order], return_index=True)
        spare = vector_lanes(8)  # vectors may reach beyond the end
        read, logits = np.empty((2, numbers.size + spare))
        frames = np.empty(forced.size + spare, np.uint8)
        read[: numbers.size] = numbers[order].ravel()
        fields = self._arenas.fields[used]
        outside: tuple[NDArray[Any], ...] = (read, logits, frames)
        for array, columns in zip(outside, self._columns, strict=True):
            each = M * (F if array is frames else F + 1) * array.itemsize  # bytes of a particle
            fields[:, columns] = (array.ctypes.data + starts * each)[:, None]
        counts, parts = np.diff(starts, append=N) * M, thread_count(len(used))
        shares = np.array_split(fields, parts), np.array_split(counts, parts)
        list(self._team.map(self._loop.run, *shares))
        back = np.argsort(order)
        logits = logits[: numbers.size].reshape(N, M, F + 1)[back]
        end = logits[:, 0, F] if self._end else np.full(N, -np.inf)
        return Candidates(frames[: forced.size].reshape(N, M, F)[back], logits[..., :F], end)

    def keep(self, ancestors: NDArray[np.int64], frames: NDArray[np.uint8]) -> None:
        """See `Particles`."""
        arenas, homes = self._arenas, self._homes[ancestors]
        paths = np.hstack([homes[:, None].view(np.uint8), np.packbits(frames, axis=1)])
        _, firsts, which = np.unique(paths, axis=0, return_index=True, return_inverse=True)
        # One path goes on in the arena that it was in; others take arenas that none is left in.
        before = homes[firsts]
        _, staying = np.unique(before, return_index=True)
        moved = np.delete(np.arange(len(firsts)), staying)
        after = before.copy()
        after[moved] = np.setdiff1d(np.arange(self._number), before)[: len(moved)]
        for state in arenas.states:
            state[after[moved]] = state[before[moved]]
        arenas.kept[after] = arenas.before[after] = frames[firsts]
        self._homes = after[which.ravel()]


class _Arenas(NamedTuple):
    """What N arenas hold; each array but the first is in them."""

    fields: NDArray[np.int64]
    """(N, ...), of the calls."""
    states: list[NDArray[np.float64]]
    """The units', and the encoder's memory if it has one."""
    kept: NDArray[Any]
    before: NDArray[Any]
    """What is kept, before a draw."""


class _Loop:
    """The compiled run(fields, arenas, counts).

    For each arena, with its own fields, it calls the functions at these addresses, each with its
    number of fields; the last two, which draw a candidate, as often as its count says.
    """

    def __init__(self, calls: Sequence[tuple[int, int]]) -> None:
        module = ir.Module("particles")
        made = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, INT, POINTER]), "run")
        b = ir.IRBuilder(made.append_basic_block())
        e, (fields, arenas, counts) = Emitter(b, 8), made.args
        starts = np.cumsum([0, *(size for _, size in calls)]).tolist()
        *steps, (restore, _), (draw, _) = calls
        with e.loop(0, arenas) as k:

            def fields_of(call: int, k: Any = k) -> Any:
                number = e.add(e.mul(k, starts[-1]), starts[call])
                return b.gep(fields, [number], source_etype=INT)

            for n, (address, _) in enumerate(steps):
                call_at(b, address, ir.VoidType(), [fields_of(n)])
            count = b.load(b.gep(counts, [k], source_etype=INT), typ=INT)
            with e.loop(0, count) as m:
                call_at(b, restore, ir.VoidType(), [fields_of(len(steps))])
                call_at(b, draw, INT, [fields_of(len(steps) + 1), m])
        b.ret_void()
        self._library = Library(module)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._run = kind(self._library.address("run"))

    def run(self, fields: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Advance the arenas whose fields (N, ...) these are, and draw so many candidates (N,)."""
        self._run(fields.ctypes.data, len(fields), counts.ctypes.data)


@compiled_once
def _loop(calls: tuple[tuple[int, int], ...]) -> _Loop:
    """The loop over these calls, compiled at first use."""
    return _Loop(calls)


_RESTORE = Signature("restore", ("F",), (Array("before", ("F",)), Array("kept", ("F",))))


@compiled_once
def _restore() -> Library:
    """step(fields): what is kept as it was before a draw."""
    module = ir.Module("restore")
    with function(module, "step", [POINTER], 8) as (e, fields):
        f = _RESTORE.load(e, fields)
        e.copy(f["before"], f["kept"], f["F"])
    return Library(module)
