"""A run's sampling as a WebAssembly module and the memory that it works in, for `model.js`.

What runs is what `seqmodel sample` runs: the same calls of the same kernels, emitted once more for
narrower vectors. Memory holds, from `STACK` on, the tensors that they read, the fields of the
calls, and the arena of a piece as it is at its beginning. Draws at different temperatures have
fields of their own, and share everything else.
"""

import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, PORTABLE, Emitter, emitting_for
from seqmodel.kernels.code.jit import call_at, function
from seqmodel.kernels.code.vectors import Vector, polynomial
from seqmodel.kernels.code.wasm import STACK, webassembly
from seqmodel.kernels.run.calls import ITEMSIZE, Call, Slot, step_call, write_calls
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.kernels.uniforms import BITS, GAMMA, MIXING
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.protocol import Output
from seqmodel.outputs.samples import SampleBlocksOutput
from seqmodel.sampling.compiled import CompiledModel
from seqmodel.sampling.sampler import Sampler
from seqmodel.units.cpu import BACKEND, compiled_steps
from seqmodel.units.module import Unit

TEMPERATURES = [k / 20 for k in range(41)]
"""Those that the page's range can be set to."""
_ALIGNED = 64
_PAGE = 1 << 16
"""Bytes: WebAssembly's memory has whole pages."""
_FLAG = ir.IntType(32)


def program(model: SequenceModel) -> dict[str, Any] | None:
    """What `model.js` needs to draw; None for an output whose draw cannot be compiled."""
    model = deepcopy(model).cpu()
    for unit in model.modules():
        if isinstance(unit, Unit):
            unit.backend = BACKEND.name  # whichever it was trained with
    with torch.no_grad(), emitting_for(PORTABLE):
        compiled = CompiledModel.of(model, compiled_steps)
        stream, draws = compiled.arena.take(1, dtype=torch.int64), list[list[Call]]()
        for temperature in TEMPERATURES:  # all have their buffers in the same places
            own = replace(compiled, arena=copy(compiled.arena))
            draw = model.output.compiled_draw(own.draw_setting(1, temperature))
            if draw is None:
                return None
            refill = _refill(model.output, draw.call, stream, temperature)
            if refill is None:
                return None
            draws.append([refill, draw.call])
        sequences = [compiled.calls, *draws]
        variants = {tuple(call.function for call in calls): calls for calls in draws}
        code = _code(compiled.calls, [*variants.values()])
    start, last = own.arena.memory(), compiled.inputs.last
    start[:] = 0
    compiled.begin(start, Sampler(model).start)
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


def _refill(output: Output, draw: Call, stream: Slot, temperature: float) -> Call | None:
    """The call that gives a draw the next uniforms; None if it reads them in an unknown way."""
    fields = dict(zip(draw.names, draw.fields, strict=False))
    uniforms, count = fields.get("uniforms"), output.uniforms_per_frame
    if not isinstance(uniforms, Slot):
        return None
    given: dict[str, Any] = {"stream": stream, "count": count}
    if uniforms.dtype == torch.int64:  # it computes them from the stream itself
        return step_call(_STREAM, _write_stream, uniforms=uniforms, **given)
    kind = _noise(output) if isinstance(output, SampleBlocksOutput) else None
    if kind is None:
        return None
    given |= {name: fields[name] for name in ("C", "F", "x", "line", "uniforms", "noise")}
    values = torch.tensor([temperature, temperature > 0], dtype=torch.float64)
    given |= {"choices": uniforms.shape[1], "temperature": values, "ends": fields["ends"] or None}
    return step_call(_SAMPLES, _write_samples, *kind, **given)


_STREAM = Signature(
    "stream",
    ("count",),
    (Array("stream", ("1",), torch.int64), Array("uniforms", ("1",), torch.int64)),
)
_SAMPLES = Signature(
    "uniforms",
    ("count", "choices", "C", "F"),
    (
        Array("stream", ("1",), torch.int64),
        Array("temperature", ("2",)),  # and whether it is above 0
        Array("uniforms", ("1", "choices")),
        Array("noise", ("1", "F")),
        Array("ends", ("1",), optional=True),
        Array("x", ("C",)),
        Array("line", ("C + F",)),
    ),
)


