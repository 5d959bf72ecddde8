"""Which code runs a unit: the specification, or a compiled backend proved against it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from seqmodel.errors import UsageError
from seqmodel.kernels import device as cpu
from seqmodel.units import specification
from seqmodel.units.registry import UnitSpec
from seqmodel.units.weights import StackedWeights


class Backend(Protocol):
    """Runs one layer over time; see `specification.run` for the contract."""

    def __call__(
        self,
        spec: UnitSpec,
        weights: specification.Weights,
        x: Tensor,
        state: specification.State,
        gate_activation: str,
        activation: str,
        /,
    ) -> specification.State:
        """Every state tensor at every step, h first."""
        ...


def _cpu(
    spec: UnitSpec,
    weights: specification.Weights,
    x: Tensor,
    state: specification.State,
    *activations: str,
) -> specification.State:
    stacked = StackedWeights.of(spec, weights)
    reason = cpu.why_not((x, *stacked.stacked.values(), *state))
    if reason is not None:
        raise UsageError(f"the cpu backend cannot run here: {reason}")
    from seqmodel.units.cpu.recurrence import run  # the compiler loads at first use

    return run(spec, stacked, x, state, *activations)


def _auto(
    spec: UnitSpec,
    weights: specification.Weights,
    x: Tensor,
    state: specification.State,
    *activations: str,
) -> specification.State:
    stacked = StackedWeights.of(spec, weights)
    if cpu.why_not((x, *stacked.stacked.values(), *state)) is not None:
        return specification.run(spec, stacked, x, state, *activations)
    from seqmodel.units.cpu.recurrence import run  # the compiler loads at first use

    return run(spec, stacked, x, state, *activations)


cpu.watch_forks()
BACKENDS: Mapping[str, Backend] = {"cpu": _cpu, "reference": specification.run}


def fastest(x: Tensor, others: Iterable[Tensor | None] = ()) -> tuple[str, str]:
    """The backend `auto` takes for these tensors, and why.

    What no look at the tensors tells: second derivatives go through the specification, exact but
    slow; forward-mode derivatives and torch.func's transforms raise torch's own errors, ask for
    `reference` there.
    """
    reason = cpu.why_not((x, *others))
    if reason is None:
        return "cpu", "compiled loops, the fastest on this device"
    return "reference", f"the cpu backend cannot run here: {reason}"


def find_backend(name: str) -> Backend:
    """The backend called `name`; `auto` looks at each call's tensors. UsageError if unknown."""
    if name == "auto":
        return _auto
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}; choose one of auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]


def choose_device(option: str, case: object) -> torch.device:
    """The device that `--device` names for `case`; UsageError where there is none."""
    if option == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: there is no GPU that torch can use; use --device cpu")
    if option not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device must be one of auto, cpu, cuda, not {option!r}")
    return torch.device("cuda" if option == "cuda" else "cpu")
