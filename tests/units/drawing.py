"""Units with random weights, states and input: what most tests of units begin with."""

from itertools import product

import torch
from torch import Tensor

from seqmodel.units import make
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS

# Two runs that differ only in how frames are cut or rows grouped do the same sums, but not to the
# last bit: a matrix product's blocking, and so its order of summation, depends on its row count.
SAME = {torch.float64: 1e-13, torch.float32: 3e-6}

# (gate activation, activation, bias, type): each is compiled separately, so only every second one
# is tried. Any three of the four still occur in all their combinations.
CHOICES = [
    choices
    for places, choices in (
        zip(*numbered, strict=True)
        for numbered in product(
            *map(enumerate, (GATE_ACTIVATIONS, ACTIVATIONS, (True, False), SAME))
        )
    )
    if sum(places) % 2 == 0
]


def random_unit(name, input_size, hidden_size, *, dtype=torch.float64, seed=0, **options):
    """A unit or stack in which every weight matters, even peepholes and biases, which start at 0.

    U is scaled so that a relu unit does not blow up over a few dozen steps.
    """
    draw = torch.Generator().manual_seed(seed)
    unit = make(name, input_size, hidden_size, **options).to(dtype)
    with torch.no_grad():
        for key, weight in unit.named_parameters():
            scale = weight.shape[1] ** -0.5 if key.split(".")[-1] in ("W", "U") else 1.0
            weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64))
            weight.mul_(0.8 * scale)
    return unit


def random_tensor(*shape, dtype=torch.float64, seed=1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)


def random_state(unit, batch_size, *, seed=2):
    """A state of the unit's own type (of each layer's, for a stack) that is not zero."""

    def fill(zero, seed):
        tensors = (
            random_tensor(*tensor.shape, dtype=tensor.dtype, seed=seed + k)
            for k, tensor in enumerate(zero)
        )
        return type(zero)(*tensors)

    zero = unit.zero_state(batch_size)
    if isinstance(zero[0], Tensor):
        return fill(zero, seed)
    return tuple(fill(layer, seed + 10 * k) for k, layer in enumerate(zero))


def weighted_sum(h, state, *, seed=3) -> Tensor:
    """A scalar to which every element of the output and final state contributes differently."""
    return sum(
        (tensor * random_tensor(*tensor.shape, dtype=tensor.dtype, seed=seed + k)).sum()
        for k, tensor in enumerate((h, *state))
    )


def assert_same(ours, theirs) -> None:
    """Equal but for the order of summation, relative to the largest value."""
    for a, b in zip(ours, theirs, strict=True):
        scale = max(1.0, float(b.detach().abs().max())) if b.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=0, atol=SAME[b.dtype] * scale)
