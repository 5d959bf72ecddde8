"""torch's own layers: as a backend, and weights to and from torch.nn.LSTM and GRU."""

import pytest
import torch
from drawing import (
    assert_agree,
    assert_backends_agree,
    assert_same,
    random_state,
    random_tensor,
    random_unit,
    results,
)
from torch import nn
from torch.backends.cudnn import rnn as cudnn_rnn
from torch.utils._pytree import tree_leaves

from seqmodel.errors import UsageError
from seqmodel.units import UNITS, make, torch_nn
from seqmodel.units.backends import BACKENDS
from seqmodel.units.convert import from_torch, to_torch

KINDS = {"lstm-nopeephole": nn.LSTM, "gru-reset-after": nn.GRU}
TORCHS = ("tanh", *KINDS)
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5}
LENGTHS = None, torch.tensor([20, 3, 0, 7]), torch.tensor([5, 1, 2, 5])

each_kind = pytest.mark.parametrize("kind", KINDS)
each_depth = pytest.mark.parametrize("layers", [1, 2])


# ---- as a backend -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(
    ("known", "options"),
    [*((n, {"bias": b}) for n in TORCHS for b in (True, False)), ("tanh", {"activation": "relu"})],
)
def test_every_gradient_equals_the_specifications(known, options, dtype):
    """Guards against torch's order of gates or biases for ours, also in float32's own kernels."""
    unit, x = random_unit(known, 7, 33, dtype=dtype, **options), random_tensor(20, 4, 7).to(dtype)
    for lengths in LENGTHS:
        assert_backends_agree(unit, x, BOUND[dtype], backend="torch-nn", lengths=lengths)


def test_there_are_no_second_derivatives():
    """Guards against a second derivative of zero: the layer's graph is cut off from the rest."""
    unit = random_unit("gru-reset-after", 3, 4, backend="torch-nn")
    h, _ = unit(random_tensor(5, 2, 3))
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(h.sum(), unit.U, create_graph=True)


class OnGpu:
    """A stand-in for a float32 tensor on a GPU."""

    is_cuda, dtype = True, torch.float32


def test_cudnn_computes_in_full_precision_unless_told_otherwise():
    """Guards against TF32, torch's default for cuDNN but inexact, or a setting left changed."""
    newer = hasattr(cudnn_rnn, "fp32_precision")

    def rounds():
        return cudnn_rnn.fp32_precision == "tf32" if newer else torch.backends.cudnn.allow_tf32

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


@pytest.mark.parametrize("known", TORCHS)
def test_both_passes_run_in_full_precision(known, monkeypatch):
    """Guards against TF32 in the backward pass, which autograd runs long after the call."""
    entered, original = [], torch_nn._full_precision
    monkeypatch.setattr(
        torch_nn, "_full_precision", lambda x: entered.append(x.shape) or original(x)
    )
    h, _ = random_unit(known, 3, 4, backend="torch-nn")(random_tensor(5, 2, 3))
    assert len(entered) == 1
    h.sum().backward()
    assert len(entered) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("known", UNITS)
def test_units_on_a_gpu(known, bias, dtype):
    """Guards against tensors made on the CPU in mid-run, or cuDNN rounding to TF32."""
    unit, x = random_unit(known, 7, 33, bias=bias, backend="reference"), random_tensor(20, 4, 7)
    for lengths in LENGTHS:
        right = results(unit, x, lengths=lengths)
        for backend in BACKENDS.values():
            there = random_unit(known, 7, 33, dtype=dtype, bias=bias, backend=backend.name).cuda()
            if backend.unsupported_reason(there.case(4)) is None:
                found = results(there, x.to(dtype).cuda(), lengths=lengths)
                assert_agree(found, right, BOUND[dtype])


def test_a_text_of_the_name_of_a_unit_is_not_taken_for_it():
    """Guards against a user's tanh.unit that runs as torch.nn.RNN on a GPU."""
    own = make("h = phi(W x + U h' + b)\nunit: tanh", 3, 4)
    assert own.spec.name == "tanh"
    assert torch_nn.BACKEND.unsupported_reason(own.case(1)) is not None
    assert torch_nn.BACKEND.unsupported_reason(make("tanh", 3, 4).case(1)) is None


# ---- weights to and from torch.nn ---------------------------------------------------------------


def torch_module(kind, layers, **options):
    torch.manual_seed(5)
    return KINDS[kind](3, 5, layers, dtype=torch.float64, **options)


def assert_the_same_computation(unit, module, layers):
    x, start = random_tensor(11, 2, 3), random_state(unit, 2)
    ours, ours_after = unit(x, start)
    of_all_layers = [
        torch.stack(t) for t in (zip(*start, strict=True) if layers > 1 else zip(start))
    ]
    theirs, after = module(x, tuple(of_all_layers) if len(of_all_layers) > 1 else of_all_layers[0])
    assert_same([ours], [theirs])
    order = list(zip(*ours_after, strict=True)) if layers > 1 else list(zip(ours_after))
    assert_same(map(torch.stack, order), tree_leaves(after))


@each_kind
@each_depth
def test_both_directions_keep_what_is_computed(kind, layers):
    """Guards against gates in the wrong order, a bias counted twice or lost, z for 1 - z."""
    module = torch_module(kind, layers, dropout=0.0 if layers == 1 else 0.25)
    unit, other = from_torch(module), random_unit(kind, 3, 5, layers=layers)
    assert layers == 1 or unit.dropout.p == to_torch(unit).dropout == 0.25
    back = to_torch(other)
    assert type(back) is KINDS[kind]
    assert_the_same_computation(unit.eval(), module.eval(), layers)
    assert_the_same_computation(other, back, layers)
    with torch.no_grad():  # both directions copy
        for weight in (*unit.parameters(), *other.parameters()):
            weight.zero_()
    assert module.weight_hh_l0.all()
    assert back.weight_hh_l0.all()


@pytest.mark.parametrize(
    "module",
    [
        *(kind(3, 4, **{option: not default}) for kind in (nn.LSTM, nn.GRU)
          for option, default in (("bidirectional", False), ("bias", True))),
        nn.LSTM(3, 4, proj_size=2), nn.RNN(3, 3), nn.Linear(3, 3),
    ],
)  # fmt: skip
def test_torch_modules_without_a_counterpart_are_refused(module):
    """Guards against silently converting half of a bidirectional module, or an RNN as a GRU."""
    with pytest.raises(UsageError):
        from_torch(module)


@pytest.mark.parametrize(
    ("known", "options"),
    [
        *((known, {"layers": 2}) for known in UNITS if known not in KINDS),
        *((kind, {"activation": "relu"}) for kind in KINDS),
        *((kind, {"gate_activation": "hard-sigmoid"}) for kind in KINDS),
        *((kind, {"bias": False}) for kind in KINDS),
    ],
)
def test_units_that_torch_lacks_are_refused(known, options):
    """Guards against silently dropping peepholes, or a relu unit that becomes a tanh one."""
    with pytest.raises(UsageError, match="torch"):
        to_torch(make(known, 3, 4, **options))
