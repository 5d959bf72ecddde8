"""The backends in order of preference, and the choice of one: by name or automatically.

Adding a backend takes a module that defines a `specification.Backend` and a row in `BACKENDS`.
No layer above this file refers to a backend by name.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from seqmodel.errors import UsageError
from seqmodel.units import check_device, cpu, specification, torch_nn
from seqmodel.units.specification import Backend, Case

AUTO = "auto"

# `auto` picks the first that can run the case. On the CPU the compiled loops come before torch.nn,
# which therefore runs only on a GPU; the specification can run anything.
BACKENDS: Mapping[str, Backend] = {
    backend.name: backend for backend in (cpu.BACKEND, torch_nn.BACKEND, specification.BACKEND)
}


def cpu_seconds(case: Case) -> float:
    """Estimated time of a step of the compiled loops, forward and backward; threads split a batch.

    Measured on a Zen 5 server core with AVX-512: the nine units at H 36 to 512 run at 100 to 210
    GFLOP/s per thread, and an lstm of 46 units over a single row takes 2.6 us per step, of which
    1.2 us is arithmetic.
    """
    threads = max(1, min(torch.get_num_threads(), case.batch_size))
    return 1.5e-6 + case.step_flops / (1.2e11 * threads)


def gpu_seconds(case: Case) -> float:
    """Like `cpu_seconds`, for torch's layers on a GPU: rough, from the literature, not measured.

    A cuDNN recurrence takes 10 to 30 us per time step and direction whatever its size, since the
    steps are launched one after another; beyond that, a recent GPU sustains a few TFLOP/s.
    """
    return 40e-6 + case.step_flops / 5e12


def check_backend(name: str) -> str:
    """Return the name; UsageError unless it is `auto` or a backend's."""
    if name != AUTO and name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}; choose one of auto, {', '.join(BACKENDS)}")
    return name


def _find(name: str, case: Case) -> tuple[Backend | None, dict[str, str]]:
    """The backend called `name`, or the first for `auto`, that can run the case, if any.

    Also why those tried before cannot, by name.
    """
    reasons: dict[str, str] = {}
    for candidate in BACKENDS if name == AUTO else [check_backend(name)]:
        reason = BACKENDS[candidate].unsupported_reason(case)
        if reason is None:
            return BACKENDS[candidate], reasons
        reasons[candidate] = reason
    return None, reasons


def backend_for(name: str, case: Case) -> Backend:
    """The backend by name (`auto`: the first that can run the case); UsageError, no fallback."""
    backend, reasons = _find(name, case)
    if backend is None:
        raise UsageError(f"the {name} backend cannot run {case.spec.name} here: {reasons[name]}")
    return backend


def run(name: str, case: Case, *args: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run the backend that `backend_for` finds; see `specification.run`."""
    backend = backend_for(name, case)
    if torch.compiler.is_dynamo_compiling() and backend is not specification.BACKEND:
        from seqmodel.units.uncompiled import uncompiled

        return uncompiled(backend.run, case, *args)
    return backend.run(case, *args)


def why(case: Case) -> tuple[str, str]:
    """The backend that `auto` picks for the case, and why it picks none of those before it.

    Second derivatives are not covered: `cpu` computes them by the specification, and `torch-nn`
    raises an error.
    """
    backend, reasons = _find(AUTO, case)
    assert backend is not None  # the specification runs every case
    texts = (f"not {name}: {reason}" for name, reason in reasons.items())
    return backend.name, "; ".join(texts) or "the first choice"


def choose_device(option: str, case: Case, backend: str = AUTO) -> torch.device:
    """The device that `--device` auto, cpu or cuda selects.

    `auto` picks a GPU only if a backend other than the specification runs the case there and is
    probably faster than the CPU. `case.device` is ignored; `backend` is the configured one.

    Raises:
        UsageError: if the device is unknown or not available, or `backend` cannot run on it.
    """
    cpu, gpu = (case._replace(device=torch.device(kind)) for kind in ("cpu", "cuda"))
    if check_device(option) != AUTO:
        chosen = cpu if option == "cpu" else gpu
        backend_for(backend, chosen)
        return chosen.device
    if not torch.cuda.is_available():
        backend_for(backend, cpu)
        return cpu.device
    (on_cpu, _), (on_gpu, _) = _find(backend, cpu), _find(backend, gpu)
    if on_gpu is None or on_gpu is specification.BACKEND:
        return cpu.device
    slower = on_cpu is not None and cpu_seconds(case) <= gpu_seconds(case)
    return cpu.device if slower else gpu.device
