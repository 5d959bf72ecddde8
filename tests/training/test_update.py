"""One update, recomputed: gradient, noise, Adam and RMSProp, rate, average; on any device."""

import math
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqmodel.data import batches
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.kernels import noise
from seqmodel.model import sequence
from seqmodel.model.build import build_model, with_sizes
from seqmodel.runs.checkpoint import load_checkpoint, model_tensors
from seqmodel.runs.folder import BEST, LAST, load_run, read_metrics
from seqmodel.training.loop import train_run
from seqmodel.training.optimizer import Optimizer, rescale_gradient
from seqmodel.training.processes import Group
from seqmodel.training.state import TrainingState
from seqmodel.training.stopping import InterruptError, StopRequest
from seqmodel.training.update import (
    update,
    update_seed,
    weight_dropout,
    weight_noise,
    window_gradient,
    window_loss,
)
from seqmodel.units.module import Unit

CPU = torch.device("cpu")
FRAMES = 145
TIED = {"model": "tied", "unit": "gru", "hidden": 4, "end": True, "input_noise": 0.0}
NOTES = {"output": "note-unit", "note_unit": "lstm", "note_hidden": 3, "note_layers": 1}
NOTES |= {"first_change": True}
ALONE = {"output": "bernoulli", "first_change": False}


def flat(tensors):
    return torch.cat([t.detach().double().ravel() for t in tensors]).numpy()


# ---- the gradient --------------------------------------------------------------------------------


@pytest.fixture
def spy(make_config, tmp_path, train, monkeypatch):
    """A function that trains, and returns the run with all gradients, rates, weights after it."""
    step = Optimizer.step

    def spy(**options):
        seen = SimpleNamespace(gradients=[], rates=[], after=[])

        def recorded(optimizer, rate):
            seen.gradients.append(flat(weight.grad for weight in optimizer.weights))
            seen.rates.append(rate)
            step(optimizer, rate)
            seen.after.append(flat(optimizer.weights))

        monkeypatch.setattr(Optimizer, "step", recorded)
        options = {"epochs": 1, "unit": "gru", "schedule": "constant"} | options
        seen.trainer = train(make_config(**options), tmp_path / str(options))
        return seen

    return spy


@pytest.fixture
def begin(make_config, dataset):
    """A function that begins a run of a gru with these options."""
    train = dataset["train"]
    return lambda **options: TrainingState(make_config(**{"unit": "gru"} | options), train, CPU)


@pytest.fixture
def batch(dataset):
    """All pieces of train, of 1 to 30 frames, FRAMES in all."""
    return batches.load(dataset["train"], np.arange(11))


def test_the_gradient_is_of_the_mean_over_frames_without_padding(spy, begin, rolls):
    """Recomputed piece by piece without padding; the mean is over frames, not over pieces."""
    first = spy(clip=0, batch_size=11, end=True).gradients[0]
    model, total = begin(end=True).model, 0
    for roll in rolls["train"]:
        frames = torch.from_numpy(roll).float()[:, None]
        logits = model.output(model.read(frames, model.start(1)).h)
        total += -torch.distributions.Bernoulli(logits=logits[..., :88]).log_prob(frames).sum()
        last = (torch.arange(len(roll)) == len(roll) - 1).float()[:, None]
        total += -torch.distributions.Bernoulli(logits=logits[..., 88]).log_prob(last).sum()
    (total / FRAMES).backward()
    expected = flat(weight.grad for weight in model.parameters())
    np.testing.assert_allclose(first, expected, atol=1e-6 * abs(expected).max(), rtol=1e-4)


