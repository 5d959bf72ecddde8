"""The machine: how fast it multiplies matrices, and whether our threads disturb torch's."""

from typing import Any

import torch

from seqmodel import units
from seqmodel.bench.clock import Contender, finished, ratio, take_turns
from seqmodel.bench.steps import layer_step

CPU = torch.device("cpu")
PEAK_SIZE = 1024
AFTER_SIZE = 512


def sgemm(size: int, device: torch.device = CPU) -> Contender:
    """The product of two square float32 matrices."""
    a, b, out = (torch.rand(size, size, device=device) for _ in range(3))
    return Contender(finished(lambda: torch.mm(a, b, out=out), device))


def gflops(seconds: float, size: int) -> float:
    """The speed of a product of square matrices that took `seconds`."""
    return 2 * size**3 / seconds / 1e9


def measure_sgemm(seconds: float) -> dict[str, Any]:
    """The CPU's peak, and a product right after an lstm's training step and after another product.

    Our kernels and torch's products run on the same threads. A ratio near 1 means that neither has
    to wait for the other.
    """
    x, d_h = torch.randn(200, 16, 88, requires_grad=True), torch.randn(200, 16, 100)
    lstm, product = units.make("lstm", 88, 100), sgemm(AFTER_SIZE).run
    leaves = [x, *lstm.parameters()]
    taken = take_turns(
        {
            "peak": sgemm(PEAK_SIZE),
            "alone": Contender(product, before=product),
            "after_kernel": Contender(product, before=lambda: layer_step(lstm, leaves, x, d_h)),
        },
        seconds,
    )
    return {
        "device": CPU.type,
        "sgemm_gflops": gflops(taken["peak"].best, PEAK_SIZE),
        "alone": taken["alone"].to_json(),
        "after_kernel": taken["after_kernel"].to_json(),
        "ratio": ratio(taken["after_kernel"], taken["alone"]),
    }
