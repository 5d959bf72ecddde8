"""Units of every form: the derived loops against the specification under autograd."""

import pytest
import torch
from drawing import random_state, random_tensor, random_unit, weighted_sum
from random_texts import random_text

from seqmodel.units import make, zoo


def assert_backends_agree(unit, x, state, lengths):
    """Outputs, final states and every gradient of the compiled loops and the specification."""
    found = []
    for backend in ("reference", "cpu"):
        unit.backend = backend
        inputs = [t.detach().requires_grad_() for t in (x, *state)]
        h, after = unit(inputs[0], type(state)(*inputs[1:]), lengths)
        leaves = [*inputs, *unit.parameters()]
        gradients = torch.autograd.grad(weighted_sum(h, after), leaves, allow_unused=True)
        found.append([h, *after, *gradients])
    for right, ours in zip(*found, strict=True):
        if right is None:
            assert ours is None or not ours.any(), unit.spec.text
            continue
        scale = max(0.1, float(right.detach().abs().max()))
        assert float((ours - right).detach().abs().max()) < 1e-9 * scale, unit.spec.text


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_values_and_gradients_of_random_units(first):
    """Guards against a gradient lost between passes, a slot overwritten while it is needed."""
    for seed in range(first, first + 20):
        T, B, H, I = 3 + seed % 4, 1 + seed % 3, 1 + seed % 17, 1 + seed % 5  # noqa: E741
        unit = random_unit(random_text(seed), I, H, seed=seed, bias=seed % 4 > 0)
        lengths = torch.tensor([T, 0, T - 2][:B]) if seed % 2 else None
        assert_backends_agree(unit, random_tensor(T, B, I), random_state(unit, B), lengths)


@pytest.mark.parametrize(
    "text",
    [
        "h = c'\nc = tanh(W x + U h')",  # c's gradient is that of h as it is
        "h = W x + c'\nc = h'",
        "h = c' + W x\nc = tanh(Wc x + Uc h + bc)",
        "h = m'\nc = h\nm = tanh(W x + U c')",  # so is the sum of two, of one node
        "c = 0.5\nm = b\nh = W x + c' (.) m' + s(h')",
        "c = c'\nh = W x (.) c'",
        "n = W1 x + W2 x\nh = tanh(n - U h') (.) n + U1 (U2 h')",
        "T = s(Wi x + Ui T')\nclass = T (.) in'\nin = s(Wc x)\nh = class + lengths'\nlengths = T",
        "h = exp(W x) / (1 + exp(W1 x + U h'))",
    ],
)
def test_values_and_gradients_of_odd_units(text):
    """Guards against a gradient stored over one that is still to be read, and names that clash."""
    for lengths in (None, torch.tensor([5, 0, 2])):
        unit = random_unit(text, 3, 17)
        assert_backends_agree(unit, random_tensor(5, 3, 3), random_state(unit, 3), lengths)


@pytest.mark.parametrize(
    "text",
    [
        "h = tanh(W x) / W2 x",
        "h = tanh(W x + U (W2 x / W3 x))",
        "h = (W x + U h') / (h' + c')\nc = 2",
    ],
)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_rows_that_have_ended_divide_nothing_by_nothing(text, backend):
    """A padded row's 0 / 0 used to reach the gradients of all weights."""
    unit = random_unit(text, 3, 5, backend=backend)
    h, _ = unit(random_tensor(6, 3, 3), random_state(unit, 3), torch.tensor([6, 2, 0]))
    h.sum().backward()
    for weight in unit.parameters():
        assert torch.isfinite(weight.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_at_their_limits(dtype):
    """Guards against an exp that saturates, so that a unit diverges unnoticed."""
    values = [-1e9, -800.0, -90.0, -1e-9, 0.0, 1e-9, 9.0, 88.5, 90.0, 800.0, 1e9]
    for function in ("exp", "softplus", "relu", "sigmoid", "tanh"):
        unit = make(f"h = {function}(W x)", 1, 1).to(dtype)
        with torch.no_grad():
            unit.W.fill_(1.0)
        found = []
        for backend in ("cpu", "reference"):
            unit.backend = backend
            x = torch.tensor(values, dtype=dtype).view(1, -1, 1).requires_grad_()
            h, _ = unit(x)
            found.append((h, *torch.autograd.grad(h.sum(), x)))
        for ours, theirs in zip(*found, strict=True):
            tiny = 2e-7 if dtype == torch.float32 else 1e-15
            torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=tiny, equal_nan=True)


@pytest.mark.parametrize("known", zoo())
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_of_the_zoo(known, bias):
    for T, B, H, I, lengths in ((9, 7, 33, 5, None), (6, 3, 16, 2, torch.tensor([6, 0, 4]))):  # noqa: E741
        unit = random_unit(known, I, H, bias=bias)
        assert_backends_agree(unit, random_tensor(T, B, I), random_state(unit, B), lengths)
