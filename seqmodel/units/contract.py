"""What every backend provides: one layer over time, for the cases that it supports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seqmodel.kernels.device import transformed
from seqmodel.units.definition import UnitSpec
from seqmodel.units.weights import Weights


class Case(NamedTuple):
    """Everything a backend may base its answer on when asked whether it can run, and how fast.

    A tuple, since one is created on every call: a frozen dataclass takes five times as long.
    """

    spec: UnitSpec
    dtype: torch.dtype
    device: torch.device
    batch_size: int
    input_size: int
    hidden_size: int
    gate_activation: str = "sigmoid"
    activation: str = "tanh"
    bias: bool = True

    @property
    def step_flops(self) -> int:
        """Floating-point operations of one time step's matrix products, forward and backward.

        Each matrix takes part in three products: forward, backward to its input, and for its own
        gradient. All other work is linear in H.
        """
        spec, H = self.spec, self.hidden_size
        elements = len(spec.gates_with("W")) * H * self.input_size
        elements += len(spec.gates_with("U")) * H * H
        return 3 * 2 * self.batch_size * elements


def not_plain() -> str | None:
    """Why a backend cannot run now whose operations are not plain ones of torch's, if so.

    torch.compile is no reason: it leaves such backends out of its graphs, see `uncompiled`.
    """
    if transformed() and not torch.compiler.is_dynamo_compiling():
        return "torch.func, forward-mode differentiation and exports need plain torch operations"
    return None


class Run(Protocol):
    """Runs one layer over time; differentiable in x, the weights and the initial state."""

    def __call__(
        self,
        case: Case,
        weights: Weights,
        x: Tensor,
        state: tuple[Tensor, ...],
        lengths: Tensor | None,
        /,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Run over x (T, B, I), T >= 1, from `state`, each (B, H) in the order of the unit's.

        Returns the output h (T, B, H) and the final state, each (B, H).

        `lengths` (B,), int64 on the CPU, each 0..T, makes the rows ragged; None means that all have
        length T. From a row's length on, h is exactly zero; its final state is the one at its
        length, the initial state for 0. Nothing in x at or beyond a row's length, not even nan,
        reaches an output, a final state or a gradient, and x's own gradient is zero there.

        An empty batch gives empty outputs and zero gradients.
        """
        ...


class Layer(Protocol):
    """What a backend that compiles single steps reads of a `module.Unit`."""

    backend: str

    def case(self, batch_size: int) -> Case:
        """The case to choose a backend for."""
        ...

    def weights(self) -> Weights:
        """Its weights, in the order of `definition.TERMS`."""
        ...


@dataclass(frozen=True)
class Backend:
    """One implementation of the units."""

    name: str
    why_not: Callable[[Case], str | None]
    """Why it cannot run the case; None if it can. Called on every run, so it must be cheap."""
    cost: Callable[[Case], float]
    """Estimated seconds per time step, forward and backward, of a case that it can run."""
    run: Run
    compiled_steps: Callable[..., tuple[list[Any], list[Any]]] | None = None
    """Compiles single steps for sampling, see `units.cpu.stepping.steps`; None if it cannot."""
