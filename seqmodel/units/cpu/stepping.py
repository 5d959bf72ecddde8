"""A unit frame by frame, as sampling needs it: one row, one thread, no torch in between."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodel.cpu.notes import Notes
from seqmodel.cpu.team import share_out
from seqmodel.units.cpu.kernels import compiled_unit
from seqmodel.units.cpu.recurrence import note_fields, weight_fields
from seqmodel.units.module import Unit, UnitState
from seqmodel.units.registry import TERMS


@dataclass(frozen=True)
class Step:
    """A call that moves layers on by one frame: function(fields)."""

    function: int
    fields: int
    """Both are addresses."""
    alive: tuple[object, ...]
    """What they point to."""


def steps(
    layers: Sequence[Unit], states: Sequence[UnitState], frame: Tensor
) -> tuple[list[Step], Tensor]:
    """The calls that take `layers` from `states`, of one row, over the frame that lies in `frame`.

    The frame (I,) is read anew at each call; everything is computed in its type. The second result
    is where the topmost h (H,) lies after the calls.
    """
    made: list[Step] = []
    below = frame
    for layer, state in zip(layers, states, strict=True):
        H = layer.hidden_size
        unit = compiled_unit(
            layer.spec.name,
            frame.element_size(),
            layer.gate_activation,
            layer.activation,
            layer.bias,
        )
        lines = [torch.cat([first, torch.empty_like(first)]) for first in state]
        weights = [getattr(layer, term) for term in TERMS]
        fields, packing = weight_fields(
            unit.plan, [None if weight is None else weight.to(frame) for weight in weights], H
        )
        share_out(packing, 1)
        fields |= {
            "T": 1, "B": 1, "I": layer.input_size, "H": H, "x": below,
            "slots": frame.new_empty(len(unit.plan.cell.slots) * H),
            **dict(zip(unit.plan.spec.state, lines, strict=True)),
        }  # fmt: skip
        if not made:
            fields |= note_fields(Notes.room(1, layer.input_size, 1), layer.input_size)
        job = unit.job("forward", fields)
        numbers = job.numbers()
        array = (ctypes.c_int64 * len(numbers))(*numbers)
        made.append(Step(unit.step_address, ctypes.addressof(array), (array, job)))
        below = lines[0][1]
    return made, below
