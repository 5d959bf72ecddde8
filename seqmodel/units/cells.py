"""The language in which families write their cells, forward and backward, for fast backends.

A step is a sequence of stages. A stage computes its projections (U times the previous h or a slot,
written to slots), then its elementwise equations. Backward, the stages run in reverse: the
equations, then the transposed projections.

Each frame and row has slots of H numbers. A gate's slot holds W x, to which its projection adds;
`keep` then stores what the backward pass needs. `d_net` sets the gradient of a gate's net input
(those of W, b and V follow from it), `d_slot` that of any other slot, and `pass_on` the previous
state's, except for what flows through U.

The equations run over LLVM vectors in `cpu.kernels`, and for tests and debugging over NumPy arrays
in tests/units/by_hand.py.
"""

from collections.abc import Callable
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


class Position(Protocol):
    """What both passes read, at one position of one row."""

    @property
    def s(self) -> Activation:
        """The gate activation."""

    @property
    def phi(self) -> Activation:
        """The activation."""

    def kept(self, slot: str) -> Value:
        """What the slot holds; in the backward pass, what the forward pass kept."""

    def old(self, state: str) -> Value:
        """The state before the step."""

    def now(self, state: str) -> Value:
        """The state after the step, in the forward pass as an earlier stage set it."""


class Forward(Position, Protocol):
    """What a forward stage's equations also read and write."""

    def net(self, gate: str, c: Value | None = None) -> Value:
        """W x + U h' + V c + b, with the terms that the gate has."""

    def keep(self, slot: str, value: Value) -> None:
        """Store a value in the slot, for the backward pass."""

    def new(self, state: str, value: Value) -> None:
        """Set the state after the step."""

    def second_bias(self, gate: str) -> Value | float:
        """The bias bU of the gate."""


class Backward(Position, Protocol):
    """What a backward stage's equations also read and write."""

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
