"""A unit that is a module of the user's, as a step of compiled sampling that calls Python."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray

from seqmodel.kernels.code.emit import POINTER, Emitter
from seqmodel.kernels.run.calls import Arena, Call, Slot, step_call
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.system import native
from seqmodel.units.own_module import ModuleUnit

_SIGNATURE = Signature("call_python", ("callback", "N"), (Array("x", ("N",)),))


class PythonStep:
    """The step of layers in float64, between slots of whichever arena it is called in.

    Attributes:
        call: it.
        states: the slots of the layers' states, in the order of `Carry.tensors`.
        h: that of the last layer's h.
    """

    def __init__(self, layers: Sequence[ModuleUnit], x: Slot, arena: Arena) -> None:
        self._layers = [copy.deepcopy(layer).double().eval() for layer in layers]
        self._x, self._arena, (*rows, _) = x, arena, x.shape
        self._of_layers: list[list[Slot]] = []
        for layer in self._layers:
            state = layer.zero_state(*(rows or [1]))
            self._of_layers.append([arena.take(*t.shape, dtype=t.dtype) for t in state])
        self.states = [slot for layer in self._of_layers for slot in layer]
        self.h = arena.take(*rows, self._layers[-1].hidden_size)
        self._failure: BaseException | None = None
        address, self._callback = native.callback(self._step)
        count = int(np.prod(x.shape))
        self.call: Call = step_call(
            _SIGNATURE, _write_call, callback=address, N=count, x=x.reshaped(count)
        )

    def check(self) -> None:
        """Raise what a step has raised, which compiled code cannot."""
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
        for layer, slots in zip(self._layers, self._of_layers, strict=True):
            held = [slot.of(memory) for slot in slots]
            before = tuple(torch.from_numpy(part).clone() for part in held)
            values, after = layer(values, before)
            for part, new in zip(held, after, strict=True):
                part[:] = new.numpy()
        self.h.of(memory)[:] = values.view(self.h.shape).numpy()


def _write_call(e: Emitter, f: dict[str, Any]) -> None:
    kind = ir.PointerType(ir.FunctionType(ir.VoidType(), [POINTER]))
    e.builder.call(e.builder.inttoptr(f["callback"], kind), [f["x"]])
