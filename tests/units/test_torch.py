"""Units among torch's tools and weights, torch's layers as a backend; zoneout."""

import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import (
    as_torchs,
    assert_agree,
    assert_backends_agree,
    assert_same,
    gradients,
    random_state,
    random_tensor,
    random_unit,
    results,
    weighted_sum,
)
from torch import func, nn
from torch.backends.cudnn import rnn as cudnn_rnn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves

import seqmodel
from seqmodel.errors import UsageError
from seqmodel.units import UNITS, make, module, torch_nn
from seqmodel.units.backends import BACKENDS
from seqmodel.units.convert import from_torch, to_torch

# A unit for each backend: what follows does not depend on the equations.
EACH = [("lstm", "cpu"), ("lstm", "reference"), ("lstm-nopeephole", "torch-nn")]
each = pytest.mark.parametrize(("kind", "runs_on"), EACH)
RAGGED = [7, 2, 5]
GUIDE = Path(__file__).parents[2] / "docs" / "researcher.md"


@each
@pytest.mark.parametrize("lengths", [None, RAGGED])
def test_writing_to_one_result_changes_no_other(kind, runs_on, lengths):
    """Guards against results that share memory, so that the next step starts from another state."""
    unit, x = random_unit(kind, 3, 4, backend=runs_on), random_tensor(7, 3, 3)
    runs = unit.zero_state, lambda _: unit.step(x[0])[1], lambda _: unit(x, None, lengths)[1]
    for run in runs:
        for k in (0, 1):
            state = run(3)
            state[k].detach().fill_(9)
            assert torch.equal(state[1 - k], run(3)[1 - k])
    for run in (lambda: unit(x, None, lengths), lambda: unit.step(x[0])):
        h, state = run()
        h.detach().fill_(9)
        assert torch.equal(state.h, run()[1].h)


@each
def test_in_place_operations_are_right_or_refused(kind, runs_on):
    """Guards against gradients that come out wrong without a word."""
    unit, x = random_unit(kind, 3, 4, backend=runs_on), random_tensor(7, 3, 3)
    for k in range(3):
        for used_before in (True, False):
            results, right = ([h, *state] for h, state in (unit(x), unit(x)))
            if used_before:  # and then overwritten, as a buffer is
                total, expected = weighted_sum(results[0], results[1:]), right
            else:
                expected = [2 * r if j == k else r for j, r in enumerate(right)]
            try:
                with torch.no_grad() if used_before else nullcontext():
                    results[k].mul_(2)
                ours = torch.autograd.grad(
                    total if used_before else weighted_sum(results[0], results[1:]),
                    list(unit.parameters()),
                )
            except RuntimeError as error:
                assert "inplace" in str(error)  # noqa: PT017
            else:
                assert_same(ours, gradients(unit, expected[0], expected[1:]))
    lengths = torch.tensor(RAGGED)
    h, state = unit(x, None, lengths)
    lengths.fill_(1)
    assert_same(gradients(unit, h, state), gradients(unit, *unit(x, None, RAGGED)))


@each
def test_lengths_of_every_kind(kind, runs_on):
    """Guards against lists that are refused, and masks and floats that are taken for lengths."""
    unit, x = random_unit(kind, 3, 4, backend=runs_on), random_tensor(7, 3, 3)
    right = unit(x, None, torch.tensor(RAGGED))[0]
    integers = (torch.uint8, torch.int8, torch.int16, torch.int32)
    arrays = [np.array(RAGGED, dtype) for dtype in ("i4", "u1", "i8")]
    tensors = [torch.tensor(RAGGED, dtype=dtype) for dtype in integers]
    for lengths in (RAGGED, tuple(RAGGED), [torch.tensor(n) for n in RAGGED], *arrays, *tensors):
        assert torch.equal(unit(x, None, lengths)[0], right)
    assert unit(x[:, :0], None, [])[0].shape == (7, 0, 4)
    for wrong in ([7.0, 2.0, 5.0], np.array([7, 2.5, 5]), [True, True, False]):
        with pytest.raises(ValueError, match="lengths must be whole numbers, not"):
            unit(x, None, wrong)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("lengths", "is_sorted"), [([7, 5, 2], True), (RAGGED, False)])
