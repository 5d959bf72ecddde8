"""Units with random weights, and all that a run of one gives; comparing backends."""

from itertools import product

import torch
from torch.utils._pytree import tree_leaves, tree_map

from seqmodel.units import make
from seqmodel.units.cpu import recurrence
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS

# Two runs that differ only in how frames are cut or rows grouped do the same sums, but not to the
# last bit: a matrix product's blocking, and so its order of summation, depends on its row count.
SAME = {torch.float64: 1e-13, torch.float32: 3e-6}

# (gate activation, activation, bias, type): any two of them occur in all their combinations.
CHOICES = [
    (s, phi, (g + a) % 2 == 0, [*SAME][(g + (a > 0)) % 2])
    for (g, s), (a, phi) in product(enumerate(GATE_ACTIVATIONS), enumerate(ACTIVATIONS))
]


# All units are loops derived from a graph, so few show what a backend does with sequences: two
# states, a product of a product of the state, means, and whatever torch.nn has.
PAIRS = [
    ("lstm", "cpu"), ("gru", "cpu"), ("gru3", "cpu"), ("lstm-layer-norm", "cpu"),
    ("lstm", "reference"), ("mgu", "reference"),
    ("tanh", "torch-nn"), ("lstm-nopeephole", "torch-nn"), ("gru-reset-after", "torch-nn"),
]  # fmt: skip
WIDE = recurrence.ROWS, 1
"""Of `recurrence.ROWS`: what no other step waits for is computed in blocks, or step by step."""


def random_unit(name, input_size, hidden_size, *, dtype=torch.float64, seed=0, **options):
    """A unit or stack in which every weight matters, even peepholes and biases, which start at 0.

    U is scaled so that a relu unit does not blow up over a few dozen steps.
    """
    draw = torch.Generator().manual_seed(seed)
    unit = make(name, input_size, hidden_size, **options).to(dtype)
    with torch.no_grad():
        for key, weight in unit.named_parameters():
            sizes = {"W": weight.shape[-1], "U": hidden_size}
            scale = sizes.get(key.split(".")[-1], 1) ** -0.5
            weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64))
            weight.mul_(0.8 * scale)
    return unit


def random_tensor(*shape, dtype=torch.float64, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)


def random_state(unit, batch_size, *, seed=2):
    """A state of the unit's own type (of each layer's, for a stack) that is not zero."""
    draw = torch.Generator().manual_seed(seed)

    def fill(zero):
        return torch.randn(zero.shape, generator=draw, dtype=torch.float64).to(zero)

    return tree_map(fill, unit.zero_state(batch_size))


def as_torchs(state):
    """A state as torch.nn has it: (layers, B, H) of each kind, in a tuple if there are several."""
    layers = [state] if isinstance(state[0], torch.Tensor) else state
    kinds = tuple(map(torch.stack, zip(*layers, strict=True)))
    return kinds if len(kinds) > 1 else kinds[0]


def weighted_sum(h, state, *, seed=3):
    """A scalar to which every element of the output and final state contributes differently."""
    return sum(
        (tensor * random_tensor(*tensor.shape, seed=seed + k).to(tensor)).sum()
        for k, tensor in enumerate(tree_leaves((h, state)))
    )


def gradients(unit, h, state, *others):
    """The gradients of every weight, and of other tensors, for the weighted sum of a run."""
    return torch.autograd.grad(weighted_sum(h, state), [*others, *unit.parameters()])


def results(unit, x, state=None, lengths=None, *, of_x=True):
    """By name: h, final states, and gradients of x (or not), the first state and every weight."""
    start = random_state(unit, x.shape[1]) if state is None else state
    start = tree_map(lambda t: t.detach().requires_grad_(), start)
    x = x.detach().requires_grad_(of_x)
    h, after = unit(x, start, lengths)
    finals, firsts = tree_leaves(after), tree_leaves(start)
    found = {"h": h} | {f"final {k}": tensor for k, tensor in enumerate(finals)}
    leaves = {"x": x} if of_x else {}
    leaves |= {f"first {k}": tensor for k, tensor in enumerate(firsts)}
    leaves |= dict(unit.named_parameters())
    slopes = torch.autograd.grad(weighted_sum(h, after), [*leaves.values()], allow_unused=True)
    for (key, leaf), slope in zip(leaves.items(), slopes, strict=True):
        found[f"d {key}"] = torch.zeros_like(leaf) if slope is None else slope
    return {key: tensor.detach() for key, tensor in found.items()}


def assert_agree(ours, theirs, bound):
    """Results alike, relative to each tensor's largest number, or to 0.1 if that is smaller."""
    assert ours.keys() == theirs.keys()
    for what in theirs:
        found, right = (t[what].detach().to("cpu", torch.float64) for t in (ours, theirs))
        assert found.shape == right.shape, what
        if right.numel():
            error = float((found - right).abs().max())
            assert error <= bound * max(0.1, float(right.abs().max())), f"{what}: {error:.1e}"


def assert_backends_agree(unit, x, bound=1e-9, *, backend="cpu", **options):
    """All that a run gives on two backends; returns what it is on the second.

    The specification has one thread: on two of a busy machine its many small products crawl.
    """
    found, threads = [], torch.get_num_threads()
    for unit.backend in ("reference", backend):
        torch.set_num_threads(1 if unit.backend == "reference" else threads)
        found.append(results(unit, x, **options))
    assert_agree(found[1], found[0], bound)
    return found[1]


def assert_same(ours, theirs):
    """Equal but for the order of summation, relative to the largest value."""
    for a, b in zip(ours, theirs, strict=True):
        scale = max(1.0, float(b.detach().abs().max())) if b.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=0, atol=SAME[b.dtype] * scale)
