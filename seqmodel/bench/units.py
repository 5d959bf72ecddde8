"""A unit's training step and forward pass, compared with torch.nn and the specification."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seqmodel import units
from seqmodel.bench import machine, peers
from seqmodel.bench.cases import Size
from seqmodel.bench.clock import Contender, finished, ratio, take_turns
from seqmodel.bench.steps import layer_step
from seqmodel.units import specification
from seqmodel.units.backends import AUTO, Case, backend_for, choose_device


def measure_unit(name: str, size: Size, device_option: str, seconds: float) -> dict[str, Any]:
    """Time one unit at one size on the device that the option selects, with its fastest backend.

    A step is forward and backward, with the gradients of the input and of all weights. The forward
    pass is also timed alone, without recording for a backward pass, as in evaluation.
    """
    spec = units.unit_spec(name)
    inputs, hidden = size.inputs, size.hidden_of(spec)
    batch, frames = size.batch, size.frames
    case = Case(spec, torch.float32, torch.device("cpu"), batch, inputs, hidden)
    device = choose_device(device_option, case)
    x = torch.randn(frames, batch, inputs, device=device, requires_grad=True)
    d_h = torch.randn(frames, batch, hidden, device=device)
    ours = units.make(name, inputs, hidden).to(device)
    theirs = peers.layer(spec, inputs, hidden).to(device)
    backend = backend_for(AUTO, ours.case(batch))

    def step(layer: nn.Module) -> Callable[[], object]:
        leaves = [x, *layer.parameters()]
        return finished(lambda: layer_step(layer, leaves, x, d_h), device)

    def forward(layer: nn.Module) -> Callable[[], object]:
        return finished(lambda: _forward(layer, x), device)

    contenders = {
        "ours": Contender(step(ours)),
        "torch_nn": Contender(step(theirs)),
        "forward_ours": Contender(forward(ours)),
        "forward_torch_nn": Contender(forward(theirs)),
    }
    if backend is not specification.BACKEND:
        plain = units.make(name, inputs, hidden, specification.BACKEND.name).to(device)
        contenders["specification"] = Contender(step(plain), slow=True)
    # A single row is never split across threads.
    if device.type == "cpu" and torch.get_num_threads() > 1 and batch > 1:
        contenders["ours_one_thread"] = Contender(step(ours), threads=1)
    # Last, so that torch's threads are awake again when the next round begins.
    contenders["sgemm"] = machine.sgemm(machine.PEAK_SIZE, device)
    taken = take_turns(contenders, seconds)

    def over_ours(contender: str) -> float | None:
        return ratio(taken[contender], taken["ours"]) if contender in taken else None

    return {
        "unit": name,
        "size": size.name,
        "device": device.type,
        "backend": backend.name,
        "inputs": inputs,
        "hidden": hidden,
        "batch": batch,
        "frames": frames,
        "timings": {k: timing.to_json() for k, timing in taken.items() if k != "sgemm"},
        "over_torch_nn": over_ours("torch_nn"),
        "over_specification": over_ours("specification"),
        "forward_over_torch_nn": ratio(taken["forward_torch_nn"], taken["forward_ours"]),
        "scaling": over_ours("ours_one_thread"),
        "gflops": frames * case.step_flops / taken["ours"].median / 1e9,
        "sgemm_gflops": machine.gflops(taken["sgemm"].best, machine.PEAK_SIZE),
    }


@torch.no_grad()
def _forward(layer: nn.Module, x: Tensor) -> None:
    layer(x)
