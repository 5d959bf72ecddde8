"""Recurrent units: tanh, LSTM with peepholes, GRU and its variants, the minimal gated unit.

`UNITS` holds each unit's equations and gates, `make` builds a torch module, `hidden_size_for`
finds the size for a parameter budget. Only `make` imports torch. See README.md in this directory.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seqmodel.errors import UsageError
from seqmodel.units.registry import UNITS, UnitSpec, hidden_size_for, size_for, unit_spec, zoo

if TYPE_CHECKING:
    from seqmodel.units.module import Stack, Unit

__all__ = ["UNITS", "UnitSpec", "hidden_size_for", "make", "size_for", "unit_spec", "zoo"]


def make(
    name: str | Path,
    input_size: int,
    hidden_size: int,
    backend: str = "auto",
    *,
    layers: int = 1,
    dropout: float = 0.0,
    gate_activation: str = "sigmoid",
    activation: str = "tanh",
    bias: bool = True,
) -> "Unit | Stack":
    """Build a unit, or a stack of `layers` with `dropout` between them, as a torch.nn.Module.

    `name` may also be a unit's text, or the path of a file NAME.unit.

    `unit(x, state=None, lengths=None)` maps x (T, B, input_size) to h (T, B, hidden_size) and the
    final state. UsageError for an unknown unit, backend or activation, and for sizes below 1;
    SeqmodelError for a file that is not there or defines no unit.
    """
    from seqmodel.units.module import Stack, Unit

    if layers < 1:
        raise UsageError(f"a stack needs at least 1 layer, not {layers}")

    layer = partial(
        Unit, unit_spec(name), hidden_size=hidden_size, backend=backend, bias=bias,
        gate_activation=gate_activation, activation=activation,
    )  # fmt: skip
    units = [layer(input_size=input_size if k == 0 else hidden_size) for k in range(layers)]
    return units[0] if layers == 1 else Stack(units, dropout)
