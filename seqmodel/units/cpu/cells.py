"""Every unit's cell, forward and backward side by side: the equations of the compiled backend.

A step is a sequence of stages. A stage computes its projections (U times the previous h, or times a
slot, into a slot), then elementwise equations. Backward, the stages run in reverse: the equations,
then the transposed projections.

Each frame and row has slots of H numbers. A gate's slot holds W x, to which its projection adds;
`keep` then stores what the backward pass needs. `d_net` sets the gradient of a gate's net input
(those of W, b and V follow from it), `d_slot` that of any other slot, and `pass_on` the previous
state's, except for what flows through U.

The equations run over LLVM vectors in `kernels` and over NumPy arrays in `by_hand`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Value = Any
"""What equations compute with: anything with arithmetic operators."""


class Activation(Protocol):
    """An activation function."""

    def __call__(self, x: Value, /) -> Value:
        """Its value."""

    @property
    def slope(self) -> Callable[[Value], Value]:
        """Its slope, as a function of its value."""


class Forward(Protocol):
    """What a forward stage's equations read and write, at one position of one row."""

    @property
    def s(self) -> Activation:
        """The gate activation."""

    @property
    def phi(self) -> Activation:
        """The activation."""

    def net(self, gate: str, c: Value | None = None) -> Value:
        """W x + U h' + V c + b, with the terms that the gate has."""

    def kept(self, slot: str) -> Value:
        """What the slot holds."""

    def keep(self, slot: str, value: Value) -> None:
        """Store a value in the slot, for the backward pass."""

    def old(self, state: str) -> Value:
        """The state before the step."""

    def new(self, state: str, value: Value) -> None:
        """Set the state after the step."""

    def now(self, state: str) -> Value:
        """The state after the step, as an earlier stage set it."""

    def second_bias(self, gate: str) -> Value | float:
        """The bias bU of the gate."""


class Backward(Protocol):
    """What a backward stage's equations read and write, at one position of one row."""

    @property
    def s(self) -> Activation:
        """The gate activation."""

    @property
    def phi(self) -> Activation:
        """The activation."""

    def kept(self, slot: str) -> Value:
        """What the forward pass kept."""

    def old(self, state: str) -> Value:
        """The state before the step."""

    def now(self, state: str) -> Value:
        """The state after the step."""

    def d_now(self, state: str) -> Value:
        """The gradient of the state after the step: from the output and from the next step."""

    def d_net(self, gate: str, value: Value, c: Value | None = None) -> Value:
        """Set the gradient of the gate's net input; c is what its peephole read.

        Returns the gradient through the peephole: V times `value`, or zero.
        """

    def d_slot(self, slot: str, value: Value) -> None:
        """Set the gradient of a slot."""

    def d_second_bias(self, gate: str, value: Value) -> None:
        """Add to the gradient of bU."""

    def d_kept(self, slot: str) -> Value:
        """The gradient of a slot, as a later stage set it."""

    def passed(self, state: str) -> Value:
        """The gradient passed on so far to the state before the step."""

    def pass_on(self, state: str, value: Value) -> None:
        """Set the gradient of the state before the step; projections will add theirs."""


@dataclass(frozen=True)
class Projection:
    """U of some gates times the previous h (or a slot), into the slots from `into` on."""

    gates: tuple[str, ...]
    into: str
    source: str = "h"


@dataclass(frozen=True)
class Stage:
    """Projections, then equations."""

    projections: tuple[Projection, ...]
    forward: Callable[[Forward], None]
    backward: Callable[[Backward], None]


@dataclass(frozen=True)
class Cell:
    """The slots in memory order, gates first, and the stages of one step."""

    slots: tuple[str, ...]
    stages: tuple[Stage, ...]


def _tanh(at: Forward) -> None:
    at.new("h", at.phi(at.net("h")))


def _tanh_backward(at: Backward) -> None:
    at.d_net("h", at.d_now("h") * at.phi.slope(at.now("h")))


def _lstm_cell(at: Forward) -> None:
    c_old = at.old("c")
    i = at.s(at.net("i", c_old))
    f = at.s(at.net("f", c_old))
    g = at.phi(at.net("c"))
    for slot, value in (("i", i), ("f", f), ("c", g)):
        at.keep(slot, value)
    at.new("c", f * c_old + i * g)


def _lstm_output(at: Forward) -> None:
    c = at.now("c")
    o = at.s(at.net("o", c))  # the peephole of the output gate sees the new c
    at.keep("o", o)
    at.new("h", o * at.phi(c))


def _lstm_backward(at: Backward) -> None:
    i, f, g, o = (at.kept(slot) for slot in ("i", "f", "c", "o"))
    c_old, c = at.old("c"), at.now("c")
    y = at.phi(c)
    d_h = at.d_now("h")
    d_c = at.d_now("c") + d_h * o * at.phi.slope(y)
    d_c = d_c + at.d_net("o", d_h * y * at.s.slope(o), c)
    at.d_net("c", d_c * i * at.phi.slope(g))
    peepholes = at.d_net("i", d_c * g * at.s.slope(i), c_old)
    peepholes = peepholes + at.d_net("f", d_c * c_old * at.s.slope(f), c_old)
    at.pass_on("c", d_c * f + peepholes)


