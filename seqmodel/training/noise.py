"""Gaussian noise on the weights, as a regulariser."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from seqmodel.kernels.device import one_thread
from seqmodel.model.sequence import SequenceModel
from seqmodel.units.definition import TERMS
from seqmodel.units.module import Unit


@contextmanager
def weight_noise(model: SequenceModel, deviation: float) -> Iterator[None]:
    """Add fresh Gaussian noise to the units' matrices and peepholes for the length of the block.

    Gradients are taken at the noisy weights and applied to the clean ones (Graves 2011). Biases
    and the output layer stay clean.
    """
    if deviation == 0:
        yield
        return
    layers = [module for module in model.modules() if isinstance(module, Unit)]
    terms = [getattr(layer, term) for layer in layers for term in TERMS if term in "WUV"]
    noisy = [weight.detach() for weight in terms if weight is not None]
    sizes = [weight.numel() for weight in noisy]
    with one_thread():
        clean = [weight.clone() for weight in noisy]
        noises = _normals(sum(sizes), noisy[0].device).split_with_sizes(sizes)
        for weight, noise in zip(noisy, noises, strict=True):
            weight.add_(noise.view_as(weight), alpha=deviation)
    try:
        yield
    finally:
        with one_thread():
            for weight, saved in zip(noisy, clean, strict=True):
                weight.copy_(saved)


def _normals(count: int, device: torch.device) -> Tensor:
    """Standard normals (count,), from the generator that torch has for the device."""
    if device.type != "cpu":
        return torch.randn(count, device=device)
    from seqmodel.kernels.noise import normals  # loads the compiler

    return normals(count)
