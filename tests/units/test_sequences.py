"""Pieces, steps, batches, stacks: results are the same however grouped; which backend runs.

"The same" means to within a few roundings, not bitwise; `drawing.SAME` says why.
"""

from itertools import product

import pytest
import torch
from drawing import (
    PAIRS,
    SAME,
    assert_same,
    gradients,
    random_state,
    random_tensor,
    random_unit,
    weighted_sum,
)
from torch.utils._pytree import tree_leaves, tree_map

from seqmodel.errors import UsageError
from seqmodel.units import UNITS, unit_spec
from seqmodel.units.backends import BACKENDS, backend_for, choose_device, why
from seqmodel.units.cpu import recurrence
from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS, Case

DOUBLE, FLOAT = SAME
UNEQUAL = torch.tensor([12, 0, 4, 5])


def unit_of(pair, layers=1, **options):
    known, backend = pair
    return random_unit(known, 3, 5, layers=layers, backend=backend, **options)


def flat(h, state):
    """The output and every final state, in one list."""
    return tree_leaves((h, state))


@pytest.mark.parametrize(
    ("layers", "dtype", "lengths"),
    [(1, DOUBLE, None), (1, FLOAT, UNEQUAL), (3, FLOAT, None), (3, DOUBLE, UNEQUAL)],
)
def test_pieces_with_carried_state_equal_one_run(pair, lengths, dtype, layers):
    """Guards against a state that is lost, detached, or goes on when its row has ended."""
    unit = unit_of(pair, layers, dtype=dtype)
    x, start = random_tensor(12, 4, 3, dtype=dtype).requires_grad_(), random_state(unit, 4)
    whole = unit(x, start, lengths)
    right = gradients(unit, *whole, x)
    if lengths is None:  # step by step, as sampling runs
        outputs, state = [], start
        for frame in x:
            h, state = unit.step(frame, state)
            assert torch.equal(h, (state if layers == 1 else state[-1]).h)
            outputs.append(h)
        assert_same(flat(torch.stack(outputs), state), flat(*whole))
    for cuts in ([1], [4, 5, 11], range(1, 12)):
        outputs, state, begin = [], start, 0
        for piece in x.tensor_split(list(cuts)):
            left = None if lengths is None else (lengths - begin).clamp(0, len(piece))
            h, state = unit(piece, state, left)
            outputs.append(h)
            begin += len(piece)
        found = torch.cat(outputs), state
        assert_same(flat(*found), flat(*whole))
        assert_same(gradients(unit, *found, x), right)


KINDS = ("data", 3), ("roll", 1), ("roll", 3), ("input with gradient", 1)
"""Inputs of a padded batch, and layers; only compiled code reads rolls otherwise than data."""
OWN = "own_modules:LayerNormLSTM", "auto"
"""A unit that is a module of the user's."""


@pytest.mark.parametrize(
    ("pair", "kind", "layers", "wide"),
    [
        (pair, *kind, (10, 1)[(j + k) % 2])  # blocks of two steps, or of one
        for (j, pair), (k, kind) in product(enumerate([*PAIRS, OWN]), enumerate(KINDS))
        if pair[1] == "cpu" or kind[0] != "roll"
    ],
)
def test_padded_batch_equals_its_rows_alone(pair, kind, layers, wide, monkeypatch):
    """Values, final states and every gradient; nothing beyond a row's length has any effect."""
    monkeypatch.setattr(recurrence, "ROWS", wide)
    lengths = [9, 0, 4, 1, 8]
    unit, x = unit_of(pair, layers), random_tensor(9, 5, 3)
    for row, length in enumerate(lengths):
        x[length:, row] = (float("nan"), float("inf"), 1e4)[row % 3]
    x = (x > 1.5).to(x) if kind == "roll" else x.requires_grad_(kind == "input with gradient")
    state = tree_map(lambda t: t.requires_grad_(), random_state(unit, 5))
    leaves = [*tree_leaves(state), *([x] if x.requires_grad else [])]
    h, after = unit(x, state, torch.tensor(lengths))
    ours = gradients(unit, h, after, *leaves)

    rows = []
    for row, length in enumerate(lengths):
        alone = tree_map(lambda t, row=row: t[row : row + 1], state)
        out = torch.zeros(0, 1, 5, dtype=x.dtype)
        if length:
            out, alone = unit(x[:length, row : row + 1], alone)
        rows.append([torch.cat([out, out.new_zeros(9 - length, 1, 5)]), *tree_leaves(alone)])
    expected_h, *finals = (torch.cat(parts, dim=-2) for parts in zip(*rows, strict=True))
    assert_same(flat(h, after), [expected_h, *finals])
    assert_same(ours, gradients(unit, expected_h, finals, *leaves))
    for row, length in enumerate(lengths):
        assert not h[length:, row].any(), "the output is zero behind a row's end"
        if x.requires_grad:
            assert not ours[len(leaves) - 1][length:, row].any(), "no gradient reaches the padding"


