"""Stacks: layers of one unit, each reading the one below, with dropout between them."""

import pytest
import torch
from drawing import assert_same, random_state, random_tensor, random_unit, weighted_sum


def stack_of(name, backend, layers=3, **options):
    return random_unit(name, 3, 5, layers=layers, backend=backend, **options)


def flat(h, states):
    """The output and every layer's final state, in one list."""
    return [h, *(tensor for state in states for tensor in state)]


@pytest.mark.parametrize("lengths", [None, torch.tensor([6, 0])])
def test_stack_equals_its_layers_run_by_hand(name, backend, lengths):
    """Guards against a layer that reads the stack's input, or another layer's state or weights."""
    stack = stack_of(name, backend)
    x, state = random_tensor(6, 2, 3), random_state(stack, 2)
    h, after = stack(x, state, lengths)
    assert isinstance(after, tuple)
    assert len(after) == 3

    below, finals = x, []
    for unit, start in zip(stack.units(), state, strict=True):
        below, final = unit(below, start, lengths)
        finals.append(final)
    for ours, theirs in zip(flat(h, after), flat(below, finals), strict=True):
        assert torch.equal(ours, theirs)


def test_layers_do_not_share_weights(name, backend):
    """Guards against one layer used three times."""
    stack = stack_of(name, backend)
    assert len({weight.data_ptr() for weight in stack.parameters()}) == 3 * len(
        list(stack.units()[0].parameters())
    )
    sizes = [(unit.input_size, unit.hidden_size) for unit in stack.units()]
    assert sizes == [(3, 5), (5, 5), (5, 5)]


def test_gradients_reach_every_layer(name, backend):
    """Guards against a layer left out of the graph."""
    stack = stack_of(name, backend)
    h, _ = stack(random_tensor(6, 2, 3))
    h.square().sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in stack.parameters())


def test_pieces_and_steps_equal_one_run(name, backend):
    """Guards against passing a layer's state to its neighbour between pieces."""
    stack = stack_of(name, backend)
    x, state = random_tensor(9, 2, 3), random_state(stack, 2)
    whole = flat(*stack(x, state))
    first, carried = stack(x[:4], state)
    rest, carried = stack(x[4:], carried)
    assert_same(flat(torch.cat([first, rest]), carried), whole)
    outputs = []
    for frame in x:
        h, state = stack.step(frame, state)
        outputs.append(h)
    assert_same(flat(torch.stack(outputs), state), whole)


def test_ragged_stack_equals_its_rows_alone(name, backend):
    """Guards against an upper layer that reads on after a row has ended below."""
    stack = stack_of(name, backend)
    x, lengths = random_tensor(7, 3, 3), [7, 1, 4]
    h, after = stack(x, None, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone = flat(*stack(x[:length, row : row + 1]))
        ours = flat(h[:length], after)
        assert_same([tensor[..., row : row + 1, :] for tensor in ours], alone)


def test_state_gates_and_counts_are_those_of_the_layers(name, backend):
    """Guards against a stack that counts or names a layer twice or not at all."""
    stack = stack_of(name, backend)
    units = stack.units()
    assert [type(state) for state in stack.zero_state(2)] == [
        type(unit.zero_state(2)) for unit in units
    ]
    assert stack.parameter_count() == sum(weight.numel() for weight in stack.parameters())
    assert list(stack.gates()) == [
        f"{k}.{gate}" for k, unit in enumerate(units) for gate in unit.gates()
    ]
    for k, unit in enumerate(units):
        for gate, terms in unit.gates().items():
            ours = stack.gates()[f"{k}.{gate}"]
            assert ours["U"] is terms["U"] or ours["U"].data_ptr() == terms["U"].data_ptr()


def test_dropout_of_everything_blinds_all_layers_but_the_first(name, backend):
    """Guards against dropout on the input, after the last layer, on a state, or nowhere."""
    stack = stack_of(name, backend, dropout=1.0).train()
    x = random_tensor(6, 2, 3)
    h, after = stack(x)
    bottom, middle, top = stack.units()
    assert_same(after[0], bottom(x)[1])
    blind = x.new_zeros(6, 2, 5)
    assert_same(after[1], middle(blind)[1])
    assert_same([h, *after[2]], [top(blind)[0], *top(blind)[1]])
    assert h.any()


def test_dropout_is_redrawn_in_training_and_off_in_evaluation(name, backend):
    """Guards against an evaluation that depends on chance, or training without noise."""
    stack = stack_of(name, backend, dropout=0.5)
    plain = stack_of(name, backend)
    x = random_tensor(6, 2, 3)
    torch.manual_seed(0)
    assert not torch.equal(stack.train()(x)[0], stack(x)[0])
    for ours, theirs in zip(flat(*stack.eval()(x)), flat(*plain.train()(x)), strict=True):
        assert torch.equal(ours, theirs)


def test_dropout_keeps_the_mean(name, backend):
    """Kept values must be scaled up, or evaluation sees larger values than training did."""
    stack = stack_of(name, backend, layers=2, dropout=0.5).train()
    x = random_tensor(6, 2, 3)
    torch.manual_seed(4)
    h, _ = stack(x)
    bottom, top = stack.units()
    below, _ = bottom(x)
    torch.manual_seed(4)
    kept = stack.dropout(below)
    assert torch.equal(kept[kept != 0], 2 * below[kept != 0])
    assert torch.equal(h, top(kept)[0])


def test_gradients_of_a_stack_run_in_pieces_equal_one_run(name, backend):
    """Guards against a carried stack state that is detached."""
    stack = stack_of(name, backend, layers=2)
    weights = list(stack.parameters())
    x = random_tensor(6, 2, 3)
    h, after = stack(x)
    whole = torch.autograd.grad(weighted_sum(h, flat(h, after)[1:]), weights)
    first, carried = stack(x[:2])
    rest, carried = stack(x[2:], carried)
    cut = flat(torch.cat([first, rest]), carried)
    assert_same(torch.autograd.grad(weighted_sum(cut[0], cut[1:]), weights), whole)
