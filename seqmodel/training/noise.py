"""Noise on the weights, as a regulariser: Gaussian, or dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from seqmodel.kernels.device import one_thread
from seqmodel.kernels.dropout import dropout_factors
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
    terms = [getattr(layer, term) for layer in _layers(model) for term in TERMS if term in "WUV"]
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


@contextmanager
def weight_dropout(model: SequenceModel, p: float) -> Iterator[None]:
    """Drop entries of the units' U for the length of the block, then the same of its gradient.

    Each is zeroed with probability `p`, the others are scaled up by 1 / (1 - p): DropConnect (Wan
    et al. 2013) on what h is multiplied by, as Merity, Keskar and Socher (2018) use it. The
    same entries stay dropped over all frames of the update, so a unit still remembers over many.
    """
    if p == 0:
        yield
        return
    parameters = [layer.U for layer in _layers(model) if layer.U is not None]
    with one_thread():
        matrices = [U.detach() for U in parameters]
        whole = [U.clone() for U in matrices]
        factors = [dropout_factors(U, p) for U in matrices]
        for U, factor in zip(matrices, factors, strict=True):
            U.mul_(factor)
    try:
        yield
    finally:
        with one_thread():
            for U, saved, factor in zip(parameters, whole, factors, strict=True):
                U.detach().copy_(saved)
                if U.grad is not None:
                    U.grad.mul_(factor)


def _layers(model: SequenceModel) -> list[Unit]:
    return [module for module in model.modules() if isinstance(module, Unit)]


def _normals(count: int, device: torch.device) -> Tensor:
    """Standard normals (count,), from torch's generator for the device."""
    if device.type != "cpu":
        return torch.randn(count, device=device)
    from seqmodel.kernels.noise import normals  # loads the compiler

    return normals(count)
