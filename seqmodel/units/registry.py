"""Every unit's equations, gates and size, as data: the one table all backends and counts share.

A gate's net input is the sum of the terms it has,

    W x_t + U h' + V (.) c + b

with W (H, I), U (H, H), V (H,) a diagonal, b (H,). A unit is then its gates' terms and the few
lines that combine the gates. h' and c' are the previous step's; (.) is elementwise; s is the gate
activation and phi the activation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seqmodel.errors import UsageError

# What an unfamiliar reader of a checkpoint needs to know of each term's shape.
TERMS = ("W", "U", "V", "b", "bU")


@dataclass(frozen=True)
class UnitSpec:
    """One recurrent unit: the terms of its gates, its state, its equations."""

    name: str
    gates: Mapping[str, tuple[str, ...]]
    """Gate -> its terms. `bU` is a second bias, added to U h' before the reset gate acts."""
    state: tuple[str, ...]
    equations: tuple[str, ...]
    source: str

    def __deepcopy__(self, memo: dict[int, object]) -> "UnitSpec":
        """Itself: nothing in it can change, and copies of a model are made for each sample."""
        return self

    def gates_with(self, term: str) -> list[str]:
        """The gates that have `term`, in the order in which their weights are stacked."""
        return [gate for gate, terms in self.gates.items() if term in terms]

    def parameter_count(self, input_size: int, hidden_size: int, *, bias: bool = True) -> int:
        """The number of weights of one layer, the output layer not included."""
        size = {
            "W": hidden_size * input_size,
            "U": hidden_size * hidden_size,
            "V": hidden_size,
            "b": hidden_size if bias else 0,
            "bU": hidden_size if bias else 0,
        }
        return sum(size[term] for terms in self.gates.values() for term in terms)


def _unit(
    name: str, gates: dict[str, str], state: str, source: str, *equations: str
) -> tuple[str, UnitSpec]:
    terms = {gate: tuple(text.split()) for gate, text in gates.items()}
    return name, UnitSpec(name, terms, tuple(state.split()), equations, source)


_CHUNG = "Chung, Gulcehre, Cho, Bengio 2014"
_VARIANT = "Dey, Salem 2017"
_RESET = "n = phi(W x + U (r (.) h') + b)"
_GRU_STATE = "h = (1 - z) (.) h' + z (.) n"

UNITS: Mapping[str, UnitSpec] = dict(
    [
        _unit("tanh", {"h": "W U b"}, "h", _CHUNG, "h = phi(W x + U h' + b)"),
        _unit(
            "lstm",
            {"i": "W U V b", "f": "W U V b", "c": "W U b", "o": "W U V b"},
            "h c",
            f"{_CHUNG}; Graves 2013",
            "i = s(Wi x + Ui h' + Vi (.) c' + bi)",
            "f = s(Wf x + Uf h' + Vf (.) c' + bf)",
            "g = phi(Wc x + Uc h' + bc)",
            "c = f (.) c' + i (.) g",
            "o = s(Wo x + Uo h' + Vo (.) c + bo)",
            "h = o (.) phi(c)",
        ),
        _unit(
            "gru",
            {"z": "W U b", "r": "W U b", "n": "W U b"},
            "h",
            f"{_CHUNG}; Cho et al. 2014",
            "z = s(Wz x + Uz h' + bz)",
            "r = s(Wr x + Ur h' + br)",
            _RESET,
            _GRU_STATE,
        ),
        _unit(
            "gru1",
            {"z": "U b", "r": "U b", "n": "W U b"},
            "h",
            f"{_VARIANT}, GRU1",
            "z = s(Uz h' + bz)",
            "r = s(Ur h' + br)",
            _RESET,
            _GRU_STATE,
        ),
        _unit(
            "gru2",
            {"z": "U", "r": "U", "n": "W U b"},
            "h",
            f"{_VARIANT}, GRU2",
            "z = s(Uz h')",
            "r = s(Ur h')",
            _RESET,
            _GRU_STATE,
        ),
        _unit(
            "gru3",
            {"z": "b", "r": "b", "n": "W U b"},
            "h",
            f"{_VARIANT}, GRU3",
            "z = s(bz)",
            "r = s(br)",
            _RESET,
            _GRU_STATE,
        ),
        _unit(
            "mgu",
            {"f": "W U b", "n": "W U b"},
            "h",
            "Zhou et al. 2016",
            "f = s(Wf x + Uf h' + bf)",
            "n = phi(W x + U (f (.) h') + b)",
            "h = (1 - f) (.) h' + f (.) n",
        ),
        _unit(
            "lstm-nopeephole",
            {"i": "W U b", "f": "W U b", "c": "W U b", "o": "W U b"},
            "h c",
            "as torch.nn.LSTM",
            "i = s(Wi x + Ui h' + bi)",
            "f = s(Wf x + Uf h' + bf)",
            "g = phi(Wc x + Uc h' + bc)",
            "c = f (.) c' + i (.) g",
            "o = s(Wo x + Uo h' + bo)",
            "h = o (.) phi(c)",
        ),
        _unit(
            "gru-reset-after",
            {"z": "W U b", "r": "W U b", "n": "W U b bU"},
            "h",
            "as torch.nn.GRU",
            "z = s(Wz x + Uz h' + bz)",
            "r = s(Wr x + Ur h' + br)",
            "n = phi(W x + b + r (.) (U h' + bU))",
            "h = z (.) h' + (1 - z) (.) n",
        ),
    ]
)


def unit_spec(name: str) -> UnitSpec:
    """The unit called `name`; UsageError names those there are."""
    if name not in UNITS:
        raise UsageError(f"there is no unit {name!r}; choose one of {', '.join(UNITS)}")
    return UNITS[name]


def hidden_size_for(
    name: str, input_size: int, parameters: int, *, layers: int = 1, bias: bool = True
) -> int:
    """The hidden size whose parameter count comes nearest to `parameters`.

    Counts a stack of `layers` without its output layer. The smaller size wins a tie. UsageError
    where even one unit exceeds twice the budget, so that no comparison at "equal" size is far off.
    """
    spec = unit_spec(name)

    def count(hidden: int) -> int:
        first = spec.parameter_count(input_size, hidden, bias=bias)
        return first + (layers - 1) * spec.parameter_count(hidden, hidden, bias=bias)

    if parameters < 1 or count(1) > 2 * parameters:
        raise UsageError(
            f"--params {parameters} is too small for {name}: one unit over {input_size} inputs "
            f"already has {count(1)}"
        )
    low, high = 1, 2
    while count(high) < parameters:
        low, high = high, 2 * high
    while high - low > 1:  # count grows with the size: count(low) <= parameters <= count(high)
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= parameters else (low, middle)
    return low if parameters - count(low) <= count(high) - parameters else high
