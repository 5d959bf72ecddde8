"""A unit's forward pass and training step, beside torch.nn's layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqmodel import units
from seqmodel.bench import peers
from seqmodel.bench.clock import Run, compare
from seqmodel.units import UNITS, UnitSpec
from seqmodel.units.backends import AUTO, backend_for, choose_device
from seqmodel.units.specification import Case


@dataclass(frozen=True)
class Size:
    """`hidden` (H) units over `inputs` (I), on a batch (B) of sequences of `frames` (T) each."""

    name: str
    inputs: int
    hidden: int
    batch: int
    frames: int
    hidden_with_cell: int | None = None
    """H of units with a cell, where it differs because they have more gates."""

    def hidden_of(self, spec: UnitSpec) -> int:
        """H for this unit."""
        return self.hidden_with_cell if self.hidden_with_cell and "c" in spec.state else self.hidden


SIZES = (
    Size("paper", 88, 46, 16, 200, hidden_with_cell=36),
    Size("speech", 20, 195, 32, 500),
    Size("h512", 88, 512, 32, 200),
    Size("one-row", 88, 46, 1, 200),
)


def rows(names: list[str], device: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Every size of every unit, or of those named."""
    for size in SIZES:
        for name in names or UNITS:
            yield measure(name, size, device, seconds)


def measure(name: str, size: Size, device_option: str, seconds: float) -> dict[str, Any]:
    """Time one unit at one size on the device that the option selects, with its fastest backend.

    A step is forward and backward, with the gradients of the input and of all weights. The forward
    pass is also timed alone, without recording for a backward pass, as in evaluation.
    """
    spec = units.unit_spec(name)
    inputs, hidden, batch, frames = size.inputs, size.hidden_of(spec), size.batch, size.frames
    case = Case(spec, torch.float32, torch.device("cpu"), batch, inputs, hidden)
    device = choose_device(device_option, case)
    x = torch.randn(frames, batch, inputs, device=device, requires_grad=True)
    d_h = torch.randn(frames, batch, hidden, device=device)
    ours = units.make(name, inputs, hidden).to(device)
    theirs = peers.layer(spec, inputs, hidden).to(device)

    def forward(layer: nn.Module) -> Run:
        return finished(torch.no_grad()(partial(layer, x)), device)

    def step(layer: nn.Module) -> Run:
        return finished(partial(_step, layer, x, d_h), device)

    return {
        **{"unit": spec.name, "size": size.name, "inputs": inputs, "hidden": hidden},
        **{"batch": batch, "frames": frames},
        **{"device": device.type, "backend": backend_for(AUTO, ours.case(batch)).name},
        "forward": compare(forward(ours), forward(theirs), seconds / 2),
        "step": compare(step(ours), step(theirs), seconds / 2),
    }


def _step(layer: nn.Module, x: Tensor, d_h: Tensor) -> None:
    """Forward over x (T, B, I), then backward from d_h (T, B, H) to x and the weights."""
    layer(x)[0].backward(d_h)
    for leaf in (x, *layer.parameters()):
        leaf.grad = None


def finished(run: Run, device: torch.device) -> Run:
    """`run`, followed on a GPU by a wait until its work is done."""
    if device.type != "cuda":
        return run

    def run_and_wait() -> None:
        run()
        torch.cuda.synchronize(device)

    return run_and_wait
