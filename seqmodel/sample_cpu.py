"""Sampling in compiled code: unit, output and draw, frame after frame, without torch in between."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numpy.typing import NDArray

from seqmodel.cpu.emit import INT, POINTER, Emitter
from seqmodel.cpu.jit import Library, compiled_once
from seqmodel.cpu.notes import notes_of
from seqmodel.model import Carry, SequenceModel
from seqmodel.outputs.bernoulli_cpu import BernoulliDraw
from seqmodel.units.cpu.stepping import steps


def draw_chunks(
    model: SequenceModel,
    carry: Carry,
    random: np.random.Generator,
    chunk: int,
    temperature: float,
) -> Iterator[tuple[NDArray[np.uint8], bool]]:
    """As `sample._plainly`, for a model in float32 or float64 on the CPU."""
    linear = model.output.linear
    with torch.no_grad():
        frame = carry.past[0]
        notes = notes_of(frame)
        calls, h = steps(model.layers(), carry.layers(), frame, notes)
        draw = BernoulliDraw(
            h, notes, linear.weight, linear.bias, chunk=chunk, temperature=temperature
        )
    loop = _loop(tuple(call.function for call in calls), draw.address)
    fields = [call.fields for call in calls] + [draw.fields]
    addresses = (ctypes.c_int64 * len(fields))(*fields)
    while True:
        draw.refill(random.random((chunk, len(frame) + 1), np.float32))
        drawn = loop.run(addresses, chunk)
        yield draw.frames[: abs(drawn)].numpy().copy(), drawn < 0


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