def test_a_packed_sequence_is_read_as_torch_reads_it(lengths, is_sorted, layers):
    """Guards against rows in another order than their states."""
    unit = random_unit("lstm-nopeephole", 3, 4, layers=layers)
    x, start = random_tensor(7, 3, 3), random_state(unit, 3)
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=is_sorted)
    ours, state = unit(packed, start)
    theirs, final = to_torch(unit)(packed, as_torchs(start))
    assert_same([ours.data], [theirs.data])
    for mine, its in zip(ours[1:], theirs[1:], strict=True):
        assert its is mine is None or torch.equal(mine, its)
    assert_same(as_torchs(state), final)
    with pytest.raises(ValueError, match="a PackedSequence without lengths, not Packed"):
        unit(packed, None, lengths)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("runs_on", ["auto", "reference"])
def test_batch_first_is_as_in_torch(layers, runs_on):
    """Guards against rows taken for frames where there are as many of both, and in steps."""
    theirs = torch.nn.GRU(3, 4, layers, batch_first=True, dtype=torch.float64)
    unit = make("gru-reset-after", 3, 4, runs_on, layers=layers, batch_first=True).double()
    converted = from_torch(theirs)
    unit.load_state_dict(converted.state_dict())
    assert converted.batch_first
    assert to_torch(unit).batch_first
    x = random_tensor(5, 5, 3).requires_grad_()
    h, state = unit(x)
    right, final = theirs(x)
    assert_same([h, as_torchs(state)], [right, final])
    ours, its = (torch.autograd.grad(weighted_sum(r, []), x)[0] for r in (h, right))
    assert_same([ours], [its])
    assert_same([unit.step(x[:, 0])[0]], [right[:, 0]])
    packed = pack_padded_sequence(x, torch.tensor([5, 4, 2, 2, 1]), batch_first=True)
    assert_same([unit(packed)[0].data], [theirs(packed)[0].data])
    ragged, _ = unit(x, None, [5, 4, 2, 2, 1])
    assert_same([ragged[2, :2]], [right[2, :2]])
    assert not ragged[2, 2:].any()


def test_one_line_of_a_model_changes():
    """Runs the guide's block: its unit must learn as torch's does, with everything around it."""
    blocks = re.findall("```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    code = next(block for block in blocks if "class Tagger" in block)
    exec(code, there := {"torch": torch, "seqmodel": seqmodel})
    tagger = there["Tagger"]()
    assert tagger(torch.ones(3, 20, 88)).shape == (3, 20, 5)
    tagger(torch.ones(3, 20, 88)).sum().backward()
    assert all(weight.grad.any() for weight in tagger.parameters())


def test_states_as_torch_has_them():
    """Guards against a stack that gives its first layer the h of all layers, and its second c."""
    unit, stack = (random_unit("lstm", 3, 4, layers=layers) for layers in (1, 2))
    x, state = random_tensor(7, 3, 3), random_state(unit, 3)
    for given in (tuple(state), list(state)):
        assert torch.equal(unit(x, given)[0], unit(x, state)[0])
    of_all_layers = torch.zeros(2, 3, 4).double()
    for layer, wrong in ((stack, (of_all_layers, of_all_layers)), (unit, of_all_layers)):
        with pytest.raises(ValueError, match=r"state must be a tuple of h, c, each \(3, 4\), not"):
            layer(x, wrong)
    with pytest.raises(ValueError, match="x must be a tensor, or a PackedSequence w"):
        unit(x.numpy())


@each
def test_autocast_leaves_units_in_the_type_of_their_weights(kind, runs_on):
    """Guards against bfloat16 states, which the next call refuses, and against refusing x."""
    unit = random_unit(kind, 3, 4, backend=runs_on, dtype=torch.float32)
    x = random_tensor(7, 3, 3).bfloat16()
    right, after = unit(x.float())
    with torch.autocast("cpu", torch.bfloat16):
        h, state = unit(x)
        again, _ = unit(x, type(state)(*(s.bfloat16() for s in state)))
        with pytest.raises(ValueError, match="state must be a tuple of h, c"):
            unit(x, torch.zeros(2, 3, 4))
    rounded = type(after)(*(s.bfloat16().float() for s in after))
    for ours, theirs in ((h, right), (state.c, after.c), (again, unit(x.float(), rounded)[0])):
        assert torch.equal(ours, theirs)
    assert_same(gradients(unit, h, state), gradients(unit, right, after))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own jvp
@pytest.mark.parametrize("layers", [1, 2])
def test_functional_transforms(layers):
    """Guards against auto taking a backend whose operations a transform cannot see."""
    unit = random_unit("lstm", 3, 4, layers=layers)
    x, several = random_tensor(7, 3, 3), random_tensor(5, 7, 3, 3)
    weights = dict(unit.named_parameters())

    def loss(weights, x):
        return func.functional_call(unit, weights, (x, None, RAGGED))[0].square().sum()

    def right(x):
        return torch.autograd.grad(loss(weights, x), list(weights.values()))

    assert_same(func.grad(loss)(weights, x).values(), right(x))
    found = func.vmap(func.grad(loss), in_dims=(None, 0))(weights, several)
    assert_same(found.values(), map(torch.stack, zip(*map(right, several), strict=True)))
    assert_same(func.vmap(lambda x: unit(x)[0])(several), [unit(x)[0] for x in several])
    _, slope = func.jvp(lambda x: loss(weights, x), (x,), (several[0],))
    inputs = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(weights, inputs), inputs)
    assert_same([slope], [(gradient * several[0]).sum()])
    for one in unit.modules():
        one.backend = "cpu"
    with pytest.raises(UsageError, match="cpu backend cannot run lstm here: torch"):
        func.grad(loss)(weights, x)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo
