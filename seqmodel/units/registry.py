"""The units by name, one row each, and the hidden size for a parameter budget."""

from collections.abc import Callable, Mapping

from seqmodel.errors import UsageError
from seqmodel.units.definition import TERMS, UnitSpec
from seqmodel.units.families.gru import GRU, GRU1, GRU2, GRU3
from seqmodel.units.families.lstm import LSTM, LSTM_NOPEEPHOLE
from seqmodel.units.families.mgu import MGU
from seqmodel.units.families.reset_after import GRU_RESET_AFTER
from seqmodel.units.families.tanh import TANH

__all__ = ["TERMS", "UNITS", "UnitSpec", "hidden_size_for", "size_for", "unit_spec"]

UNITS: Mapping[str, UnitSpec] = {
    unit.name: unit
    for unit in (TANH, LSTM, GRU, GRU1, GRU2, GRU3, MGU, LSTM_NOPEEPHOLE, GRU_RESET_AFTER)
}


def unit_spec(name: str) -> UnitSpec:
    """The unit called `name`; UsageError lists the choices."""
    if name not in UNITS:
        raise UsageError(f"there is no unit {name!r}; choose one of {', '.join(UNITS)}")
    return UNITS[name]


def hidden_size_for(
    name: str, input_size: int, parameters: int, *, layers: int = 1, bias: bool = True
) -> int:
    """The hidden size whose parameter count comes nearest to `parameters`.

    Counts a stack of `layers` without its output layer; the smaller size wins a tie. UsageError if
    even a hidden size of 1 exceeds twice the budget, so that nominally equal sizes are not far
    apart.
    """
    spec = unit_spec(name)

    def count(hidden: int) -> int:
        first = spec.parameter_count(input_size, hidden, bias=bias)
        return first + (layers - 1) * spec.parameter_count(hidden, hidden, bias=bias)

    return size_for(count, parameters, f"{name}: one unit over {input_size} inputs")


def size_for(count: Callable[[int], int], parameters: int, smallest: str) -> int:
    """The size whose `count`, which grows with it, comes nearest to `parameters`.

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
