"""A run's sampling as a WebAssembly module and the memory that it works in, for `model.js`.

What runs is what `seqmodel sample` runs: the same calls of the same kernels, emitted once more for
narrower vectors. Memory holds, from `STACK` on, the tensors that they read, the fields of the
calls, and the arena of a piece as it is at its beginning. Draws at different temperatures have
fields of their own, and share everything else.
"""

import zlib
from base64 import b64encode
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, PORTABLE, Emitter, emitting_for
from seqmodel.kernels.code.jit import call_at, function
from seqmodel.kernels.code.wasm import STACK, webassembly
from seqmodel.kernels.run.calls import ITEMSIZE, Call, Slot, step_call, write_calls
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.kernels.uniforms import GAMMA
from seqmodel.model.sequence import SequenceModel
from seqmodel.sampling.compiled import CompiledModel
from seqmodel.sampling.sampler import Sampler
from seqmodel.units.module import units_of

TEMPERATURES = [k / 20 for k in range(41)]
"""Those that the page's range can be set to."""
_ALIGNED = 64
_PAGE = 1 << 16
"""Bytes: WebAssembly's memory has whole pages."""
_FLAG = ir.IntType(32)


def program(model: SequenceModel) -> dict[str, Any] | None:
    """What `model.js` needs to draw; None for an output whose draw cannot be compiled."""
    units_of(model.unit)  # UsageError: compiled code calls Python for others
    sampler = Sampler(model)
    model = sampler.model
    with torch.no_grad(), emitting_for(PORTABLE):
        compiled = CompiledModel.of(model)
        stream, draws = compiled.arena.take(1, dtype=torch.int64), list[list[Call]]()
        for temperature in TEMPERATURES:  # all have their buffers in the same places
            own = replace(compiled, arena=copy(compiled.arena))
            draw = model.output.compiled_draw(own.draw_setting(1, temperature))
            if draw is None:
                return None
            read = {"stream": stream, "uniforms": draw.uniforms}
            count = model.output.uniforms_per_frame
            refill = step_call(_STREAM, _write_stream, count=count, **read)
            draws.append([refill, draw.call])
        sequences = [compiled.calls, *draws]
        variants = {tuple(call.function for call in calls): calls for calls in draws}
        code = _code(compiled.calls, [*variants.values()])
    start, last, told = own.arena.memory(), compiled.inputs.last, compiled.labels
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
    places = {key: memory.put(array, narrow=True) for key, array in narrow.items()}
    widened = (memory.end - STACK) // ITEMSIZE
    arena = memory.put(start)
    places |= {key: memory.put(array) for key, array in tensors.items() if key not in narrow}

    def number(field: int | Tensor | Slot) -> int:
        if isinstance(field, Slot):
            return arena + field.start
        return field if isinstance(field, int) else places[_key(field)]

    before, *of_draws = (
        memory.put(np.array([number(field) for call in calls for field in call.fields]))
        for calls in sequences
    )
    numbers = {functions: k for k, functions in enumerate(variants)}
    return {
        "program": b64encode(zlib.compress(memory.data + code, 9)).decode("ascii"),
        "code": len(memory.data),
        "base": STACK,
        "widened": widened,
        "pages": -(-memory.end // _PAGE),
        "before": before,
        "draws": [
            [place, numbers[tuple(call.function for call in calls)]]
            for place, calls in zip(of_draws, draws, strict=True)
        ],
        "arena": [arena, len(start)],
        "stream": arena + stream.start,
        "last": [arena + last.start, *last.shape],
        "frameSize": model.output.frame_size,
        "labels": told and [told.start, *told.shape[1:]],
    }


def _code(before: Sequence[Call], draws: Sequence[Sequence[Call]]) -> bytes:
    """step(fields of `before`, fields of a draw, its number), which returns whether it ended.

    All calls of `before` are made, then those of the draw, the last of which draws; none of a draw
    whose number is not one.
    """
    module = ir.Module("page")
    kinds = [POINTER, POINTER, _FLAG]
    with function(module, "step", kinds, ITEMSIZE, _FLAG) as (e, fields, of_draw, number):
        b = e.builder
        write_calls(e, [call.shape for call in before], fields)
        none = b.append_basic_block()
        switch = b.switch(number, none)
        for k, (*others, draw) in enumerate(draws):
            block = b.append_basic_block()
            switch.add_case(_FLAG(k), block)
            b.position_at_end(block)
            place = write_calls(e, [call.shape for call in others], of_draw)
            b.ret(b.trunc(call_at(b, draw.function, INT, [place, e.int(0)]), _FLAG))
        b.position_at_end(none)
        b.ret(_FLAG(0))
    return webassembly(module, "step")


class _Memory:
    """What is in memory from `STACK` on; `data` has of narrow arrays float32."""

    def __init__(self) -> None:
        self.end, self.data = STACK, b""

    def put(self, array: NDArray[Any], *, narrow: bool = False) -> int:
        """Append an array, and return its address."""
        place, size = self.end, -(-array.nbytes // _ALIGNED) * _ALIGNED
        stored = array.astype("<f4") if narrow else array
        self.data += stored.tobytes().ljust(size // 2 if narrow else size, b"\0")
        self.end += size
        return place


def _key(tensor: Tensor) -> Any:
    """Equal of tensors that hold the same."""
    return tensor.dtype, tensor.contiguous().numpy().tobytes()


def _is_narrow(array: NDArray[Any]) -> bool:
    """Whether float32 holds all of an array in float64."""
    return array.dtype == np.float64 and bool((array == array.astype(np.float32)).all())


# ---- the uniforms that a draw reads, from the stream of the piece


_STREAM = Signature(
    "stream",
    ("count",),
    (Array("stream", ("1",), torch.int64), Array("uniforms", ("1",), torch.int64)),
)


def _write_stream(e: Emitter, f: dict[str, Any]) -> None:
    """Let the draw read the stream from where it is, and let that go on by `count` numbers."""
    b = e.builder
    state = b.load(f["stream"], typ=INT)
    b.store(state, f["uniforms"])
    b.store(e.add(state, e.mul(f["count"], GAMMA)), f["stream"])
