"""A unit's training step and forward pass, beside torch.nn and the specification."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seqmodel import units
from seqmodel.bench import machine, peers
from seqmodel.bench.cases import Size
from seqmodel.bench.clock import Contender, ratio, take_turns
from seqmodel.bench.steps import layer_step


def step_flops(spec: units.UnitSpec, inputs: int, hidden: int, batch: int, frames: int) -> int:
    """Operations of a training step in its matrix products, all else being linear in H.

    Each matrix is multiplied three times: forward, backward to what it read, and for its gradient.
    """
    w = len(spec.gates_with("W")) * hidden * inputs
    u = len(spec.gates_with("U")) * hidden * hidden
    return 2 * frames * batch * (3 * w + 3 * u)


def measure_unit(name: str, size: Size, seconds: float) -> dict[str, Any]:
    """Time one unit at one size.

    A step is forward and backward, with the gradients of the input and of all weights. The forward
    pass alone is timed without recording for a backward, as evaluation runs it.
    """
    spec = units.unit_spec(name)
    inputs, hidden = size.inputs, size.hidden_of(spec)
    batch, frames = size.batch, size.frames
    x = torch.randn(frames, batch, inputs, requires_grad=True)
    d_h = torch.randn(frames, batch, hidden)
    ours = units.make(name, inputs, hidden, "cpu")
    theirs = peers.layer(spec, inputs, hidden)
    plain = units.make(name, inputs, hidden, "reference")

    def step(layer: nn.Module) -> Callable[[], None]:
        leaves = [x, *layer.parameters()]
        return lambda: layer_step(layer, leaves, x, d_h)

    contenders = {
        "cpu": Contender(step(ours)),
        "torch_nn": Contender(step(theirs)),
        "forward_cpu": Contender(lambda: _forward(ours, x)),
        "forward_torch_nn": Contender(lambda: _forward(theirs, x)),
        "reference": Contender(step(plain), slow=True),
    }
    if torch.get_num_threads() > 1 and batch > 1:  # a single row is never shared out
        contenders["cpu_one_thread"] = Contender(step(ours), threads=1)
    # Last, so that torch's threads are awake again when the next round begins.
    contenders["sgemm"] = machine.sgemm(machine.PEAK_SIZE)
    taken = take_turns(contenders, seconds)
    alone = taken.get("cpu_one_thread")
    return {
        "unit": name,
        "size": size.name,
        "inputs": inputs,
        "hidden": hidden,
        "batch": batch,
        "frames": frames,
        "timings": {k: timing.to_json() for k, timing in taken.items() if k != "sgemm"},
        "over_torch_nn": ratio(taken["torch_nn"], taken["cpu"]),
        "over_reference": ratio(taken["reference"], taken["cpu"]),
        "forward_over_torch_nn": ratio(taken["forward_torch_nn"], taken["forward_cpu"]),
        "scaling": None if alone is None else ratio(alone, taken["cpu"]),
        "gflops": step_flops(spec, inputs, hidden, batch, frames) / taken["cpu"].median / 1e9,
        "sgemm_gflops": machine.gflops(taken["sgemm"].best, machine.PEAK_SIZE),
    }


@torch.no_grad()
def _forward(layer: nn.Module, x: Tensor) -> None:
    layer(x)
