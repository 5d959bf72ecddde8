"""Pieces, steps and ragged batches: results do not depend on how frames and rows are grouped.

"The same" means to within a few roundings, not bitwise; `drawing.SAME` says why.
"""

import pytest
import torch
from drawing import SAME, assert_same, random_state, random_tensor, random_unit, weighted_sum
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmodel.units import make

DTYPES = list(SAME)
SOME = settings(max_examples=15, deadline=None, derandomize=True)


def in_pieces(unit, x, state, cuts):
    """Run over x, cut before each frame in `cuts`, carrying the state over."""
    outputs = []
    for piece in x.tensor_split(sorted(cuts)):
        h, state = unit(piece, state)
        outputs.append(h)
    return torch.cat(outputs), state


def gradients(unit, x, h, after):
    """The gradients of x and every weight, for a weighted sum of all outputs and final states."""
    return torch.autograd.grad(weighted_sum(h, after), [x, *unit.parameters()])


@SOME
@given(cuts=st.sets(st.integers(1, 19)))
def test_pieces_with_carried_state_equal_one_run(name, backend, cuts):
    """Guards against a state that loses its cell between pieces, or restarts from zero."""
    for dtype in DTYPES:
        unit = random_unit(name, 3, 5, dtype=dtype, backend=backend)
        x = random_tensor(20, 2, 3, dtype=dtype)
        state = random_state(unit, 2)
        with torch.no_grad():
            h, after = in_pieces(unit, x, state, cuts)
            whole, final = unit(x, state)
        assert_same((h, *after), (whole, *final))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_flow_through_a_carried_state(name, backend, dtype):
    """Guards against a detached state, so that a cut silently truncates the gradient."""
    unit = random_unit(name, 3, 5, dtype=dtype, backend=backend)
    x = random_tensor(12, 2, 3, dtype=dtype).requires_grad_()
    state = random_state(unit, 2)
    ours = gradients(unit, x, *in_pieces(unit, x, state, [1, 7]))
    assert_same(ours, gradients(unit, x, *unit(x, state)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_step_by_step_equals_one_run(name, backend, dtype):
    """Guards against sampling, which runs step by step, drifting from training."""
    hidden = 33
    unit = random_unit(name, 3, hidden, dtype=dtype, backend=backend)
    x = random_tensor(17, 4, 3, dtype=dtype)
    state = None
    outputs = []
    for frame in x:
        h, state = unit.step(frame, state)
        assert h.shape == (4, hidden)
        assert torch.equal(h, state.h)
        outputs.append(h)
    whole, final = unit(x)
    assert_same((torch.stack(outputs), *state), (whole, *final))


@pytest.mark.parametrize("dtype", DTYPES)
def test_padded_batch_equals_its_rows_alone(name, backend, dtype):
    """Guards against off-by-one lengths, and padding that leaks into a final state or gradient."""
    frames, lengths = 9, torch.tensor([9, 0, 4, 1, 8])
    unit = random_unit(name, 3, 5, dtype=dtype, backend=backend)
    x = random_tensor(frames, 5, 3, dtype=dtype)
    for row, length in enumerate(lengths):
        x[length:, row] = 1e4 * random_tensor(frames - length, 3, dtype=dtype, seed=row)
    x.requires_grad_()
    start = [tensor.requires_grad_() for tensor in random_state(unit, 5)]
    wanted = [x, *start, *unit.parameters()]
    state = type(unit.zero_state(5))(*start)

    h, after = unit(x, state, lengths)
    ours = torch.autograd.grad(weighted_sum(h, after), wanted)

    rows = []
    for row, length in enumerate(lengths):
        alone = type(state)(*(tensor[row : row + 1] for tensor in start))
        out, final = torch.zeros(0, 1, 5, dtype=dtype), alone
        if length:
            out, final = unit(x[:length, row : row + 1], alone)
        rows.append((torch.cat([out, out.new_zeros(frames - length, 1, 5)]), *final))
    expected_h, *finals = (torch.cat(parts, dim=-2) for parts in zip(*rows, strict=True))
    expected = torch.autograd.grad(weighted_sum(expected_h, finals), wanted)

    assert_same((h, *after), (expected_h, *finals))
    assert_same(ours, expected)
    for row, length in enumerate(lengths):
        assert not h[length:, row].any(), "the output is zero behind a row's end"
        assert not ours[0][length:, row].any(), "no gradient reaches the padding"


def test_padding_that_would_overflow_has_no_effect(backend):
    """Guards against padding multiplied by zero: 2**200 is inf, and inf * 0 = nan reaches U."""
    T, H = 200, 3
    unit = make("tanh", H, H, backend=backend, activation="relu", bias=False)
    with torch.no_grad():
        unit.W.copy_(torch.eye(H))
        unit.U.copy_(2 * torch.eye(H))
    x = torch.ones(T, 4, H)
    lengths = torch.tensor([10, 0, 1, 3])
    x[11:, 0], x[2, 2] = float("inf"), float("nan")
    x[:, 1] = float("nan")
    x.requires_grad_()
    h, (final,) = unit(x, None, lengths)
    final.sum().backward()
    powers = 2.0 ** torch.arange(1, 11) - 1  # h_t = 2 h_(t-1) + 1
    assert torch.equal(h[:10, 0], powers.unsqueeze(1).expand(10, H))
    assert not h[10:, 0].any()
    assert not h[:, 1].any()
    assert torch.equal(final[:, 0], torch.tensor([1023.0, 0.0, 1.0, 7.0]))
    # dU = sum over t of 2**(T - 1 - t) h_(t-1), each row and column alike.
    expected = sum(2.0 ** (9 - t) * powers[t - 1] for t in range(1, 10)) + (2 * 1 + 3)
    assert torch.equal(unit.U.grad, torch.full((H, H), float(expected)))
    gradient = torch.zeros(T, 4, H)
    for row, length in enumerate(lengths.tolist()):
        gradient[:length, row] = 2.0 ** torch.arange(length - 1, -1, -1).unsqueeze(1)
    assert torch.equal(x.grad, gradient)


@pytest.mark.parametrize(("activation", "value"), [("tanh", float("nan")), ("relu", float("inf"))])
def test_padding_values_do_not_matter(name, backend, activation, value):
    """Guards against nan or inf in the padding reaching a final state, a weight or another row."""
    unit = random_unit(name, 3, 5, backend=backend, activation=activation)
    lengths, start = torch.tensor([4, 0, 7, 1]), random_state(unit, 4)
    results = []
    for padding in (0.0, value):
        x = random_tensor(7, 4, 3)
        for row, length in enumerate(lengths):
            x[length:, row] = padding
        x.requires_grad_()
        h, after = unit(x, start, lengths)
        results.append([h, *after, *gradients(unit, x, h, after)])
    for ours, plain in zip(*results, strict=True):
        assert torch.equal(ours, plain)
        assert torch.isfinite(ours).all()


@pytest.mark.parametrize("lengths", [None, torch.zeros(0, dtype=torch.int64)])
def test_an_empty_batch(name, backend, lengths):
    """Guards against uninitialised gradients."""
    unit = random_unit(name, 3, 5, backend=backend)
    x = torch.zeros(6, 0, 3, dtype=torch.float64).requires_grad_()
    h, after = unit(x, None, lengths)
    assert h.shape == (6, 0, 5)
    assert all(state.shape == (0, 5) for state in after)
    for found, leaf in zip(gradients(unit, x, h, after), [x, *unit.parameters()], strict=True):
        assert torch.equal(found, torch.zeros_like(leaf))
    of_data, _ = unit(x.detach(), None, lengths)  # without a gradient of its own
    for weight, found in zip(
        unit.parameters(), torch.autograd.grad(of_data.sum(), unit.parameters()), strict=True
    ):
        assert torch.equal(found, torch.zeros_like(weight))


def test_a_batch_of_only_padding(name, backend):
    """Packed sequences need a frame; without one, gradients are zero and states unchanged."""
    unit = random_unit(name, 3, 5, backend=backend)
    x, start = random_tensor(6, 2, 3).requires_grad_(), random_state(unit, 2)
    h, after = unit(x, start, torch.tensor([0, 0]))
    assert not h.any()
    assert all(torch.equal(final, first) for final, first in zip(after, start, strict=True))
    assert not any(gradient.any() for gradient in gradients(unit, x, h, after))


@SOME
@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=4),
    window=st.integers(1, 12),
)
def test_windows_over_a_ragged_batch_equal_one_run(name, backend, lengths, window):
    """A row that has ended in an earlier window must keep its state while others continue."""
    unit = random_unit(name, 2, 3, backend=backend)
    rows, ends = len(lengths), torch.tensor(lengths)
    x, state = random_tensor(11, rows, 2), random_state(unit, rows)
    with torch.no_grad():
        whole, final = unit(x, state, ends)
        outputs = []
        for begin in range(0, 11, window):
            piece = x[begin : begin + window]
            h, state = unit(piece, state, (ends - begin).clamp(0, len(piece)))
            outputs.append(h)
    assert_same((torch.cat(outputs), *state), (whole, *final))