def _gru_gates(at: Forward) -> None:
    z, r = at.s(at.net("z")), at.s(at.net("r"))
    at.keep("z", z)
    at.keep("r", r)
    at.keep("reset", r * at.old("h"))  # the reset acts before the matrix


def _gru_state(at: Forward) -> None:
    h, z, n = at.old("h"), at.kept("z"), at.phi(at.net("n"))
    at.keep("n", n)
    at.new("h", h + z * (n - h))


def _gru_state_backward(at: Backward) -> None:
    z, n, d_h = at.kept("z"), at.kept("n"), at.d_now("h")
    at.d_net("n", d_h * z * at.phi.slope(n))
    at.d_net("z", d_h * (n - at.old("h")) * at.s.slope(z))
    at.pass_on("h", d_h * (1.0 - z))


def _gru_gates_backward(at: Backward) -> None:
    r, d_reset = at.kept("r"), at.d_kept("reset")
    at.d_net("r", d_reset * at.old("h") * at.s.slope(r))
    at.pass_on("h", at.passed("h") + d_reset * r)


def _mgu_gate(at: Forward) -> None:
    f = at.s(at.net("f"))
    at.keep("f", f)
    at.keep("reset", f * at.old("h"))


def _mgu_state(at: Forward) -> None:
    h, f, n = at.old("h"), at.kept("f"), at.phi(at.net("n"))
    at.keep("n", n)
    at.new("h", h + f * (n - h))


def _mgu_state_backward(at: Backward) -> None:
    f, n, d_h = at.kept("f"), at.kept("n"), at.d_now("h")
    at.d_net("n", d_h * f * at.phi.slope(n))
    at.pass_on("h", d_h * (1.0 - f))
    at.d_slot("f", d_h * (n - at.old("h")))  # as update gate; as reset gate below


def _mgu_gate_backward(at: Backward) -> None:
    f, d_reset = at.kept("f"), at.d_kept("reset")
    at.d_net("f", (at.d_kept("f") + d_reset * at.old("h")) * at.s.slope(f))
    at.pass_on("h", at.passed("h") + d_reset * f)


def _reset_after(at: Forward) -> None:
    h, z, r = at.old("h"), at.s(at.net("z")), at.s(at.net("r"))
    inner = at.kept("inner") + at.second_bias("n")
    n = at.phi(at.net("n") + r * inner)
    for slot, value in (("z", z), ("r", r), ("n", n), ("inner", inner)):
        at.keep(slot, value)
    at.new("h", n + z * (h - n))


def _reset_after_backward(at: Backward) -> None:
    z, r, n, inner = (at.kept(slot) for slot in ("z", "r", "n", "inner"))
    d_h = at.d_now("h")
    d_n = d_h * (1.0 - z) * at.phi.slope(n)
    at.d_net("n", d_n)
    at.d_net("z", d_h * (at.old("h") - n) * at.s.slope(z))
    at.d_net("r", d_n * inner * at.s.slope(r))
    at.d_slot("inner", d_n * r)
    at.d_second_bias("n", d_n * r)
    at.pass_on("h", d_h * z)


_TANH = Cell(("h",), (Stage((Projection(("h",), "h"),), _tanh, _tanh_backward),))
_LSTM = Cell(
    ("i", "f", "c", "o"),
    # Two stages: this halves each column's dependency chain, so that out-of-order execution can
    # overlap it with the next columns.
    (
        Stage((Projection(("i", "f", "c", "o"), "i"),), _lstm_cell, _lstm_backward),
        Stage((), _lstm_output, lambda at: None),
    ),
)
_GRU = Cell(
    ("z", "r", "n", "reset"),
    (
        Stage((Projection(("z", "r"), "z"),), _gru_gates, _gru_gates_backward),
        Stage((Projection(("n",), "n", source="reset"),), _gru_state, _gru_state_backward),
    ),
)
_MGU = Cell(
    ("f", "n", "reset"),
    (
        Stage((Projection(("f",), "f"),), _mgu_gate, _mgu_gate_backward),
        Stage((Projection(("n",), "n", source="reset"),), _mgu_state, _mgu_state_backward),
    ),
)
_RESET_AFTER = Cell(
    ("z", "r", "n", "inner"),
    (
        Stage(
            (Projection(("z", "r"), "z"), Projection(("n",), "inner")),
            _reset_after,
            _reset_after_backward,
        ),
    ),
)

CELLS: Mapping[str, Cell] = {
    "tanh": _TANH,
    "lstm": _LSTM,
    "gru": _GRU,
    "gru1": _GRU,  # the variants differ from gru in the terms of their gates alone
    "gru2": _GRU,
    "gru3": _GRU,
    "mgu": _MGU,
    "lstm-nopeephole": _LSTM,
    "gru-reset-after": _RESET_AFTER,
}
