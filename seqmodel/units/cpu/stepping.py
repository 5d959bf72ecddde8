"""A unit frame by frame, as sampling needs it: one row, one thread, no torch in between."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodel.cpu.notes import Notes
from seqmodel.units.cpu.kernels import compiled_unit, field_numbers
from seqmodel.units.cpu.recurrence import weight_fields
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
    layers: Sequence[Unit], states: Sequence[UnitState], frame: Tensor, notes: Notes | None
) -> tuple[list[Step], Tensor]:
    """The calls that take `layers` from `states`, of one row, over the frame that lies in `frame`.

    The frame (I,) is read anew at each call, or its notes where they are given. The second result
    is where the topmost h (H,) lies after the calls.
    """
    made, below, listed = [], frame, notes
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
        fields: dict[str, int | Tensor] = {
            "T": 1, "B": 1, "I": layer.input_size, "H": H, "x": below,
            "slots": frame.new_empty(len(unit.plan.cell.slots) * H),
            **weight_fields(unit.plan, weights, H, listed=listed is not None),
            **dict(zip(unit.plan.spec.state, lines, strict=True)),
        }  # fmt: skip
        if listed is not None:
            fields |= {"numbers": listed.numbers, "starts": listed.starts}
        numbers = field_numbers(fields)
        array = (ctypes.c_int64 * len(numbers))(*numbers)
        made.append(Step(unit.step_address, ctypes.addressof(array), (array, fields, unit)))
        below, listed = lines[0][1], None
    return made, below