def test_full_lengths_change_nothing(name, backend):
    """Guards against a path for lengths that computes something else than the path without."""
    unit = random_unit(name, 3, 4, backend=backend)
    x = random_tensor(6, 2, 3)
    for dtype in (torch.int64, torch.int32):
        h, after = unit(x, None, torch.tensor([6, 6], dtype=dtype))
        whole, final = unit(x)
        for ours, theirs in zip((h, *after), (whole, *final), strict=True):
            assert torch.equal(ours, theirs)


def test_no_state_is_the_zero_state(name, backend):
    """Guards against a non-zero initial state, or one left over from the previous run."""
    unit = random_unit(name, 3, 4, backend=backend)
    x = random_tensor(6, 2, 3)
    unit(x, random_state(unit, 2))
    h, after = unit(x)
    whole, final = unit(x, unit.zero_state(2))
    for ours, theirs in zip((h, *after), (whole, *final), strict=True):
        assert torch.equal(ours, theirs)


def test_strided_input_equals_contiguous_input(name, backend):
    """Guards against a kernel that takes any memory for a contiguous (T, B, I)."""
    unit = random_unit(name, 3, 4, backend=backend)
    x = random_tensor(2, 6, 6)[:, :, ::2].transpose(0, 1)
    state = type(unit.zero_state(2))(*(t[:1].expand(2, 4) for t in random_state(unit, 2)))
    assert not x.is_contiguous()
    h, after = unit(x, state)
    whole, final = unit(x.contiguous(), type(state)(*(t.contiguous() for t in state)))
    assert_same((h, *after), (whole, *final))


