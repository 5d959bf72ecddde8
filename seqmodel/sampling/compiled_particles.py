"""Particles in compiled code: each steps by itself, in an arena of its own."""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.run.calls import Arena, Call, CallFields
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.kernels.run.team import thread_count
from seqmodel.kernels.uniforms import GAMMA, Uniforms
from seqmodel.model.carry import Carry
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.notes.output import NotesOutput
from seqmodel.sampling.compiled import Steps, compiled_step
from seqmodel.sampling.particles import Candidates


class CompiledParticles:
    """See `particles.Particles`; `candidates` is the most that can be drawn at a time."""

    def __init__(
        self,
        model: SequenceModel,
        steps: Steps,
        number: int,
        *,
        candidates: int,
        temperature: float,
    ) -> None:
        output = model.output
        assert isinstance(output, NotesOutput)
        self._end, self._number = output.end, number
        self._arena = arena = Arena()
        with torch.no_grad():
            self._step = compiled_step(model, steps, arena)
            kept = self._step.inputs.kept
            draw = output.compiled_draw(
                self._step.h, kept, arena, candidates, temperature, fills=True
            )
        assert draw is not None
        self._draw = draw
        self._copy_of_kept = arena.take(*kept.shape)  # a draw replaces what is kept
        (length,) = kept.shape
        restore = Call(
            _restore().address("step"), _RESTORE, 8,
            {"F": length, "before": self._copy_of_kept, "kept": kept},
        )  # fmt: skip
        self._calls = [*self._step.calls, restore, draw.call]
        self._team = ThreadPoolExecutor()  # compiled code runs without the interpreter's lock
        self._loop = _loop(tuple((call.function, len(call.fields)) for call in self._calls))

    @property
    def size(self) -> int:
        """See `Particles`."""
        return self._arena.size

    @cached_property
    def _arenas(self) -> "_Arenas":
        """Made when they are first needed, so that their size may be checked before."""
        memories, step, draw = self._arena.memories(self._number), self._step, self._draw
        fields = CallFields(self._calls)
        kept = [slot for slot in (*step.states, step.inputs.memory) if slot is not None]
        assert draw.forced is not None
        assert draw.logits is not None
        return _Arenas(
            np.stack([fields.over(memory) for memory in memories]),
            [slot.of_all(memories) for slot in kept],
            step.inputs.kept.of_all(memories),
            self._copy_of_kept.of_all(memories),
            draw.forced.of_all(memories),
            draw.uniforms.of_all(memories).view(np.uint64),
            draw.frames.of_all(memories),
            draw.logits.of_all(memories),
        )

    def begin(self, carry: Carry) -> None:
        """See `Particles`."""
        arenas, past = self._arenas, carry.past
        states = [state for layer in carry.layers() for state in layer]
        if past.memory is not None:
            states.append(past.memory)
        for ours, state in zip(arenas.states, states, strict=True):
            ours[:] = state.view(ours.shape[1:]).numpy()
        arenas.kept[:] = arenas.before[:] = past.numbers.numpy()

    def draw(self, forced: NDArray[np.float64], uniforms: Uniforms) -> Candidates:
        """See `Particles`."""
        arenas, (N, M, F) = self._arenas, forced.shape
        arenas.forced[:N, :M, :F] = forced
        arenas.forced[:N, :M, F] = 0
        step = M * (F + 1) * GAMMA % 2**64
        first = np.uint64(uniforms.skip(N * M * (F + 1)))
        arenas.uniforms[:N, 0] = first + np.arange(N, dtype=np.uint64) * np.uint64(step)
        shares = np.array_split(arenas.fields[:N], thread_count(N))
        list(self._team.map(self._loop.run, shares, repeat(M)))
        end = arenas.logits[:N, 0, F].copy() if self._end else np.full(N, -np.inf)
        frames, logits = arenas.frames[:N, :M].copy(), arenas.logits[:N, :M, :F].copy()
        return Candidates(frames, logits, end)

    def keep(self, ancestors: NDArray[np.int64], frames: NDArray[np.uint8]) -> None:
        """See `Particles`."""
        arenas, n = self._arenas, len(ancestors)
        moved = np.flatnonzero(ancestors != np.arange(n))
        for state in arenas.states:
            state[moved] = state[ancestors[moved]]
        arenas.kept[:n] = arenas.before[:n] = frames


class _Arenas(NamedTuple):
    """What N particles have in their arenas; each array but the first is in them."""

    fields: NDArray[np.int64]
    """(N, ...), of the calls."""
    states: list[NDArray[np.float64]]
    """The units', and the encoder's memory if it has one."""
    kept: NDArray[Any]
    before: NDArray[Any]
    """What is kept, before a draw."""
    forced: NDArray[np.float64]
    uniforms: NDArray[np.uint64]
    frames: NDArray[np.uint8]
    logits: NDArray[np.float64]


class _Loop:
    """The compiled run(fields, particles, candidates).

    For each particle, with its own fields, it calls the functions at these addresses, each with its
    number of fields; the last two, which draw a candidate, as often as there are candidates.
    """

    def __init__(self, calls: Sequence[tuple[int, int]]) -> None:
        module = ir.Module("particles")
        made = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, INT, INT]), "run")
        b = ir.IRBuilder(made.append_basic_block())
        e, (fields, particles, candidates) = Emitter(b, 8), made.args
        starts = np.cumsum([0, *(size for _, size in calls)]).tolist()
        *steps, (restore, _), (draw, _) = calls
        with e.loop(0, particles) as k:

            def fields_of(call: int, k: Any = k) -> Any:
                number = e.add(e.mul(k, starts[-1]), starts[call])
                return b.gep(fields, [number], source_etype=INT)

            for n, (address, _) in enumerate(steps):
                call_at(b, address, ir.VoidType(), [fields_of(n)])
            with e.loop(0, candidates) as m:
                call_at(b, restore, ir.VoidType(), [fields_of(len(steps))])
                call_at(b, draw, INT, [fields_of(len(steps) + 1), m])
        b.ret_void()
        self._library = Library(module)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._run = kind(self._library.address("run"))

    def run(self, fields: NDArray[np.int64], candidates: int) -> None:
        """Advance the particles whose fields (N, ...) these are."""
        self._run(fields.ctypes.data, len(fields), candidates)


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
