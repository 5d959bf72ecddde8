"""One update: its sums can be added up by processes, and it depends on its arguments alone."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch

from seqmodel.data import batches
from seqmodel.data.batches import Batch
from seqmodel.training.processes import Group
from seqmodel.training.state import TrainingState
from seqmodel.training.update import step, update, update_seed, window_gradient

CPU = torch.device("cpu")


@pytest.fixture
def begin(make_config, dataset):
    """A function that begins a run of a gru with these options."""
    return lambda **options: TrainingState(
        make_config(unit="gru", **options), dataset["train"], CPU
    )


@pytest.fixture
def state(begin):
    return begin(end=True, dropout=0.3, average=0.9, weight_noise=0.075)


@pytest.fixture
def batch(dataset):
    """All pieces of train, of 1 to 30 frames."""
    return batches.load(dataset["train"], np.arange(11))


def frames(batch):
    return int(batch.lengths.sum())


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def half(batch, rows):
    """What another process would hold: some rows, cut to the longest of them."""
    lengths = batch.lengths[rows]
    return Batch(np.ascontiguousarray(batch.frames[: lengths.max(), rows]), lengths)


@pytest.mark.parametrize("end", [False, True])
def test_processes_add_up_to_the_batch(begin, dataset, batch, end):
    """Guards against a mean of local means, in which the frames of a short batch weigh more."""
    state = begin(end=end)
    model = state.model
    whole, _ = window_gradient(state, batch, 1)
    expected = gradients(model)
    assert frames(batch) == int(dataset["train"].lengths.sum())
    parts, added = [], dict.fromkeys(expected, 0.0)
    for rows in ([0, 1, 5], [2, 3, 4, 6, 7, 8, 9, 10]):
        part = half(batch, rows)
        parts.append(window_gradient(state, part, 1, total_frames=frames(batch))[0])
        added = {name: added[name] + gradient for name, gradient in gradients(model).items()}
    assert sum(parts) == pytest.approx(whole, rel=1e-6)
    for name, gradient in expected.items():
        torch.testing.assert_close(added[name], gradient, rtol=1e-4, atol=1e-7)


def test_an_update_is_a_function_of_its_arguments(begin, batch):
    """Noise and dropout depend on the seed, not on earlier draws; another seed gives others."""
    after, weights = {}, begin(seed=7).model.state_dict()
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        state = begin(end=False, dropout=0.3, average=0.9, weight_noise=0.075, seed=seed)
        state.model.load_state_dict(weights)
        torch.randn(13)
        nats, norm = update(state, {0: batch}, frames(batch), 0.01, Group())
        after[name] = nats, norm, torch.nn.utils.parameters_to_vector(state.model.parameters())
    for one, same in zip(after["a"], after["b"], strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(same))
    assert not any(
        torch.equal(torch.as_tensor(one), torch.as_tensor(other))
        for one, other in zip(after["a"], after["c"], strict=True)
    )
    assert len({update_seed(seed, number) for seed in range(20) for number in range(20)}) == 400


@pytest.mark.parametrize("wrong", ["loss", "gradient"])
def test_an_update_that_is_not_finite_changes_nothing(state, batch, wrong):
    """A step along nan would make all weights nan, and the last checkpoint may be saved next."""
    model = state.model
    if wrong == "loss":
        with torch.no_grad():
            model.output.linear.bias[3] = math.nan
    else:
        model.unit.U.register_hook(lambda gradient: gradient * math.inf)
    before = deepcopy(model.state_dict())
    nats, norm = update(state, {0: batch}, frames(batch), 0.01, Group())
    assert not math.isfinite(nats + norm)
    assert math.isfinite(nats) == (wrong == "gradient")
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0, equal_nan=True)
    assert not state.optimizer.state
    assert int(state.average.count) == 0


def test_gradients_that_processes_have_added_are_rescaled_together(begin, batch):
    """If each process rescaled its own part, one part could be as large as all together."""
    state = begin(clip=1e-3)
    window_gradient(state, batch, 1)
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients(state.model).values()))
    assert step(state, 0.01) == pytest.approx(norm, rel=1e-5)
    left = gradients(state.model).values()
    scaled = math.sqrt(sum(float(g.double().square().sum()) for g in left))
    assert norm > scaled == pytest.approx(1e-3, rel=1e-4)


def test_parts_share_noise_but_not_dropout(begin, batch):
    """The same dropout in every part would drop the same of all pieces; other noise in each would
    be no noise of the weights."""
    kinds = ({"dropout": 0.5}, True), ({"zoneout": 0.5}, True), ({"weight_noise": 0.1}, False)
    for options, differ in kinds:
        state = begin(parts=2, **options)
        nats = [window_gradient(state, batch, 1, part=part)[0] for part in (0, 1)]
        assert (nats[0] != nats[1]) == differ, options
        assert window_gradient(state, batch, 2, part=0)[0] != nats[0]