def test_a_run_does_not_modify_its_input_or_earlier_runs(name, backend):
    """Guards against in-place work on what the caller or an earlier backward pass needs."""
    unit = random_unit(name, 3, 4, backend=backend)
    x, other = random_tensor(6, 2, 3), random_tensor(6, 2, 3, seed=9)
    state = random_state(unit, 2)
    kept = [tensor.clone() for tensor in (x, *state)]
    expected = torch.autograd.grad(weighted_sum(*unit(x, state)), list(unit.parameters()))
    first = weighted_sum(*unit(x, state))
    weighted_sum(*unit(other, state))
    ours = torch.autograd.grad(first, list(unit.parameters()))
    for a, b in zip((x, *state, *ours), (*kept, *expected), strict=True):
        assert torch.equal(a, b)


def graph_nodes(tensor):
    """Every node of the autograd graph behind a tensor."""
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions)
    return seen


def test_backward_is_not_quadratic_in_the_frames(name, backend):
    """Guards against x[t] at each step, whose backward fills a tensor of the full length."""
    unit = random_unit(name, 3, 4, backend=backend)
    x = random_tensor(24, 2, 3).requires_grad_()

    def counts(frames):
        h, after = unit(x[:frames], None, torch.tensor([frames, 1]))
        nodes = graph_nodes(weighted_sum(h, after))
        # Rows are taken from a single frame, with index_select and index_copy.
        whole = ("Select", "Slice", "IndexBackward", "IndexPut", "Narrow", "Gather", "Split")
        return len(nodes), sum(node.name().startswith(whole) for node in nodes)

    (n6, whole6), (n12, whole12), (n24, whole24) = counts(6), counts(12), counts(24)
    assert n24 - n12 == 2 * (n12 - n6), "the graph grows in proportion to the frames"
    assert whole6 == whole12 == whole24
