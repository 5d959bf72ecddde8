"""Sampling in compiled code: unit, output and draw, frame after frame, without torch in between."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.run.calls import Arena, Fields, Slot
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs import BernoulliOutput, GaussianMixtureOutput
from seqmodel.outputs.bernoulli.draw import BernoulliDraw
from seqmodel.outputs.gaussian.draw import gaussian_draw
from seqmodel.outputs.logistic.draw import logistic_draw
from seqmodel.outputs.shared.audio_draw import AudioDraw
from seqmodel.units.cpu.stepping import steps


class CompiledSampler:
    """As `sample._plainly`, for a model on the CPU, whose weights are copied once for all pieces.

    They may be float32; everything is computed in float64.
    """

    def __init__(self, model: SequenceModel, chunk: int, temperature: float) -> None:
        self._chunk, self._arena = chunk, Arena()
        self._mean, self._deviation = model.mean, model.deviation
        binary = isinstance(model.output, BernoulliOutput)
        self._x = self._arena.take(model.unit.input_size)
        layers = model.layers()
        with torch.no_grad():
            calls, self._states = steps(layers, self._x, self._arena, binary=binary)
            h = self._states[-len(layers[-1].spec.state)]  # a layer's first state
            self._draw = _draw(model, h, self._x, self._arena, chunk, temperature)
        calls.append(self._draw.call)
        self._fields = Fields(calls)
        self._loop = _loop(tuple((call.function, len(call.fields)) for call in calls))

    def draw(self, carry: Carry, uniforms: Uniforms) -> Iterator[tuple[NDArray[Any], bool]]:
        """Draw frames from the carry on."""
        memory = self._arena.memory()
        fields = self._fields.over(memory)
        *states, past = (tensor[0].numpy() for tensor in carry.tensors())
        for place, state in zip(self._states, states, strict=True):
            place.of(memory)[:] = state
        self._x.of(memory)[:] = (past - self._mean) / self._deviation
        while True:
            self._draw.refill(memory, uniforms)
            drawn = self._loop.run(fields, self._chunk)
            yield self._draw.drawn(memory, abs(drawn)), drawn < 0


def _draw(
    model: SequenceModel, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float
) -> BernoulliDraw | AudioDraw:
    """The draw of the model's output, which reads h and leaves what the unit reads in x."""
    output = model.output
    if isinstance(output, BernoulliOutput):
        return BernoulliDraw(output, h, x, arena, chunk, temperature)
    if isinstance(output, GaussianMixtureOutput):
        return gaussian_draw(output, h, x, arena, chunk, temperature)
    return logistic_draw(output, h, x, arena, chunk, temperature)


class _Loop:
    """The compiled run(fields, count): frames drawn, as a negative number if the piece ended.

    It calls the functions at these addresses, the last of them the draw, with as many fields each.
    """

    def __init__(self, calls: Sequence[tuple[int, int]]) -> None:
        module = ir.Module("sample")
        made = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "run")
        b = ir.IRBuilder(made.append_basic_block())
        e, (fields, count) = Emitter(b, 8), made.args

        def call(address: int, start: int, returns: Any, *more: Any) -> Any:
            name = f"seqmodel_at_{address:x}"
            if name not in module.globals:
                binding.add_symbol(name, address)
                kinds = [POINTER, *(m.type for m in more)]
                ir.Function(module, ir.FunctionType(returns, kinds), name)
            place = b.gep(fields, [e.int(start)], source_etype=INT)
            return b.call(module.get_global(name), [place, *more])

        *layers, (draw, _) = calls
        with e.loop(0, count) as n:
            start = 0
            for address, size in layers:
                call(address, start, ir.VoidType())
                start += size
            ended = call(draw, start, INT, n)
            with b.if_then(b.icmp_signed("!=", ended, e.int(0))):
                b.ret(b.sub(e.int(-1), n))
        b.ret(count)
        self._library = Library(module)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self._run = kind(self._library.address("run"))

    def run(self, fields: NDArray[np.int64], count: int) -> int:
        """Draw `count` frames, or fewer: see the class."""
        return int(self._run(fields.ctypes.data, count))


@compiled_once
def _loop(calls: tuple[tuple[int, int], ...]) -> _Loop:
    """The loop over these calls, compiled at first use."""
    return _Loop(calls)