@pytest.mark.parametrize(
    "text",
    [
        "h = tanh(W x) / W2 x",
        "h = tanh(W x + U (W2 x / W3 x))",
        "h = (W x + U h') / (h' + c')\nc = 2",
    ],
)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.usefixtures("summed")
def test_rows_that_have_ended_divide_nothing_by_nothing(text, backend):
    """A padded row's 0 / 0 used to reach the gradients of all weights."""
    unit = unit_of((text, backend))
    h, _ = unit(random_tensor(6, 3, 3), random_state(unit, 3), torch.tensor([6, 2, 0]))
    h.sum().backward()
    for weight in unit.parameters():
        assert torch.isfinite(weight.grad).all()


@pytest.mark.parametrize(
    ("rows", "lengths"), [(0, None), (0, []), (2, [0, 0])], ids=["no rows", "none", "padding"]
)
def test_a_batch_without_frames(pair, rows, lengths):
    """Guards against uninitialised gradients; packed sequences need a frame."""
    unit = unit_of(pair)
    x, start = random_tensor(6, rows, 3).requires_grad_(), random_state(unit, rows)
    for given in (x, x.detach()):  # without a gradient of its own
        h, after = unit(given, start, lengths)
        assert h.shape == (6, rows, 5)
        assert not h.any()
        assert all(torch.equal(final, first) for final, first in zip(after, start, strict=True))
        others = [x] if given is x else []
        assert not any(found.any() for found in gradients(unit, h, after, *others))


def test_what_changes_nothing(pair):
    """Full lengths, the zero state, memory that is not contiguous, and earlier runs."""
    unit = unit_of(pair)
    x = random_tensor(2, 6, 6)[:, :, ::2].transpose(0, 1)
    start = tree_map(lambda t: t[:1].expand(2, 5), random_state(unit, 2))
    kept = [tensor.clone() for tensor in (x, *start)]
    whole = unit(x, start)
    expected = gradients(unit, *unit(x, start))
    again = unit(x.contiguous(), tree_map(torch.Tensor.contiguous, start), torch.tensor([6, 6]))
    assert_same(flat(*again), flat(*whole))
    for ours, theirs in zip(flat(*unit(x)), flat(*unit(x, unit.zero_state(2))), strict=True):
        assert torch.equal(ours, theirs)
    found = gradients(unit, *whole)
    for ours, theirs in zip((x, *start, *found), (*kept, *expected), strict=True):
        assert torch.equal(ours, theirs)


def test_gradients_only_where_asked_and_twice(pair):
    """Guards against assigning gradients to the wrong weight when some are frozen."""
    unit, x = unit_of(pair), random_tensor(5, 2, 3).requires_grad_()
    weights = dict(unit.named_parameters())
    h, after = unit(x)
    whole = dict(zip(("x", *weights), gradients(unit, h, after, x), strict=True))
    for frozen in ("W", "U"):
        weights[frozen].requires_grad_(False)
        asked = {"x": x, **{key: w for key, w in weights.items() if w.requires_grad}}
        total = weighted_sum(*unit(x))
        for _ in range(2):
            found = torch.autograd.grad(total, [*asked.values()], retain_graph=True)
            assert_same(found, [whole[key] for key in asked])
        weights[frozen].requires_grad_(True)
    (of_one_step,) = torch.autograd.grad(unit(x)[0][2].sum(), x)
    assert of_one_step[2].all()
    assert not of_one_step[3:].any()
    with torch.no_grad():
        assert not unit(x)[0].requires_grad