def test_torch_compile_and_export():
    """Guards against a graph of another unit, states of a type of their own, unclear errors."""
    unit, x = random_unit("lstm", 3, 4), random_tensor(4, 3, 3)
    h, state = unit(x)
    unit.backend = "reference"
    found, after = torch.compile(unit, backend="eager", fullgraph=True)(x)
    assert type(after) is type(state)
    assert_same([found, *after], [h, *state])
    assert_same(gradients(unit, found, after), gradients(unit, h, state))
    unit.backend = "auto"
    exported = torch.export.export(unit, (x,)).module()
    assert_same([exported(x)[0]], [h])
    torch.compiler.reset()
    for lengths in (None, torch.tensor([4, 1, 0])):  # the compiled loops run between graphs
        found, after = torch.compile(unit, backend="eager")(x, None, lengths)
        right = unit(x, None, lengths)
        assert_same(gradients(unit, found, after), gradients(unit, *right))
    torch.compiler.reset()
    with pytest.raises(Exception, match="not part of a graph: leave out fullgraph, or use"):
        torch.compile(unit, backend="eager", fullgraph=True)(x)


KINDS = {"lstm-nopeephole": nn.LSTM, "gru-reset-after": nn.GRU}
TORCHS = ("tanh", *KINDS)
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5}
LENGTHS = None, torch.tensor([20, 3, 0, 7]), torch.tensor([5, 1, 2, 5])


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