@pytest.mark.parametrize(
    ("data", "options", "window"),
    [
        ("struck_dataset", {"unit": "gru", "hidden": 9}, 1),
        ("struck_dataset", {"unit": "gru", "hidden": 9}, 7),
        ("dataset", TIED | ALONE, 9),
        ("dataset", TIED | NOTES, 9),
        ("dataset", TIED | NOTES, 40),
    ],
)
def test_windows_add_up_whatever_their_length(
    make_config, request, monkeypatch, data, options, window
):
    """Guards against padding that counts, held notes or ends forgotten between windows."""
    split = request.getfixturevalue(data)["train"]
    torch.manual_seed(0)
    model = build_model(make_config(**options), split.frame)
    indices, total, frames = np.arange(len(split)), 0.0, 0
    carry = model.start(len(split))
    for begin in range(0, int(split.lengths.max()), window):
        cut = batches.load(split, indices, begin=begin, window=window)
        of_frames = torch.from_numpy(cut.frames)
        loss = window_loss(model, of_frames, cut.lengths, carry, split.frames)
        total, carry, frames = total + loss.total.item(), loss.after, frames + loss.frames
    assert frames == split.frames
    alone = 0.0
    for piece in split:
        x, one = torch.from_numpy(piece)[:, None], np.array([len(piece)])
        alone += window_loss(model, x, one, model.start(1), split.frames).total.item()
    assert total == pytest.approx(alone, rel=1e-5)
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window * len(split))
    monkeypatch.setattr(sequence, "ROWS_AT_ONCE", window * len(split) * model.encoder.rows)
    scores = likelihood(model, split)
    ends = len(split) / split.frames * scores.figures.get("end_nats_per_piece", 0.0)
    assert scores.nats_per_frame + ends == pytest.approx(total, rel=1e-5)


def test_parts_share_noise_but_not_dropout(begin, batch):
    """The same dropout in every part would drop the same of all pieces."""
    kinds = ({"dropout": 0.5}, True), ({"zoneout": 0.5}, True), ({"weight_noise": 0.1}, False)
    for options, differ in kinds:
        state = begin(parts=2, **options)
        nats = [window_gradient(state, batch, 1, part=part)[0] for part in (0, 1)]
        assert (nats[0] != nats[1]) == differ, options
        assert window_gradient(state, batch, 2, part=0)[0] != nats[0]
    assert len({update_seed(seed, number) for seed in range(20) for number in range(20)}) == 400


# ---- from gradient to weights --------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["loss", "gradient"])
def test_an_update_that_is_not_finite_changes_nothing(begin, batch, wrong):
    """A step along nan would make all weights nan, and the last checkpoint may be saved next."""
    state = begin(end=True, dropout=0.3, average=0.9, weight_noise=0.075)
    model = state.model
    if wrong == "loss":
        with torch.no_grad():
            model.output.linear.bias[3] = math.nan
    else:
        model.unit.U.register_hook(lambda gradient: gradient * math.inf)
    before = deepcopy(model.state_dict())
    nats, norm = update(state, {0: batch}, FRAMES, 0.01, Group())
    assert not math.isfinite(nats + norm)
    assert math.isfinite(nats) == (wrong == "gradient")
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0, equal_nan=True)
    assert not state.optimizer.state
    assert int(state.average.count) == 0


@pytest.fixture
def two_models(begin):
    """Two models with the same weights: one for our code, one for torch's."""
    return [begin(unit="lstm", layers=2, hidden=37).model for _ in range(2)]


def give_gradients(models, number, size=1.0):
    """Give all models the same random gradients, different ones for each number."""
    for model in models:
        random = torch.Generator().manual_seed(number)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=random) * size


def assert_same(ours, theirs):
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name


CLASSES = {
    "adam": lambda weights: torch.optim.Adam(weights, 0.01, fused=True),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, 0.01, 0.9, 1e-6, foreach=True),
}


@pytest.mark.parametrize("name", CLASSES)
def test_steps_are_those_of_torchs_own_classes(make_config, two_models, name):
    """Bit for bit, with the same slot names: older checkpoints hold those of torch's classes."""
    ours, theirs = two_models
    optimizer = Optimizer(ours, make_config(optimizer=name))
    classes = CLASSES[name](theirs.parameters())
    for number in range(5):
        give_gradients(two_models, number)
        for model in two_models if number < 3 else ():
            next(iter(model.parameters())).grad = None  # a weight may get its first gradient later
        optimizer.step(0.01)
        classes.step()
    assert_same(ours.state_dict(), theirs.state_dict())
    for weight, same in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(optimizer.state[weight], classes.state[same])


SIZES = [(1e-30, 0.3), (0.01, 0.02), (0.01, 1e6), (0.5, 0.0), (1e18, 0.3), (1e30, 0.3)]
TOO_LARGE = [(1e30, 0.0), (math.inf, 1.0), (math.nan, 1.0), (math.inf, 0.0)]
"""For an optimizer to square: its running means would be infinite for good."""


