"""Updates, recomputed: the gradient, its rescaling, Adam and RMSProp, learning rate, noise."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from seqmodel.evaluation.likelihood import likelihood
from seqmodel.kernels.device import one_thread
from seqmodel.model.build import build_model, with_sizes
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.training.loop import Trainer
from seqmodel.training.optimizer import Average, make_optimizer, rescale_gradient
from seqmodel.training.update import weight_dropout, weight_noise, window_loss


class Spy:
    """Records every update of a run: the gradient, the weights before and after it, the rate."""

    def __init__(self, config, dataset, folder, train):
        self.gradients, self.before, self.after, self.rates = [], [], [], []
        spy = self

        def recorded(optimizer, rate):
            spy.gradients.append(flat(w.grad for w in optimizer.weights))
            spy.before.append(flat(optimizer.weights))
            spy.rates.append(rate)
            type(optimizer).step(optimizer, rate)
            spy.after.append(flat(optimizer.weights))

        init = Trainer.__init__

        def watched(trainer, *args):
            init(trainer, *args)
            trainer.state.optimizer.step = lambda rate: recorded(trainer.state.optimizer, rate)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trainer, "__init__", watched)
            self.trainer = train(config, folder)


def flat(tensors):
    return torch.cat([t.detach().double().ravel() for t in tensors]).numpy()


@pytest.fixture
def spy(make_config, dataset, tmp_path, train):
    """A function that trains with the given options and records the updates."""

    def spy(**options):
        options = {
            "epochs": 1,
            "unit": "gru",
            "schedule": "constant",
            "learning_rate": 0.01,
        } | options
        return Spy(make_config(**options), dataset, tmp_path / str(options), train)

    return spy


@pytest.mark.parametrize("end", [False, True])
def test_the_gradient_is_of_the_mean_over_frames_without_padding(
    spy, make_config, dataset, rolls, tmp_path, end
):
    """Recomputed piece by piece without padding; the mean is over frames, not over pieces."""
    first = spy(clip=0, batch_size=11, end=end).gradients[0]
    trainer = Trainer(make_config(unit="gru", batch_size=11, end=end), dataset, tmp_path)
    model, total = trainer.state.model, 0
    for roll in rolls["train"]:
        frames = torch.from_numpy(roll).float()[:, None]
        logits = model.output(model.read(frames, model.start(1)).h)
        total += -torch.distributions.Bernoulli(logits=logits[..., :88]).log_prob(frames).sum()
        if end:
            last = (torch.arange(len(roll)) == len(roll) - 1).float()[:, None]
            total += -torch.distributions.Bernoulli(logits=logits[..., 88]).log_prob(last).sum()
    (total / sum(map(len, rolls["train"]))).backward()
    expected = flat(weight.grad for weight in model.parameters())
    np.testing.assert_allclose(first, expected, atol=1e-6 * abs(expected).max(), rtol=1e-4)


def test_adam_is_adam(spy):
    run = spy(optimizer="adam", epochs=2, clip=0)
    m = v = 0
    for t, g in enumerate(run.gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        step = 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(run.after[t - 1], run.before[t - 1] - step, atol=2e-6)


@pytest.fixture
def two_models(make_config, dataset, tmp_path):
    """Two models with the same weights: one for our code, one for torch's."""
    config = make_config(unit="lstm", layers=2, hidden=37)
    return [Trainer(config, dataset, tmp_path).state.model for _ in range(2)]


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