def assert_the_same_computation(unit, module):
    x, start = random_tensor(11, 2, 3), random_state(unit, 2)
    (ours, after), theirs = unit(x, start), module(x, as_torchs(start))
    assert_same(tree_leaves((ours, as_torchs(after))), tree_leaves(theirs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
def test_both_directions_keep_what_is_computed(kind, layers):
    """Guards against gates in the wrong order, a bias counted twice or lost, z for 1 - z."""
    torch.manual_seed(5)
    dropout = 0.0 if layers == 1 else 0.25
    module = KINDS[kind](3, 5, layers, dtype=torch.float64, dropout=dropout)
    unit, other = from_torch(module), random_unit(kind, 3, 5, layers=layers)
    assert layers == 1 or unit.dropout.p == to_torch(unit).dropout == 0.25
    back = to_torch(other)
    assert type(back) is KINDS[kind]
    assert_the_same_computation(unit.eval(), module.eval())
    assert_the_same_computation(other, back)
    with torch.no_grad():  # both directions copy
        for weight in (*unit.parameters(), *other.parameters()):
            weight.zero_()
    assert module.weight_hh_l0.all()
    assert back.weight_hh_l0.all()


@pytest.mark.parametrize(
    ("convert", "unit"),
    [
        *((from_torch, kind(3, 4, **{option: not default})) for kind in (nn.LSTM, nn.GRU)
          for option, default in (("bidirectional", False), ("bias", True))),
        (from_torch, nn.LSTM(3, 4, proj_size=2)), (from_torch, nn.RNN(3, 3)),
        (from_torch, nn.Linear(3, 3)),
        *((to_torch, make(known, 3, 4, layers=2)) for known in UNITS if known not in KINDS),
        *((to_torch, make(kind, 3, 4, **options)) for kind in KINDS for options in (
            {"activation": "relu"}, {"gate_activation": "hard-sigmoid"}, {"bias": False})),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused(convert, unit):
    """Guards against half of a bidirectional module, dropped peepholes, and relu that is tanh."""
    with pytest.raises(UsageError, match="torch"):
        convert(unit)


# A state that is read in its step, one that delays, means, and a product of a product.
MEMORY = """
c = s(Wf x + Uf h' + bf) (.) c' + norm(W x + U (h' (.) m'))
m = c'
h = phi(V (.) c) + 0.1 * h'
"""


def stepwise(unit, x, state, share):
    """h and the last state, from single steps of the unit without zoneout."""
    outputs = []
    for t, frame in enumerate(x):
        _, new = unit.step(frame, state)
        kept = [share(t, k) for k in range(len(state))]
        state = type(state)(
            *(k * old + (1 - k) * fresh for k, old, fresh in zip(kept, state, new, strict=True))
        )
        outputs.append(state[0])
    return torch.stack(outputs), state


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("known", ["lstm", MEMORY], ids=["lstm", "memory"])
def test_states_keep_their_values_as_krueger_et_al_have_it(known, training, monkeypatch):
    """States swapped, a mask of another step, equations that read the mixed value of this step."""
    drawn, draw = [], module.dropout_factors
    monkeypatch.setattr(module, "dropout_factors", lambda *a: drawn.append(draw(*a)) or drawn[-1])
    unit = random_unit(known, 3, 7, zoneout=0.3).train(training)
    plain = random_unit(known, 3, 7, backend="reference")
    x, start = random_tensor(9, 4, 3), random_state(unit, 4)
    found = unit(x, start)
    right = stepwise(plain, x, start, lambda t, k: (drawn[0][k, t] == 0) * 1.0 if training else 0.3)
    assert_same([found[0], *found[1]], [right[0], *right[1]])
    slopes = [
        torch.autograd.grad(weighted_sum(*run), [*of.parameters()])
        for run, of in ((found, unit), (right, plain))
    ]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    assert len(drawn) == training
    if training:
        assert (drawn[0] == 0).double().mean() == pytest.approx(0.3, abs=0.07)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("known", ["lstm-layer-norm", MEMORY], ids=["normalised", "memory"])
def test_compiled_zoneout_is_the_specification(known):
    """Ragged rows, several layers, float32, and second derivatives."""
    unit = random_unit(known, 3, 5, zoneout=0.4, layers=2)
    x, lengths = random_tensor(11, 5, 3), torch.tensor([11, 0, 4, 9, 1])
    agreed = []
    for backend in ("cpu", "reference"):
        for layer in unit.units():
            layer.backend = backend
        torch.manual_seed(1)
        agreed.append(results(unit, x, lengths=lengths))
    assert_agree(*agreed, 1e-9)
    single = random_unit(known, 3, 5, zoneout=0.4)
    start, second = random_state(single, 5), []
    for single.backend in ("cpu", "reference"):
        torch.manual_seed(1)
        given = [part.clone().requires_grad_() for part in (x, *start)]
        total = weighted_sum(*single(given[0], tuple(given[1:]), lengths))
        slopes = torch.autograd.grad(total, given, create_graph=True)
        squares = sum(slope.square().sum() for slope in slopes)
        second.append(torch.autograd.grad(squares, [*given, *single.parameters()]))
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert_backends_agree(random_unit(known, 3, 20, zoneout=0.4).eval(), x, lengths=lengths)


def test_shares_of_zoneout_and_dropout_outside_of_their_ranges_are_refused():
    with pytest.raises(UsageError, match="zoneout must be at least 0 and below 1, not 1"):
        make("gru", 3, 4, zoneout=1.0)
    for share in (50, -0.1):
        with pytest.raises(UsageError, match=f"dropout must be from 0 to 1, not {share}"):
            make("gru", 3, 4, layers=2, dropout=share)