def _write_stream(e: Emitter, f: dict[str, Any]) -> None:
    e.builder.store(_advance(e, f), f["uniforms"])


def _advance(e: Emitter, f: dict[str, Any]) -> Any:
    """The state of the stream, which goes on by `count` numbers."""
    b = e.builder
    state = b.load(f["stream"], typ=INT)
    b.store(e.add(state, e.mul(f["count"], GAMMA)), f["stream"])
    return state


def _write_samples(
    wide: Emitter, f: dict[str, Any], choices: tuple[int, ...], noises: tuple[int, ...],
    quantile: Callable[[Vector], Vector],
) -> None:  # fmt: skip
    """As `AudioDraw.refill`, for one step."""
    e, b = Emitter(wide.builder, ITEMSIZE, lanes=1), wide.builder
    state = _advance(e, f)

    def uniform(k: Any) -> Vector:
        bits = e.add(state, e.mul(e.add(k, 1), GAMMA))
        for shift, factor in MIXING:
            bits = e.mul(b.xor(bits, b.lshr(bits, e.int(shift))), factor)
        whole = b.uitofp(b.lshr(bits, e.int(64 - BITS)), e.real)
        return Vector(e, e.splat(whole, e.vector)) * 2.0**-BITS

    def put(value: Vector, name: str, k: int) -> None:
        e.store(value.value, e.offset(f[name], k))

    temperature, above = (Vector(e, e.load(e.offset(f["temperature"], k))) for k in range(2))
    for k, place in enumerate(choices):
        put(uniform(place) * above, "uniforms", k)
    for k, place in enumerate(noises):
        put(quantile(uniform(place).where("<", _LEAST, _LEAST)) * temperature, "noise", k)
    with b.if_then(b.icmp_unsigned("!=", f["ends"], POINTER(None))):
        put(uniform(b.sub(f["count"], e.int(1))), "ends", 0)
    e.copy(f["x"], f["line"], f["C"])


_LEAST = 2.0**-54
"""What a uniform of 0 is taken as."""


def _noise(
    output: SampleBlocksOutput,
) -> tuple[tuple[int, ...], tuple[int, ...], Callable[[Vector], Vector]] | None:
    """Which uniforms of a frame choose, which are noise, and the quantiles of that.

    An output states them by `split`, in torch, which is tried with known numbers.
    """
    tried = torch.linspace(0.05, 0.45, output.uniforms_per_frame, dtype=torch.float64)
    choices, noise = output.split(tried)
    chosen = tuple(tried.tolist().index(number) for number in choices.tolist())
    if not noise.any():
        return chosen, (), _logistic
    for known, quantile in ((torch.logit, _logistic), (torch.special.ndtri, _normal)):
        near = torch.isclose(noise[:, None], known(tried)[None], rtol=1e-9)
        if near.any(1).all():
            return chosen, tuple(near.int().argmax(1).tolist()), quantile
    return None


def _logistic(u: Vector) -> Vector:
    return u.log() - (1.0 - u).log()


def _normal(u: Vector) -> Vector:
    """By polynomials of the square root of -log(p), p the smaller of u and 1 - u: within 1e-14."""
    root = ((u.where(">", 0.5, 1.0 - u).log() * -1.0).log() * 0.5).exp()
    lower = _lower_normal(root, *_NEAR).replaced(root, ">", _NEAR[1], _lower_normal(root, *_FAR))
    return lower.replaced(u, ">", 0.5, lower * -1.0)


_NEAR, _FAR = (0.83, 2.4, 18), (2.4, 6.2, 22)
"""From where to where, and the degree."""


def _lower_normal(root: Vector, low: float, high: float, degree: int) -> Vector:
    middle, half = (low + high) / 2, (high - low) / 2

    def exact(x: NDArray[np.float64]) -> NDArray[np.float64]:
        share = torch.from_numpy(np.exp(-((x + middle) ** 2)))
        return np.asarray(torch.special.ndtri(share))

    return (root - middle).in_powers(polynomial(exact, -half, half, degree))