def test_rmsprop_is_rmsprop(spy):
    run = spy(optimizer="rmsprop", epochs=2, clip=0, learning_rate=0.001)
    v = 0
    for t, g in enumerate(run.gradients):
        v = 0.9 * v + 0.1 * g**2
        np.testing.assert_allclose(
            run.after[t], run.before[t] - 0.001 * g / (np.sqrt(v) + 1e-6), atol=2e-6
        )


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("adam", lambda weights: torch.optim.Adam(weights, 0.01, fused=True)),
        (
            "rmsprop",
            lambda weights: torch.optim.RMSprop(weights, 0.01, alpha=0.9, eps=1e-6, foreach=True),
        ),
    ],
)
def test_steps_match_those_of_torchs_own_classes(make_config, two_models, name, reference):
    """Bit for bit, with the same slot names: older checkpoints hold those of torch's classes."""
    ours, theirs = two_models
    optimizer = make_optimizer(ours, make_config(optimizer=name))
    classes = reference(theirs.parameters())
    for number in range(5):
        give_gradients(two_models, number)
        for model in two_models if number < 3 else ():
            next(iter(model.parameters())).grad = None  # a weight may get its first gradient later
        optimizer.step(0.01)
        classes.step()
    assert_same(ours.state_dict(), theirs.state_dict())
    for weight, same in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(optimizer.state[weight], classes.state[same])


def test_training_does_not_import_torchs_compiler(tmp_path, dataset):
    """Importing it takes as long as the rest of torch, at the start of every training."""
    code = "from seqmodel.cli.main import app; import sys\n"
    code += "for optimizer in ('adam', 'rmsprop'):\n"
    code += "    app([*sys.argv[1:], '--optimizer', optimizer], standalone_mode=False)\n"
    code += "sys.exit('torch._dynamo' in sys.modules)"
    options = ["train", str(dataset.folder), "--run", str(tmp_path / "run"), "--epochs", "1", "-q"]
    options += ["--model", "frame-wise", "--hidden", "4", "--force"]
    command = [sys.executable, "-c", code, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_gradient_is_rescaled_only_if_its_norm_is_above_the_limit(spy):
    free = spy(clip=0).gradients[0]
    norm = float(np.linalg.norm(free))
    np.testing.assert_array_equal(spy(clip=2 * norm).gradients[0], free)
    np.testing.assert_allclose(spy(clip=norm / 3).gradients[0], free / 3, rtol=1e-4, atol=1e-9)
    assert max(map(np.linalg.norm, spy(clip=0.1, epochs=2).gradients)) < 0.1 * (1 + 1e-5)
    wild = {"learning_rate": 0.5, "epochs": 3}
    assert max(map(np.linalg.norm, spy(clip=0, **wild).gradients)) > 1.2  # 0 is off, not 1


def test_the_rate_is_constant_or_half_a_cosine_over_all_epochs(spy):
    assert set(spy(epochs=3).rates) == {0.01}
    rates = spy(epochs=3, schedule="cosine").rates
    assert len(rates) == 9  # 11 pieces, 4 at a time
    expected = [0.01 * (1 + math.cos(math.pi * k / 9)) / 2 for k in range(9)]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


def test_each_window_of_a_batch_is_a_separate_update(spy):
    """The windows of a batch share a learning rate: the schedule counts batches."""
    rates = spy(truncate=8, epochs=1, batch_size=11, schedule="cosine").rates
    assert len(rates) == 4  # 30 frames
    assert set(rates) == {0.01}


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


def test_the_average_matches_torchs_averaged_model(two_models):
    """Bit for bit."""
    model, other = two_models

    def move(means, weights, count):
        decay = min(0.8, int(count) / (int(count) + 1))
        torch._foreach_lerp_(means, weights, 1 - decay)

    ours = Average(model, 0.8)
    theirs = torch.optim.swa_utils.AveragedModel(other, multi_avg_fn=move)
    for number in range(8):
        for weights in two_models:
            random = torch.Generator().manual_seed(number)
            with torch.no_grad():
                for weight in weights.parameters():
                    weight.add_(torch.randn(weight.shape, generator=random))
        ours.update()
        theirs.update_parameters(other)
        assert_same(ours.module.state_dict(), theirs.module.state_dict())
    assert int(ours.count) == 8


def test_the_average_begins_as_a_plain_mean():
    """Used to count the first update twice: 3, 6, 9 gave 3, 4, 5.25."""
    model = torch.nn.Linear(1, 1, bias=False)
    average, means = Average(model, 0.995), []
    for value in (3.0, 6.0, 9.0):
        torch.nn.init.constant_(model.weight, value)
        average.update()
        means.append(float(average.module.weight.detach()))
    assert means == pytest.approx([3.0, 4.5, 6.0])


@pytest.mark.parametrize(("unit", "layers"), [("lstm", 1), ("gru-reset-after", 2)])
def test_noise_is_on_the_units_matrices_and_peepholes_only(
    make_config, dataset, tmp_path, unit, layers
):
    """Noise on biases or the output would be a different regulariser from the paper's."""
    model = Trainer(make_config(unit=unit, layers=layers, hidden=40), dataset, tmp_path).state.model
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


def test_weights_are_restored_exactly_after_an_exception(make_config, dataset, tmp_path):
    model = Trainer(make_config(), dataset, tmp_path).state.model
    clean = [weight.detach().clone() for weight in model.parameters()]
    for noise in (weight_noise, weight_dropout):
        with pytest.raises(ZeroDivisionError), noise(model, 0.5):
            raise ZeroDivisionError
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), clean, strict=True))