def test_the_gradient_is_rescaled_only_if_its_norm_is_above_the_limit(two_models):
    """0 is off. Guards against "diverged" for a finite gradient: tanh over long pieces has 1e28."""
    weights = list(two_models[0].parameters())
    for size, limit in SIZES:
        give_gradients(two_models, 1, size)
        before = flat(weight.grad for weight in weights)
        norm = np.linalg.norm(before)
        assert rescale_gradient(weights, limit) == pytest.approx(norm, rel=1e-5)
        expected = before * min(1, limit / norm) if limit else before
        np.testing.assert_allclose(flat(w.grad for w in weights), expected, rtol=1e-4)
    for size, limit in TOO_LARGE:
        give_gradients(two_models, 0, size)
        assert not math.isfinite(rescale_gradient(weights, limit))


def test_the_rate_is_constant_or_half_a_cosine_over_all_epochs(spy):
    assert set(spy(epochs=3).rates) == {0.01}
    rates = spy(epochs=3, schedule="cosine").rates
    assert len(rates) == 9  # 11 pieces, 4 at a time
    expected = [0.01 * (1 + math.cos(math.pi * k / 9)) / 2 for k in range(9)]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    # The windows of a batch, of 30 frames, share a rate: the schedule counts batches.
    rates = spy(truncate=8, epochs=1, batch_size=11, schedule="cosine").rates
    assert rates == [0.01] * 4


def test_the_average_follows_the_weights_and_is_scored_and_saved(spy, dataset):
    """The mean moves by 1 - decay towards the weights after each update, more so at first."""
    run = spy(average=0.8, epochs=3, weight_noise=0.1)
    mean = run.after[0]
    for k, after in enumerate(run.after[1:], 1):
        decay = min(0.8, k / (k + 1))
        mean = decay * mean + (1 - decay) * after
    np.testing.assert_allclose(flat(run.trainer.state.average.module.parameters()), mean, atol=1e-6)
    kept = load_run(run.trainer.folder)
    assert kept.epoch == 3
    np.testing.assert_allclose(flat(kept.model.parameters()), mean, atol=1e-6)
    np.testing.assert_array_equal(flat(run.trainer.state.model.parameters()), run.after[-1])
    scored = read_metrics(run.trainer.folder)[-1]["valid_nats_per_frame"]
    assert scored == likelihood(kept.model, dataset["valid"]).nats_per_frame


# ---- noise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "layers"), [("lstm", 1), ("gru-reset-after", 2)])
def test_noise_is_on_the_units_matrices_and_peepholes_only(begin, unit, layers):
    """Noise on biases or the output would be a different regulariser from the paper's."""
    model = begin(unit=unit, layers=layers, hidden=40).model
    clean = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    torch.manual_seed(0)
    with weight_noise(model, 0.075):
        noise = {n: (w.detach() - clean[n]).numpy() for n, w in model.named_parameters()}
    for name, values in noise.items():
        if name.startswith("unit.") and name[-2:] in (".W", ".U", ".V"):
            assert values.std() == pytest.approx(0.075, rel=0.25 if name.endswith("V") else 0.05)
            assert abs(values.mean()) < 5 * 0.075 / math.sqrt(values.size)
        else:
            assert not values.any(), name
    for name, weight in model.named_parameters():
        assert torch.equal(weight, clean[name])


def test_dropped_weights_are_the_recurrent_ones_and_get_no_gradient(make_config, dataset):
    """Guards against a gradient at other weights than the loss, and dropout that is not undone."""
    options = {"model": "tied", "unit": "gru", "hidden": 40, "note_hidden": 30, "end": True}
    options |= {"input_noise": 0.0}
    model = build_model(with_sizes(make_config(**options), dataset.frame), dataset.frame)
    clean = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    frames = torch.from_numpy(dataset["train"][0])[:, None]
    lengths = np.array([len(frames)])

    def gradients():
        loss = window_loss(model, frames, lengths, model.start(1)).total
        return torch.autograd.grad(loss, list(model.parameters()))

    torch.manual_seed(0)
    with weight_dropout(model, 0.25):
        seen = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        expected = dict(zip(clean, gradients(), strict=True))
        window_loss(model, frames, lengths, model.start(1)).total.backward()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, clean[name])
        if name not in ("unit.U", "output.unit.U"):
            assert torch.equal(seen[name], clean[name])
            torch.testing.assert_close(weight.grad, expected[name])
            continue
        dropped = seen[name] == 0
        assert dropped.float().mean() == pytest.approx(0.25, abs=0.03)
        torch.testing.assert_close(seen[name][~dropped], clean[name][~dropped] / 0.75)
        torch.testing.assert_close(weight.grad, expected[name] * ~dropped / 0.75)


