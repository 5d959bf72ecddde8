"""The compiled backend for the CPU: float32 and float64.

From a text to a kernel: `graph` makes it of its equations, `schedule` finds where its values are in
memory and what is computed when, forward and backward, and `kernels` writes the loops around that.
`recurrence` is the torch operation, `stepping` single steps for sampling. All of these are imported
when a unit first runs.
"""

from typing import Any

import torch
from torch import Tensor

from seqmodel.units.specification import Backend, Case, opaque_reason

# Measured on a Zen 5 server core with AVX-512: the nine units at H 36 to 512 run at 100 to 210
# GFLOP/s per thread, and an lstm of 46 units over a single row takes 2.6 us per step, of which
# 1.2 us is arithmetic.
FLOPS_PER_THREAD = 1.2e11
STEP_SECONDS = 1.5e-6


def unsupported_reason(case: Case) -> str | None:
    """Why the compiled loops cannot run the case; None if they can."""
    if case.device.type != "cpu":
        return f"it runs on the CPU, not on {case.device.type}"
    if case.dtype is not torch.float32 and case.dtype is not torch.float64:
        return f"it computes in float32 and float64, not in {case.dtype}"
    return opaque_reason()


def cost(case: Case) -> float:
    """Estimated seconds per time step: threads split the batch."""
    threads = max(1, min(torch.get_num_threads(), case.batch_size))
    return STEP_SECONDS + case.step_flops / (FLOPS_PER_THREAD * threads)


def run(*args: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    """See `specification.run`. Loads the compiler at first use."""
    from seqmodel.units.cpu import recurrence

    return recurrence.run(*args)


BACKEND = Backend("cpu", unsupported_reason, cost, run)