def test_noise_is_fresh_at_each_update_and_off_when_scoring(make_config, dataset, tmp_path, train):
    """At a learning rate of 0 the weights stay, so any difference that a pass sees is noise."""
    seen = {True: [], False: []}
    init = Trainer.__init__

    def watched(trainer, *args):
        init(trainer, *args)
        unit = trainer.state.model.unit
        start = unit.U.detach().clone()
        unit.register_forward_pre_hook(
            lambda *_: seen[torch.is_grad_enabled()].append((unit.U - start).detach().numpy())
        )

    config = make_config(learning_rate=0.0, weight_noise=0.075, epochs=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "__init__", watched)
        train(config, tmp_path / "run")
    assert len(seen[True]) == 7  # six updates and, before them, the warm-up
    assert len({noise.tobytes() for noise in seen[True]}) == 7
    assert all(0.05 < noise.std() < 0.1 for noise in seen[True])
    assert len(seen[False]) >= 2
    assert not any(noise.any() for noise in seen[False])


@pytest.mark.parametrize("size", [1e-30, 0.5, 1e18, 1e30])
def test_a_gradient_whose_squares_overflow_is_still_rescaled(make_config, dataset, tmp_path, size):
    """Guards against "diverged" for a finite gradient: tanh over long pieces reaches 1e28."""
    model = Trainer(make_config(), dataset, tmp_path).state.model
    torch.manual_seed(0)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight) * size
    before = np.concatenate([weight.grad.double().flatten() for weight in model.parameters()])
    norm = np.linalg.norm(before)
    assert rescale_gradient(list(model.parameters()), 0.3) == pytest.approx(norm, rel=1e-5)
    after = np.concatenate([weight.grad.double().flatten() for weight in model.parameters()])
    np.testing.assert_allclose(after, before * min(1, 0.3 / norm), rtol=1e-4)


@pytest.mark.parametrize("limit", [0.02, 1.0, 1e6])
def test_the_gradient_is_rescaled_as_in_torch(two_models, limit):
    """Except for the 1e-6 that torch adds to the norm."""
    model, other = two_models
    give_gradients(two_models, 1, 0.01)
    norm = rescale_gradient(list(model.parameters()), limit)
    expected = torch.nn.utils.clip_grad_norm_(other.parameters(), limit)
    assert norm == pytest.approx(float(expected), rel=1e-6)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=3e-6, atol=0)


@pytest.fixture
def threads():
    """torch.set_num_threads, undone after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_one_thread_applies_to_the_block_only(threads):
    threads(2)
    with one_thread():
        assert torch.get_num_threads() == 1
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_a_gradient_whose_squares_overflow_is_reported_if_nothing_rescales_it(two_models):
    """The optimizers square it: their running means would be infinite for good."""
    give_gradients(two_models, 0, 1e30)
    assert rescale_gradient(list(two_models[0].parameters()), 0) == math.inf


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_reported(make_config, dataset, tmp_path, wrong):
    model = Trainer(make_config(), dataset, tmp_path).state.model
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, wrong)
    assert not math.isfinite(rescale_gradient(list(model.parameters()), 1.0))