def test_weights_are_restored_exactly_after_an_exception(begin):
    model = begin().model
    clean = [weight.detach().clone() for weight in model.parameters()]
    for disturbed in (weight_noise, weight_dropout):
        with pytest.raises(ZeroDivisionError), disturbed(model, 0.5):
            raise ZeroDivisionError
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), clean, strict=True))


# ---- the tied model ------------------------------------------------------------------------------


def test_the_start_is_the_share_of_notes_that_sound(make_config, dataset):
    """So that the first epochs are not spent on learning that most notes are silent."""
    model = build_model(make_config(**TIED | NOTES), dataset.frame)
    model.output.start_at(dataset["train"])
    sounding = sum(int(roll.sum()) for roll in dataset["train"])
    odds = (sounding + 0.5) / (145 * 88 - sounding + 0.5)
    assert model.output.linear.bias.item() == pytest.approx(math.log(odds), rel=1e-6)
    assert model.output.ending.bias.item() == pytest.approx(math.log(11.5 / 134.5), rel=1e-6)


def test_weights_of_another_run_leave_the_clock_to_this_ones_data(make_config, dataset):
    """Pieces of the new data would else end when those of the old did."""
    config = make_config(**TIED | NOTES, clock=True, average=0.9)
    state = TrainingState(config, dataset["train"], CPU)
    other = build_model(config, dataset.frame)
    other.encoder.clock.start_at(np.array([500, 600]))
    state.load_weights(model_tensors(other), dataset["train"])
    assert torch.equal(state.model.unit.U, other.unit.U)
    lengths = sorted(dataset["train"].lengths.tolist())
    for model in (state.model, state.scored_model):
        assert model.encoder.clock.lengths[: len(lengths)].tolist() == lengths


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_every_layer_runs_on_the_backend_asked_for(make_config, dataset, backend):
    model = build_model(make_config(**TIED | NOTES, backend=backend), dataset.frame)
    assert {m.backend for m in model.modules() if isinstance(m, Unit)} == {backend}


CUDA = torch.device("cuda")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
OPTIONS = {"weight_noise": 0.05, "dropout": 0.2, "average": 0.9, "truncate": 2, "layers": 2}


def test_noise_on_other_devices_is_not_compiled(make_config, dataset, monkeypatch):
    """Compiled code writes to a raw address: with a GPU tensor's, that could be anywhere."""
    monkeypatch.setattr(noise, "normals", lambda count: pytest.fail("compiled code was called"))
    model = build_model(make_config(), dataset.frame).to("meta")
    with weight_noise(model, 0.1):
        assert all(weight.device.type == "meta" for weight in model.parameters())


@needs_cuda
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_run_moves_between_devices(tmp_path, make_config, dataset, optimizer):
    """Started on a GPU, stopped between two windows, resumed on the CPU, finished on the GPU."""
    config = make_config(**OPTIONS, optimizer=optimizer, epochs=2)
    for device in (CUDA, torch.device("cpu")):
        stop = StopRequest()
        stop.signal = 2
        resume = device != CUDA
        with pytest.raises(InterruptError):
            train_run(config, dataset, tmp_path, device=device, resume=resume, stop=stop)
        tensors, content = load_checkpoint(tmp_path / LAST)
        assert all(tensor.device.type == "cpu" for tensor in tensors.values())
        assert content["place"]["window"] > 0
    progress = train_run(config, dataset, tmp_path, device=CUDA, resume=True)
    assert progress.epoch == 2
    assert load_run(tmp_path, CUDA).nll(dataset["valid"][0]).shape == (13,)
    assert "cuda" not in str(load_checkpoint(tmp_path / BEST)[1])


@needs_cuda
def test_the_same_seed_gives_the_same_run_on_a_gpu(tmp_path, make_config, dataset):
    config = make_config(**OPTIONS, epochs=1)
    for name in ("a", "b"):
        torch.randn(5, device=CUDA)
        train_run(config, dataset, tmp_path / name, device=CUDA)
    a, b = (load_checkpoint(tmp_path / name / BEST)[0] for name in ("a", "b"))
    assert all(torch.equal(a[name], b[name]) for name in a)