def test_dropout_keeps_the_mean_is_redrawn_and_off_in_evaluation():
    """Guards against an evaluation that depends on chance, or sees other values than training."""
    stack, plain = (random_unit("gru", 3, 5, layers=2, dropout=p) for p in (0.5, 0.0))
    (bottom, top), x = stack.units(), random_tensor(6, 2, 3)
    torch.manual_seed(4)
    h, _ = stack.train()(x)
    torch.manual_seed(4)
    kept, below = stack.dropout(bottom(x)[0]), bottom(x)[0]
    assert torch.equal(kept[kept != 0], 2 * below[kept != 0])
    assert torch.equal(h, top(kept)[0])
    assert not torch.equal(stack(x)[0], h)
    for ours, theirs in zip(flat(*stack.eval()(x)), flat(*plain.train()(x)), strict=True):
        assert torch.equal(ours, theirs)


CPU, CUDA, META = (torch.device(kind) for kind in ("cpu", "cuda", "meta"))
TORCHS = ("tanh", "lstm-nopeephole", "gru-reset-after")
"""The units that torch.nn computes."""
LARGE = {"H": 2048, "B": 256}


def case(name="lstm-nopeephole", *, dtype=torch.float32, device=CPU, B=16, I=88, H=36, **options):  # noqa: E741
    return Case(unit_spec(name), dtype, device, B, I, H, **options)


def test_torchs_layers_run_what_they_can_compute():
    """Guards against dropped peepholes, or an activation other than the requested one."""
    for name, s, phi, device in product(UNITS, GATE_ACTIVATIONS, ACTIVATIONS, (CPU, CUDA)):
        there = name in TORCHS and phi == "tanh" and s == "sigmoid"
        there = there or (name == "tanh" and phi in ("tanh", "relu"))
        asked = case(name, device=device, gate_activation=s, activation=phi)
        assert (BACKENDS["torch-nn"].unsupported_reason(asked) is None) == there, asked


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (case("gru-reset-after"), "cpu"),
        (case("gru-reset-after", device=CUDA), "torch-nn"),
        (case("tanh", device=CUDA, activation="relu"), "torch-nn"),
        (case("tanh", device=CUDA, activation="sigmoid"), "reference"),
        (case("gru", device=CUDA), "reference"),
        (case("gru-reset-after", dtype=torch.bfloat16), "reference"),
        (case("gru-reset-after", device=META), "reference"),
    ],
)
def test_auto_takes_the_first_backend_that_can_and_says_why(wanted, expected):
    """Guards against taking a slower backend than necessary, or giving another's reason."""
    assert backend_for("auto", wanted).name == expected
    name, reason = why(wanted)
    assert name == expected
    before = list(BACKENDS)[: list(BACKENDS).index(expected)]
    assert reason.count("not ") >= len(before)
    assert all(
        f"not {other}: {BACKENDS[other].unsupported_reason(wanted)}" in reason for other in before
    )


def test_a_missing_device_is_a_one_line_error(monkeypatch):
    """Guards against a traceback from inside torch."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"^--device cuda: this torch .* finds no GPU; [^\n]*$"):
        choose_device("cuda", case())
    with pytest.raises(UsageError, match="no device 'gpu'; choose one of auto, cpu, cuda"):
        choose_device("gpu", case())
    assert choose_device("auto", case(**LARGE)) == CPU
    assert choose_device("cpu", case()) == CPU


@pytest.mark.parametrize(
    ("wanted", "option", "backend", "expected"),
    [
        # 7 us per step; launching it takes a GPU about 40.
        *((case(name, H=36, B=16), "auto", "auto", CPU) for name in TORCHS),
        *((case(name, H=46, B=1), "auto", "auto", CPU) for name in TORCHS),
        *((case(name, H=1024, B=128), "auto", "auto", CUDA) for name in TORCHS),
        *((case(name, H=2048, B=32), "auto", "auto", CUDA) for name in TORCHS),
        # The specification would be loops of small kernels on a GPU.
        *((case(name, **LARGE), "auto", "auto", CPU) for name in UNITS if name not in TORCHS),
        *((case(name, **LARGE), "cuda", "auto", CUDA) for name in UNITS if name not in TORCHS),
        (case("tanh", activation="sigmoid", **LARGE), "auto", "auto", CPU),
        (case(**LARGE), "auto", "reference", CPU),
        (case(**LARGE), "auto", "cpu", CPU),
        (case(**LARGE), "auto", "torch-nn", CUDA),
    ],
)
def test_auto_takes_a_gpu_where_the_backend_runs_and_is_faster(
    wanted, option, backend, expected, monkeypatch
):
    """Guards against a GPU that waits for launches, and a device that the backend cannot use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device(option, wanted, backend) == expected
    with pytest.raises(UsageError, match="the cpu backend cannot run"):
        choose_device("cuda", wanted, "cpu")
