"""The compiled backend for the CPU: float32 and float64.

From a unit's text to its kernels: `graph` turns the equations into a graph, `schedule` decides
where its values are in memory and what is computed when, forward and backward, and `kernels` writes
the loops around that. `recurrence` is the torch operation, `stepping` single steps for sampling.
All of these are imported when a unit first runs.
"""

from typing import Any

from torch import Tensor

from seqmodel.units.specification import Backend, Case, opaque_reason


def unsupported_reason(case: Case) -> str | None:
    """Why the compiled loops cannot run the case; None if they can."""
    if case.device.type != "cpu":
        return f"it runs on the CPU, not on {case.device.type}"
    return opaque_reason(case)


def run(*args: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    """See `specification.run`. Loads the compiler at first use."""
    from seqmodel.units.cpu import recurrence

    return recurrence.run(*args)


BACKEND = Backend("cpu", unsupported_reason, run)
