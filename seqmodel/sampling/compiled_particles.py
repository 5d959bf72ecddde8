"""Particles in compiled code: each steps by itself, in an arena of its own."""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

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


class CompiledModel:
    """A model's step and draw, compiled once for all particles.

    Attributes:
        candidates: the most that can be drawn at a time.
    """

    def __init__(
        self, model: SequenceModel, steps: Steps, candidates: int, temperature: float
    ) -> None:
        output = model.output
        assert isinstance(output, NotesOutput)
        self.candidates, self.end = candidates, output.end
        self.arena = Arena()
        with torch.no_grad():
            self.step = compiled_step(model, steps, self.arena)
            kept = self.step.inputs.kept
            draw = output.compiled_draw(
                self.step.h, kept, self.arena, candidates, temperature, fills=True
            )
        assert draw is not None
        self.draw = draw
        self.before = self.arena.take(*kept.shape)
        """A copy of what is kept, which a draw replaces."""
        (size,) = kept.shape
        restore = Call(
            _restore().address("step"), _RESTORE, 8,
            {"F": size, "before": self.before, "kept": kept},
        )  # fmt: skip
        calls = [*self.step.calls, restore, draw.call]
        self.fields = CallFields(calls)
        self.team = ThreadPoolExecutor()  # compiled code runs without the interpreter's lock
        self.loop = _loop(tuple((call.function, len(call.fields)) for call in calls))


class CompiledParticles:
    """See `particles.Particles`."""

    def __init__(self, model: CompiledModel, carry: Carry, number: int) -> None:
        """`number` particles from the carry of a piece."""
        self._model, step = model, model.step
        memories = model.arena.memories(number)
        self._fields = np.stack([model.fields.over(memory) for memory in memories])
        self._states = [slot.of_all(memories) for slot in step.states]
        for ours, state in zip(
            self._states, (state for layer in carry.layers() for state in layer), strict=True
        ):
            ours[:] = state.view(ours.shape[1:]).numpy()
        if step.inputs.memory is not None and carry.past.memory is not None:
            self._states.append(step.inputs.memory.of_all(memories))
            self._states[-1][:] = carry.past.memory.numpy()
        self._before = model.before.of_all(memories)
        self._kept = step.inputs.kept.of_all(memories)
        self._kept[:] = self._before[:] = carry.past.numbers.numpy()
        draw = model.draw
        assert draw.forced is not None
        assert draw.logits is not None
        self._forced, self._logits = draw.forced.of_all(memories), draw.logits.of_all(memories)
        self._frames = draw.frames.of_all(memories)
        self._uniforms = draw.uniforms.of_all(memories).view(np.uint64)
        self._memories = memories

    def draw(self, forced: NDArray[np.float64], uniforms: Uniforms) -> Candidates:
        """See `Particles`."""
        N, M, F = forced.shape
        self._forced[:N, :M, :F] = forced
        self._forced[:N, :M, F] = 0
        step = M * (F + 1) * GAMMA % 2**64
        first = np.uint64(uniforms.skip(N * M * (F + 1)))
        self._uniforms[:N, 0] = first + np.arange(N, dtype=np.uint64) * np.uint64(step)
        shares = np.array_split(self._fields[:N], thread_count(N))
        list(self._model.team.map(self._model.loop.run, shares, repeat(M)))
        end = self._logits[:N, 0, F].copy() if self._model.end else np.full(N, -np.inf)
        return Candidates(self._frames[:N, :M].copy(), self._logits[:N, :M, :F].copy(), end)

    def keep(self, ancestors: NDArray[np.int64], frames: NDArray[np.uint8]) -> None:
        """See `Particles`."""
        n = len(ancestors)
        moved = np.flatnonzero(ancestors != np.arange(n))
        for state in self._states:
            state[moved] = state[ancestors[moved]]
        self._kept[:n] = self._before[:n] = frames


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
