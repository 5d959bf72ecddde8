"""Dropout whose random numbers cost little beside a small unit's step."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.kernels.device import one_thread

_STEPS = 1 << 16  # of the probability: each number takes 16 bits


class Dropout(nn.Module):
    """Sets each number to zero with probability `p` while training, and scales up the others.

    As torch.nn.Dropout (Srivastava et al. 2014), whose generator takes as long on a CPU as a whole
    step of a small unit: here each number takes 16 bits of a faster one, which torch's own seeds.
    `p` is thus rounded to a multiple of 2**-16.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """The numbers of x that are kept, scaled by 1 / (1 - p); all of them in evaluation."""
        kept = round((1 - self.p) * _STEPS)
        if not self.training or kept == _STEPS:
            return x
        if x.device.type != "cpu" or not kept:
            return F.dropout(x, self.p, self.training)
        from seqmodel.kernels.noise import dropout_factors  # the compiler

        factors = dropout_factors(x.numel(), kept).view(x.shape).to(x.dtype)
        dropped: Tensor = _Times.apply(x, factors)  # type: ignore[no-untyped-call]
        return dropped


class _Times(torch.autograd.Function):
    """x times constant factors, either way on one thread."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: Tensor) -> Tensor:
        """The products."""
        ctx.save_for_backward(factors)
        with one_thread():
            return x * factors

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The gradient of x."""
        (factors,) = ctx.saved_tensors
        with one_thread():
            return gradient * factors, None
