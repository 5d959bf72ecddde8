"""Weights to and from torch.nn.LSTM and GRU: the same numbers, forward and backward."""

import copy

import pytest
import torch
from drawing import assert_same, random_tensor, random_unit, weighted_sum
from torch import nn

from seqmodel.errors import UsageError
from seqmodel.units import UNITS, make
from seqmodel.units.convert import from_torch, to_torch

KINDS = {"lstm-nopeephole": nn.LSTM, "gru-reset-after": nn.GRU}
# The order in which torch.nn's documentation stacks the gates' weights.
TORCH_GATES = {"lstm-nopeephole": "ifco", "gru-reset-after": "rzn"}

each_kind = pytest.mark.parametrize("kind", list(KINDS))
each_depth = pytest.mark.parametrize("layers", [1, 2])


def torch_module(kind, layers, **options):
    torch.manual_seed(5)
    return KINDS[kind](3, 5, layers, dtype=torch.float64, **options)


def layers_of(unit, layers):
    return unit.units() if layers > 1 else [unit]


def states_for(unit, layers):
    """One initial state twice: as torch.nn takes it, and as the unit does."""
    state_type = type(layers_of(unit, layers)[0].zero_state(2))
    parts = tuple(random_tensor(layers, 2, 5, seed=6 + k) for k in range(len(state_type._fields)))
    ours = tuple(state_type(*tensors) for tensors in zip(*parts, strict=True))
    return parts if len(parts) > 1 else parts[0], ours if layers > 1 else ours[0]


def run_both(module, unit, layers):
    """Output and final state of both, the states as one (layers, B, H) tensor each."""
    x = random_tensor(11, 2, 3)
    theirs_start, ours_start = states_for(unit, layers)
    theirs, theirs_after = module(x, theirs_start)
    ours, ours_after = unit(x, ours_start)
    rows = ours_after if layers > 1 else (ours_after,)
    stacked = [torch.stack(parts) for parts in zip(*rows, strict=True)]
    theirs_after = theirs_after if isinstance(theirs_after, tuple) else (theirs_after,)
    return (ours, *stacked), (theirs, *theirs_after)


def gates_of_gradients(unit):
    """Like unit.gates(), but of the weights' gradients."""
    other = copy.deepcopy(unit)
    with torch.no_grad():
        for ours, theirs in zip(other.parameters(), unit.parameters(), strict=True):
            ours.copy_(theirs.grad)
    return other.gates()


@each_kind
@each_depth
def test_from_torch_equals_torch(kind, layers):
    """Guards against gates in the wrong order, a bias counted twice or lost, z for 1-z."""
    module = torch_module(kind, layers)
    ours, theirs = run_both(module, from_torch(module), layers)
    assert_same(ours, theirs)


@each_kind
@each_depth
def test_to_torch_equals_the_unit(kind, layers):
    """The other direction, from a unit in which every weight matters."""
    unit = random_unit(kind, 3, 5, layers=layers)
    module = to_torch(unit)
    assert type(module) is KINDS[kind]
    ours, theirs = run_both(module, unit, layers)
    assert_same(ours, theirs)


@each_kind
@each_depth
def test_gradients_equal_torchs(kind, layers):
    """Guards against training that differs although the outputs agree."""
    module = torch_module(kind, layers)
    unit = from_torch(module)
    ours, theirs = run_both(module, unit, layers)
    for h, *after in (ours, theirs):
        weighted_sum(h, after).backward()
    for k, layer in enumerate(layers_of(unit, layers)):
        names = (f"{part}_l{k}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        torchs = [getattr(module, name).grad.split(5) for name in names]
        for gate, w, u, b_ih, b_hh in zip(TORCH_GATES[kind], *torchs, strict=True):
            terms = gates_of_gradients(layer)[gate]
            assert_same((terms["W"], terms["U"], terms["b"]), (w, u, b_ih))
            assert_same((terms.get("bU", terms["b"]),), (b_hh,))


@each_kind
@each_depth
def test_round_trip_from_a_unit_gives_its_weights_exactly(kind, layers):
    """Guards against a weight that one direction drops and the other fills in plausibly."""
    unit = random_unit(kind, 3, 5, layers=layers, dtype=torch.float32)
    back = from_torch(to_torch(unit))
    assert back.state_dict().keys() == unit.state_dict().keys()
    for key, weight in unit.state_dict().items():
        assert back.state_dict()[key].dtype == weight.dtype
        assert torch.equal(back.state_dict()[key], weight), key


@each_kind
@each_depth
def test_round_trip_from_torch_gives_its_weights_and_sums_of_biases(kind, layers):
    """Only the sum of torch's two biases matters, except at the GRU's candidate."""
    module = torch_module(kind, layers)
    back = to_torch(from_torch(module))
    for key, weight in module.named_parameters():
        if key.startswith("weight"):
            assert torch.equal(back.get_parameter(key), weight), key
    for k in range(layers):
        ours, theirs = (
            torch.stack([m.get_parameter(f"{b}_l{k}") for b in ("bias_ih", "bias_hh")])
            for m in (back, module)
        )
        assert_same((ours.sum(0),), (theirs.sum(0),))
        if kind == "gru-reset-after":
            assert torch.equal(ours[:, 10:], theirs[:, 10:])


@each_kind
def test_conversion_copies(kind):
    """Guards against shared weights, so that training one changes the other."""
    module = torch_module(kind, 1)
    unit = from_torch(module)
    back = to_torch(unit)
    with torch.no_grad():
        unit.U.zero_()
    assert module.weight_hh_l0.all()
    assert back.weight_hh_l0.all()


@each_kind
def test_dropout_is_converted_too(kind):
    """Guards against a converted stack that trains without its dropout."""
    unit = from_torch(torch_module(kind, 2, dropout=0.25))
    assert unit.dropout.p == 0.25
    assert to_torch(unit).dropout == 0.25


@each_kind
@pytest.mark.parametrize("options", [{"bidirectional": True}, {"bias": False}])
def test_torch_modules_without_a_counterpart_are_refused(kind, options):
    """Guards against silently converting half of a bidirectional module."""
    with pytest.raises(UsageError):
        from_torch(torch_module(kind, 1, **options))


@pytest.mark.parametrize("module", [nn.LSTM(3, 4, proj_size=2), nn.RNN(3, 3), nn.Linear(3, 3)])
def test_other_torch_modules_are_refused(module):
    """Guards against a plain RNN taken for a GRU."""
    with pytest.raises(UsageError):
        from_torch(module)


@pytest.mark.parametrize("name", [name for name in UNITS if name not in KINDS])
def test_units_that_torch_lacks_are_refused(name):
    """Guards against silently dropping peepholes, or moving the reset after the matrix."""
    for layers in (1, 2):
        with pytest.raises(UsageError, match="torch"):
            to_torch(make(name, 3, 4, layers=layers))


@each_kind
@pytest.mark.parametrize(
    "options", [{"activation": "relu"}, {"gate_activation": "hard-sigmoid"}, {"bias": False}]
)
def test_options_that_torch_lacks_are_refused(kind, options):
    """Guards against a relu unit that becomes a tanh one."""
    with pytest.raises(UsageError, match="torch"):
        to_torch(make(kind, 3, 4, **options))
