"""Recurrent units: tanh, LSTM with peepholes, GRU and its variants, the minimal gated unit.

`UNITS` holds each unit's equations and gates, `make` builds a torch module, `hidden_size_for`
finds the size for a parameter budget. torch is imported only by `make`, and by `check_device` for
a GPU. See README.md in this directory.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from seqmodel.errors import UsageError, did_you_mean
from seqmodel.unit_setting import SUFFIX, is_module, is_text, read_unit, unit_name
from seqmodel.units.definition import UnitSpec, define

if TYPE_CHECKING:
    from seqmodel.config import Config
    from seqmodel.units.module import Layer, Stack

__all__ = [
    "UNITS",
    "UnitSpec",
    "check_device",
    "hidden_size_for",
    "make",
    "module_name",
    "size_for",
    "unit_spec",
    "zoo",
]

GROUP = "seqmodel.units"
"""The entry points through which an installed package registers its units."""
DEVICES = ("auto", "cpu", "cuda")
"""The values of `--device`."""

_BUILT_IN = (
    "tanh", "lstm", "gru", "gru1", "gru2", "gru3", "mgu", "lstm-nopeephole", "gru-reset-after",
)  # fmt: skip


def _read(folder: str, name: str) -> UnitSpec:
    return define((files(__package__) / folder / f"{name}{SUFFIX}").read_text("utf-8"), name)


UNITS: Mapping[str, UnitSpec] = {name: _read("texts", name) for name in _BUILT_IN}
"""The units of the paper, and their relatives."""


@cache
def zoo() -> Mapping[str, UnitSpec]:
    """Further units from the literature, for study."""
    names = sorted(
        file.name.removesuffix(SUFFIX) for file in (files(__package__) / "zoo").iterdir()
    )
    return {name: _read("zoo", name) for name in names}


def module_name(unit: str | Path) -> str | None:
    """package.module:Class of a unit that is a module, given as such or by a package's name for it.

    Packages register names in the entry points `seqmodel.units`. None if the unit has equations.
    """
    unit = str(unit)
    if is_module(unit):
        return unit
    if is_text(unit) or unit.endswith(SUFFIX) or unit in UNITS or unit in zoo():
        return None
    return next((entry.value for entry in entry_points(group=GROUP, name=unit)), None)


def unit_spec(unit: str | Path) -> UnitSpec:
    """The unit with this name or text, or in this file NAME.unit.

    Raises:
        UsageError: if there is no unit of the name (the message lists the choices), or the unit is
            a module, which has no equations.
        UnitError: if the text defines no unit.
        SeqmodelError: if there is no such file.
    """
    unit = str(unit)
    if not is_text(unit):
        unit = read_unit(unit)
    if is_text(unit):
        return define(unit, unit_name(unit))
    if unit in UNITS:
        return UNITS[unit]
    if unit in zoo():
        return zoo()[unit]
    if module_name(unit) is not None:
        raise UsageError(
            f"{unit} is a torch module, without equations, which this needs: no pages, ONNX files, "
            "or compiled code follow from it"
        )
    raise UsageError(
        f"there is no unit {unit!r}; choose one of {', '.join(UNITS)}, one more that "
        f"`seqmodel units` lists, a file NAME{SUFFIX}, or package.module:Class"
        f"{did_you_mean(unit, (*UNITS, *zoo()))}"
    )


def hidden_size_for(
    unit: str | Path, input_size: int, parameters: int, *, layers: int = 1, bias: bool = True
) -> int:
    """The hidden size whose parameter count is closest to `parameters`.

    Counts a stack of `layers` without its output layer; the smaller size wins a tie. UsageError if
    even a hidden size of 1 exceeds twice the budget, so that nominally equal sizes are not far
    apart.
    """
    name = module_name(unit)
    spec = unit_spec(unit) if name is None else None

    def count(hidden: int) -> int:
        if spec is None:
            return make(unit, input_size, hidden, layers=layers).parameter_count()
        first = spec.parameter_count(input_size, hidden, bias=bias)
        return first + (layers - 1) * spec.parameter_count(hidden, hidden, bias=bias)

    return size_for(
        count, parameters, f"{spec.name if spec else name}: one unit over {input_size} inputs"
    )


def size_for(count: Callable[[int], int], parameters: int, smallest: str) -> int:
    """The size whose `count`, which grows with it, is closest to `parameters`.

    UsageError as in `hidden_size_for`; its message calls the model of size 1 `smallest`.
    """
    if parameters < 1 or count(1) > 2 * parameters:
        raise UsageError(
            f"--params {parameters} is too small for {smallest} already has {count(1)}"
        )
    low, high = 1, 2
    while count(high) < parameters:
        low, high = high, 2 * high
    while high - low > 1:  # count(low) <= parameters <= count(high)
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= parameters else (low, middle)
    return low if parameters - count(low) <= count(high) - parameters else high


def configured(
    config: "Config", name: str, input_size: int, hidden_size: int, layers: int, zoneout: float = 0
) -> "Layer | Stack":
    """`make` for the unit of this name, with the options of a config."""
    return make(
        name, input_size, hidden_size, config.backend, layers=layers, dropout=config.dropout,
        gate_activation=config.gate_activation, activation=config.activation, bias=config.bias,
        zoneout=zoneout,
    )  # fmt: skip


def check_device(option: str) -> str:
    """Return the value of `--device`; UsageError if it is unknown or not available."""
    if option not in DEVICES:
        raise UsageError(f"there is no device {option!r}; choose one of {', '.join(DEVICES)}")
    if option != "cuda":
        return option
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"--device cuda: this torch ({torch.__version__}) finds no GPU; "
            "use --device cpu, or install a torch built for your GPU"
        )
    return option


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
    batch_first: bool = False,
    zoneout: float = 0.0,
) -> "Layer | Stack":
    """Build a unit, or a stack of `layers` with `dropout` between them, as a torch.nn.Module.

    `name` may also be a unit's text, the path of a file NAME.unit, or package.module:Class (see
    `own_module`), where the module itself decides on backend, activations, bias and zoneout. In
    training, each number of a state keeps its previous value with probability `zoneout`; in
    evaluation it is mixed with that share of its previous value.

    `unit(x, state=None, lengths=None)` maps x (T, B, input_size) to h (T, B, hidden_size) and the
    final state; with `batch_first`, x and h are (B, T, ...). UsageError for an unknown unit,
    backend or activation, for sizes below 1, and for a zoneout, or dropout between layers, out of
    range; SeqmodelError for a file that does not exist or defines no unit.
    """
    from seqmodel.units.module import Stack, Unit
    from seqmodel.units.own_module import ModuleUnit

    if layers < 1:
        raise UsageError(f"a stack needs at least 1 layer, not {layers}")

    layer: Callable[..., Layer]
    if (module := module_name(name)) is not None:
        layer = partial(ModuleUnit, module, hidden_size=hidden_size)
    else:
        layer = partial(
            Unit, unit_spec(name), hidden_size=hidden_size, backend=backend, bias=bias,
            gate_activation=gate_activation, activation=activation, zoneout=zoneout,
        )  # fmt: skip
    units = [layer(input_size=input_size if k == 0 else hidden_size) for k in range(layers)]
    unit = units[0] if layers == 1 else Stack(units, dropout)
    unit.batch_first = batch_first
    return unit
