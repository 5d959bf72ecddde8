"""torch's own layers as a backend: what the tests shared by all backends do not cover."""

import pytest
import torch
from drawing import random_state, random_tensor, random_unit, weighted_sum
from torch.backends.cudnn import rnn as cudnn_rnn

from seqmodel.units import UNITS, make, torch_nn
from seqmodel.units.backends import BACKENDS

TORCHS = ("tanh", "lstm-nopeephole", "gru-reset-after")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5}


def results(unit, x, state, lengths, device):
    """Outputs, final states and every gradient, computed on the device, in float64 on the CPU."""
    unit = unit.to(device)
    x = x.detach().to(device).requires_grad_()
    start = [tensor.detach().to(device).requires_grad_() for tensor in state]
    h, after = unit(x, type(state)(*start), lengths)
    wanted = [x, *start, *unit.parameters()]
    seeds = range(3, 4 + len(after))
    total = sum(
        (t * random_tensor(*t.shape, seed=k).to(t)).sum()
        for k, t in zip(seeds, (h, *after), strict=True)
    )
    found = torch.autograd.grad(total, wanted)
    return [tensor.detach().double().cpu() for tensor in (h, *after, *found)]


def assert_as_specified(name, backend, device, dtype, **options):
    for lengths in (None, torch.tensor([20, 3, 0, 7]), torch.tensor([5, 1, 2, 5])):
        units = [
            random_unit(name, 7, 33, dtype=d, backend=b, **options)
            for d, b in ((dtype, backend), (torch.float64, "reference"))
        ]
        x = random_tensor(20, 4, 7)
        state = random_state(units[1], 4)
        ours = results(
            units[0], x.to(dtype), type(state)(*(t.to(dtype) for t in state)), lengths, device
        )
        for found, right in zip(ours, results(units[1], x, state, lengths, "cpu"), strict=True):
            bound = BOUND[dtype] * max(1.0, float(right.abs().max()))
            assert (found - right).abs().max() < bound


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("unit", TORCHS)
def test_every_gradient_equals_the_specifications(unit, bias, dtype):
    """Guards against torch's order of gates or biases for ours, also in float32's own kernels."""
    assert_as_specified(unit, "torch-nn", "cpu", dtype, bias=bias)


def test_relu_is_torchs_relu():
    """Guards against ignoring the activation and calling torch.rnn_tanh."""
    assert_as_specified("tanh", "torch-nn", "cpu", torch.float64, activation="relu")


@pytest.mark.parametrize("unit", TORCHS)
def test_gradients_only_where_asked(unit):
    """Guards against assigning gradients to the wrong weight when some are frozen."""
    whole, some = (random_unit(unit, 3, 4, backend="torch-nn") for _ in range(2))
    x = random_tensor(5, 2, 3)
    some.U.requires_grad_(False)
    for one in (whole, some):
        weighted_sum(*one(x)).backward()
    assert some.U.grad is None
    for (key, ours), theirs in zip(some.named_parameters(), whole.parameters(), strict=True):
        assert key == "U" or torch.equal(ours.grad, theirs.grad)
    with torch.no_grad():
        assert not whole(x)[0].requires_grad


def test_backward_twice_but_no_second_derivatives():
    """Guards against a second derivative of zero: the layer's graph is cut off from the rest."""
    unit = random_unit("gru-reset-after", 3, 4, backend="torch-nn")
    h, _ = unit(random_tensor(5, 2, 3))
    first = torch.autograd.grad(h.sum(), unit.U, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(h.sum(), unit.U, retain_graph=True)[0])
    with pytest.raises(RuntimeError, match="has no second derivatives"):
        torch.autograd.grad(h.sum(), unit.U, create_graph=True)


class OnGpu:
    """A stand-in for a float32 tensor on a GPU."""

    is_cuda, dtype = True, torch.float32


def test_cudnn_computes_in_full_precision_unless_told_otherwise():
    """Guards against TF32, torch's default for cuDNN but inexact, or a setting left changed."""
    newer = hasattr(cudnn_rnn, "fp32_precision")

    def rounds():
        return cudnn_rnn.fp32_precision == "tf32" if newer else torch.backends.cudnn.allow_tf32

    assert rounds()
    with torch_nn._full_precision(OnGpu()):
        assert not rounds()
    assert rounds()
    with pytest.raises(KeyError), torch_nn._full_precision(OnGpu()):
        raise KeyError
    assert rounds()
    torch.set_float32_matmul_precision("high")
    try:
        with torch_nn._full_precision(OnGpu()):
            assert rounds()
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("unit", TORCHS)
def test_both_passes_run_in_full_precision(unit, monkeypatch):
    """Guards against TF32 in the backward pass, which autograd runs long after the call."""
    entered = []
    original = torch_nn._full_precision

    def watched(x):
        entered.append(x.shape)
        return original(x)

    monkeypatch.setattr(torch_nn, "_full_precision", watched)
    h, _ = random_unit(unit, 3, 4, backend="torch-nn")(random_tensor(5, 2, 3))
    assert len(entered) == 1
    h.sum().backward()
    assert len(entered) == 2


@needs_gpu
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("unit", UNITS)
def test_units_on_a_gpu(unit, bias, dtype):
    """Guards against tensors made on the CPU in mid-run, or cuDNN rounding to TF32."""
    for backend in BACKENDS.values():
        probe = random_unit(unit, 7, 33, dtype=dtype, bias=bias).to("cuda")
        if backend.unsupported_reason(probe.case(4)) is None:
            assert_as_specified(unit, backend.name, "cuda", dtype, bias=bias)


def test_a_text_of_the_name_of_a_unit_is_not_taken_for_it():
    """Guards against a user's tanh.unit that runs as torch.nn.RNN on a GPU."""
    own = make("h = phi(W x + U h' + b)\nunit: tanh", 3, 4)
    assert own.spec.name == "tanh"
    assert torch_nn.BACKEND.unsupported_reason(own.case(1)) is not None
    assert torch_nn.BACKEND.unsupported_reason(make("tanh", 3, 4).case(1)) is None
