"""Sampling in compiled code: unit, output and draw, frame after frame, without torch in between."""

import copy
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from llvmlite import binding, ir
from numpy.typing import NDArray

from seqmodel.cpu.emit import INT, POINTER, Emitter
from seqmodel.cpu.jit import Library, compiled_once
from seqmodel.model import Carry, SequenceModel
from seqmodel.outputs import BernoulliOutput, GaussianMixtureOutput
from seqmodel.outputs.audio_draw import AudioDraw
from seqmodel.outputs.bernoulli_draw import BernoulliDraw
from seqmodel.outputs.gaussian_draw import gaussian_draw
from seqmodel.outputs.logistic_draw import logistic_draw
from seqmodel.units.cpu.stepping import Step, steps


def draw_chunks(
    model: SequenceModel,
    carry: Carry,
    uniforms: Iterator[NDArray[Any]],
    chunk: int,
    temperature: float,
) -> Iterator[tuple[NDArray[Any], bool]]:
    """As `sample._plainly`, for a model on the CPU, whose weights may be float32.

    The carry is in float64, in which everything is computed; uniforms (chunk, U) come at a time.
    """
    with torch.no_grad():
        calls, draw = _calls(model, carry, chunk, temperature)
    loop = _loop(tuple(call.function for call in calls), draw.address)
    fields = [call.fields for call in calls] + [draw.fields]
    addresses = (ctypes.c_int64 * len(fields))(*fields)
    for numbers in uniforms:
        draw.refill(numbers)
        drawn = loop.run(addresses, chunk)
        yield draw.drawn(abs(drawn)), drawn < 0


def _calls(
    model: SequenceModel, carry: Carry, chunk: int, temperature: float
) -> tuple[list[Step], BernoulliDraw | AudioDraw]:
    """The unit's steps and the output's draw, which read what the other leaves."""
    x = (carry.past[0] - model.mean) / model.deviation
    calls, h = steps(model.layers(), carry.layers(), x)
    options: Any = {"chunk": chunk, "temperature": temperature}
    if isinstance(model.output, BernoulliOutput):
        return calls, BernoulliDraw(model.output, h, x, **options)
    output = copy.deepcopy(model.output).double()
    if isinstance(output, GaussianMixtureOutput):
        return calls, gaussian_draw(output, h, x, **options)
    return calls, logistic_draw(output, h, x, **options)


class _Loop:
    """The compiled run(fields, count): frames drawn, as a negative number if the piece ended."""

    def __init__(self, functions: Sequence[int], draw: int) -> None:
        module = ir.Module("sample")
        kinds = [POINTER, INT]
        made = ir.Function(module, ir.FunctionType(INT, kinds), "run")
        b = ir.IRBuilder(made.append_basic_block())
        e, (fields, count) = Emitter(b, 8), made.args

        def call(address: int, k: int, returns: Any, *more: Any) -> Any:
            name = f"seqmodel_at_{address:x}"
            if name not in module.globals:
                binding.add_symbol(name, address)
                kinds = [POINTER, *(m.type for m in more)]
                ir.Function(module, ir.FunctionType(returns, kinds), name)
            place = b.load(b.gep(fields, [e.int(k)], source_etype=INT), typ=POINTER)
            return b.call(module.get_global(name), [place, *more])

        with e.loop(0, count) as n:
            for k, address in enumerate(functions):
                call(address, k, ir.VoidType())
            ended = call(draw, len(functions), INT, n)
            with b.if_then(b.icmp_signed("!=", ended, e.int(0))):
                b.ret(b.sub(e.int(-1), n))
        b.ret(count)
        self._library = Library(module)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self._run = kind(self._library.address("run"))

    def run(self, fields: Any, count: int) -> int:
        """Draw `count` frames, or fewer: see the class."""
        return int(self._run(ctypes.addressof(fields), count))


@compiled_once
def _loop(functions: tuple[int, ...], draw: int) -> _Loop:
    """The loop over these layers and this draw, compiled at first use."""
    return _Loop(functions, draw)
