"""Dropout: zeros at the given rate, the rest scaled, redrawn per call, off in evaluation."""

import numpy as np
import pytest
import torch

from seqmodel.kernels.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.4, 0.5, 0.93])
def test_zeros_have_probability_p_and_the_mean_is_kept(p, dtype):
    """Guards against confusing p and 1 - p, and against a scale that shifts the mean."""
    torch.manual_seed(0)
    x = torch.ones(301, 7, 33, dtype=dtype)
    y = Dropout(p)(x)
    zeros, count = int((y == 0).sum()), y.numel()
    assert zeros == pytest.approx(p * count, abs=5 * np.sqrt(p * (1 - p) * count))
    assert y.dtype == dtype
    torch.testing.assert_close(
        y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)), rtol=1e-3, atol=0
    )
    assert float(y.mean()) == pytest.approx(1, abs=5 * np.sqrt(p / (1 - p) / count))


def test_neighbours_are_dropped_independently():
    """Guards against bits used twice: each number takes 16 bits of a word, none shared."""
    torch.manual_seed(0)
    zero = (Dropout(0.5)(torch.ones(1 << 16)) == 0).double() - 0.5
    for lag in range(1, 9):
        product = float((zero[lag:] * zero[:-lag]).sum())
        assert abs(product) < 5 * 0.25 * np.sqrt(len(zero)), lag


def test_draws_follow_torchs_seed_and_differ_per_call():
    drop, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)


def test_the_gradient_is_masked_and_scaled_like_the_values():
    x = torch.ones(500, requires_grad=True)
    y = Dropout(0.3)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_off_in_evaluation_and_at_zero():
    x = torch.randn(50)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()


def test_dropout_of_large_tensors():
    """Covers the path for many elements, which runs on all threads: values and gradient."""
    x = torch.full((700, 700), 3.0, requires_grad=True)
    torch.manual_seed(1)
    dropped = Dropout(0.5).train()(x)
    assert dropped.unique().tolist() == [0.0, 6.0]
    assert float((dropped == 0).double().mean()) == pytest.approx(0.5, abs=0.01)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped.detach() / 3)
