"""Dropout whose random numbers are cheap compared with a small unit's step."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.errors import UsageError
from seqmodel.kernels.device import one_thread, transformed

_STEPS = 1 << 16  # resolution of the probability: 16 random bits per element
_THREADED_SIZE = 1 << 18  # elements above which waking threads pays off


class Dropout(nn.Module):
    """Zeroes each element with probability `p` during training and scales up the others.

    Equivalent to torch.nn.Dropout (Srivastava et al. 2014). On a CPU, torch's generator takes as
    long as a whole step of a small unit, so each element uses 16 bits from a faster generator
    seeded by torch's, and `p` is rounded to a multiple of 2**-16. Other devices, transforms and
    traces use torch's dropout.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise UsageError(f"dropout must be from 0 to 1, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x, some elements zeroed, the others scaled by 1 / (1 - p); x itself in evaluation."""
        if not self.training or _keep_count(self.p) == _STEPS:
            return x
        if x.device.type != "cpu" or transformed():
            return F.dropout(x, self.p, self.training)
        return _Scale.apply(x, dropout_factors(x, self.p))  # type: ignore[no-untyped-call]


def dropout_factors(like: Tensor, p: float) -> Tensor:
    """Factors in this tensor's shape: 0 with probability p, else 1 / (1 - p); see `Dropout`."""
    keep_count = _keep_count(p)
    if like.device.type != "cpu" or not keep_count or transformed():
        return F.dropout(torch.ones_like(like), p)
    from seqmodel.kernels.noise import dropout_factors as compiled  # loads the compiler

    return compiled(like.numel(), keep_count).view(like.shape).to(like.dtype)


def _keep_count(p: float) -> int:
    return round((1 - p) * _STEPS)


class _Scale(torch.autograd.Function):
    """x times constant factors, forward and backward; on one thread unless x is large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return _product(x, factors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return _product(gradient, factors), None


def _product(x: Tensor, factors: Tensor) -> Tensor:
    with nullcontext() if x.numel() > _THREADED_SIZE else one_thread():
        return x * factors
