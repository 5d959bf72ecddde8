"""The NADE output: a distribution over frames, which compiled scores and draws follow."""

import copy
import itertools
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import stats

from seqmodel.data.bundled import FRAMES
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.kernels.uniforms import GAMMA, Uniforms
from seqmodel.model import sequence
from seqmodel.model.build import build_model
from seqmodel.outputs.nade import NadeOutput
from seqmodel.outputs.protocol import Window
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.sampling import sampler
from seqmodel.sampling.sampler import Sampler
from seqmodel.units import UNITS

H = 5


def make(notes, width, *, hidden=H, end=False, seed=0, dtype=torch.float64):
    """An output with no parameter at zero, whose notes depend strongly on each other."""
    torch.manual_seed(seed)
    output = NadeOutput(hidden, notes, width, end=end).to(dtype)
    with torch.no_grad():
        output.V.normal_(0, 2)
        output.U.normal_()
    return output


def some_frames(*shape, dtype=torch.float64, density=0.3):
    return (torch.rand(*shape) < density).to(dtype)


def all_frames(notes):
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=notes)), dtype=torch.float64)


def by_hand(output, h, frame):
    """The conditional probabilities of one frame's notes in NumPy, by a loop over the notes."""
    weights = {name: value.double().numpy() for name, value in output.state_dict().items()}
    outputs = weights["linear.weight"] @ h.double().numpy() + weights["linear.bias"]
    D, K = weights["U"].shape
    chances = []
    for d in range(D):
        a = outputs[D : D + K].copy()
        for lower in range(d):
            if frame[lower]:
                a += weights["V"][lower]
        logit = outputs[d] + sum(weights["U"][d] / (1 + np.exp(-a)))
        chances.append(1 / (1 + np.exp(-logit)))
    return np.array(chances)


def plain_nats(output, h, frames):
    return output.nats(output(h), frames)


# ---- the specification --------------------------------------------------------------------------


@pytest.mark.parametrize("end", [False, True])
def test_each_note_is_given_those_below_it(end):
    """Guards against a note that sees itself or those above, and against mixed-up columns."""
    output = make(6, 3, end=end)
    h, frames = torch.randn(4, 2, H, dtype=torch.float64), some_frames(4, 2, 6)
    logits, nats = output.note_logits(h, frames), plain_nats(output, h, frames)
    for t, b in itertools.product(range(4), range(2)):
        p = by_hand(output, h[t, b], frames[t, b])
        np.testing.assert_allclose(torch.sigmoid(logits[t, b]), p, rtol=1e-12)
        x = frames[t, b].numpy()
        exact = -np.log(np.where(x > 0, p, 1 - p)).sum()
        assert nats[t, b].item() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_the_likelihood_sums_to_one(scale):
    """Over all 256 frames of eight notes, at a small h and at one that saturates."""
    output, frames = make(8, 5), all_frames(8)
    for h in scale * torch.randn(3, H, dtype=torch.float64):
        several = h.expand(256, 1, H)
        for nats in (plain_nats(output, several, frames[:, None]), output.score(several, frames)):
            assert float((-nats.double()).exp().sum().detach()) == pytest.approx(1, abs=1e-12)


class Plain(torch.nn.Module):
    """A module whose forward is an output's plain score."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, h, frames):
        return plain_nats(self.output, h, frames)


def test_gradients_are_those_of_the_score():
    model = Plain(make(4, 3))
    names, values = zip(*model.named_parameters(), strict=True)
    frames = some_frames(2, 2, 4)
    h = torch.randn(2, 2, H, dtype=torch.float64, requires_grad=True)

    def score(h, *values):
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, named, (h, frames))

    assert torch.autograd.gradcheck(score, (h, *values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nats_of_a_confident_model_are_exact(dtype):
    """log(1 - sigmoid(40)) is log(0) in float32."""
    output = make(4, 2, dtype=dtype)
    with torch.no_grad():
        output.U.zero_()
        output.linear.weight.zero_()
        output.linear.bias[:4] = torch.tensor([1e4, -1e4, 40.0, -12.0])
    h, frame = torch.zeros(1, 1, H, dtype=dtype), torch.tensor([[[0, 1, 1, 0]]], dtype=dtype)
    exact = 20_000 + np.log1p(np.exp(-40.0)) + np.log1p(np.exp(-12.0))
    for nats in (plain_nats(output, h, frame), output.score(h, frame)):
        assert nats.item() == pytest.approx(exact, rel=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("end", [False, True])
def test_it_starts_at_the_independent_marginals(end):
    """Whatever the hidden units do initially, and for any lower notes."""
    output = NadeOutput(H, 5, 7, end=end)
    output.start_at_marginals(np.array([0, 1, 30, 99, 100]), frames=100, pieces=4)
    h, frames = torch.zeros(32, 1, H), all_frames(5).float()[:, None]
    p = torch.sigmoid(output.note_logits(h, frames)).squeeze(1)
    expected = [(n + 0.5) / 101 for n in [0, 1, 30, 99, 100]]
    np.testing.assert_allclose(p, np.tile(expected, (32, 1)), rtol=1e-5)
    if end:
        ends = output.end_score(h[0, 0], torch.ones(()))
        assert float(torch.exp(-ends).detach()) == pytest.approx(4.5 / 101, rel=1e-5)


def test_its_hidden_units_do_not_stay_alike():
    """Units that start alike learn alike: K of them would be worth one."""
    output = NadeOutput(H, 6, 4)
    optimizer = torch.optim.Adam(output.parameters(), 0.01)
    h, frames = torch.randn(50, 1, H), some_frames(50, 1, 6, dtype=torch.float32)
    for _ in range(3):
        optimizer.zero_grad()
        output.score(h, frames).sum().backward()
        optimizer.step()
    for matrix in (output.V, output.U):
        assert torch.linalg.matrix_rank(matrix) == 4


# ---- compiled -----------------------------------------------------------------------------------


def assert_close(ours, theirs, bound):
    for a, b in zip(ours, theirs, strict=True):
        scale = max([0.1, *b.detach().abs().flatten().tolist()])
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 2), (1, 1), (11, 3)])
@pytest.mark.parametrize("width", [1, 5, 64])
@pytest.mark.parametrize("notes", [1, 7, 88, 89])
def test_compiled_score_is_the_plain_one(notes, width, shape, dtype):
    """In nats, logits and every gradient, weighted or not; padding has weight 0.

    Empty, full and single-note frames are among the rows.
    """
    output = make(notes, width, hidden=13, end=width == 5, dtype=dtype)
    h = torch.randn(*shape, 13, dtype=dtype, requires_grad=True)
    frames, weights = some_frames(*shape, notes, dtype=dtype), torch.rand(*shape, dtype=dtype)
    for number, pattern in enumerate((0.0, 1.0)):
        frames[2 + number :][:1] = pattern
    frames[4:5] = torch.eye(notes, dtype=dtype)[-1]
    frames[-2:, -1:], weights[-2:, -1:] = 0, 0
    leaves = [h, *output.parameters()]
    theirs = plain_nats(output, h, frames)
    slopes = torch.autograd.grad(theirs, leaves, weights, retain_graph=True)
    ours, total = output.score(h, frames), output.weighted_score(h, frames, weights)
    if h.numel():
        assert "NadeNats" in ours.grad_fn.name()
        assert "WeightedNadeNats" in total.grad_fn.name()
    bound = 1e-12 if dtype == torch.float64 else 5e-6
    assert_close([ours], [theirs], bound)
    assert_close([total], [(theirs * weights).sum()], bound)
    assert_close(torch.autograd.grad(ours, leaves, weights), slopes, bound)
    assert_close(torch.autograd.grad(-2.5 * total, leaves), [-2.5 * s for s in slopes], bound)
    logits = output.conditional_logits(output(h), frames)
    assert_close([output.note_logits(h, frames)], [logits], bound)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_rows(threads):
    """Guards against tables shared between threads, and against skipped blocks."""
    output = make(19, 21, hidden=13)
    h = torch.randn(37, 5, 13, dtype=torch.float64, requires_grad=True)
    frames, weights = some_frames(37, 5, 19), torch.rand(37, 5, dtype=torch.float64)
    leaves = [h, *output.parameters()]
    theirs = (plain_nats(output, h, frames) * weights).sum()
    former = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours = output.weighted_score(h, frames, weights)
        slopes = torch.autograd.grad(ours, leaves)
    finally:
        torch.set_num_threads(former)
    assert_close([ours, *slopes], [theirs, *torch.autograd.grad(theirs, leaves)], 1e-12)


def test_other_types_take_the_plain_path():
    """Guards the fallback: compiled code reads float32 and float64 only."""
    output = make(7, 5)
    h, frames = torch.randn(3, 2, H, dtype=torch.float64), some_frames(3, 2, 7)
    exact = output.score(h, frames)
    rough = output.bfloat16().score(h.bfloat16(), frames.bfloat16())
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.double(), exact, rtol=0.1, atol=0.1)


def test_a_nan_in_h_shows_only_in_its_row():
    """Guards against scoring a diverged model as a sound one."""
    output = make(7, 5)
    h = torch.zeros(3, 1, H, dtype=torch.float64)
    h[1, 0, 0] = float("nan")
    nats = output.score(h, some_frames(3, 1, 7))
    assert nats.isnan().flatten().tolist() == [False, True, False]


def test_score_rejects_h_and_frames_of_the_wrong_width():
    """Otherwise it would read beyond the buffers."""
    output = make(7, 5)
    h, frames = torch.zeros(4, 3, H, dtype=torch.float64), some_frames(4, 3, 7)
    with pytest.raises(ValueError, match=r"nade_forward: h must be float64 \(12, 5\)"):
        output.score(h[..., :4], frames)
    with pytest.raises(ValueError, match=r"frames must be float64 \(12, 7\)"):
        output.score(h, frames[..., :6])


# ---- the draw -----------------------------------------------------------------------------------


def test_frames_are_drawn_as_often_as_they_are_likely():
    """All 32 frames of five notes at one h: chi-square against exp(-nats)."""
    output, h = make(5, 4), torch.randn(1, 1, H, dtype=torch.float64)
    frames = all_frames(5)
    nats = output.score(h.expand(32, 1, H), frames[:, None])
    expected = 20_000 * (-nats.detach()).exp().flatten().numpy()
    uniforms = torch.from_numpy(np.random.default_rng(3).random((20_000, 6)))
    with torch.no_grad():
        drawn = output.draw_frame(h[0].expand(20_000, H), h, uniforms, 1.0).frame
    numbers = (drawn.numpy() @ 2 ** np.arange(5)[::-1]).astype(int)
    assert expected.min() > 5  # as the chi-square test requires
    assert stats.chisquare(np.bincount(numbers, minlength=32), expected).pvalue > 1e-3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_divides_each_conditional_logit(temperature):
    """A note sounds if its uniform is below its chance given the notes drawn, not the data's."""
    output = make(9, 4, end=True)
    h, uniforms = torch.randn(200, H, dtype=torch.float64), torch.rand(200, 10).double()
    with torch.no_grad():
        drawn = output.draw_frame(h, h, uniforms, temperature)
    for row in range(200):
        p = by_hand(output, h[row], drawn.frame[row].numpy())
        scaled = 1 / (1 + np.exp(-np.log(p / (1 - p)) / temperature))
        np.testing.assert_array_equal(drawn.frame[row], uniforms[row, :9].numpy() < scaled)
        logit = output(h[row])[-1]
        assert bool(drawn.ended[row]) == bool(uniforms[row, 9] < torch.sigmoid(logit))


def test_temperature_zero_takes_the_likelier_value_of_each_note_in_turn():
    output = make(9, 4)
    h = torch.randn(50, H, dtype=torch.float64)
    with torch.no_grad():
        frame = output.draw_frame(h, h, torch.rand(50, 10).double(), 0.0).frame
    for row in range(50):
        likelier = by_hand(output, h[row], frame[row].numpy()) > 0.5
        np.testing.assert_array_equal(frame[row], likelier)


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("width", [1, 13, 64])
@pytest.mark.parametrize("unit", UNITS)
def test_compiled_and_plain_sampling_draw_the_same(make_config, monkeypatch, unit, width, end):
    """Every unit, at two temperatures: not one note may differ, across a chunk boundary."""
    monkeypatch.setattr(sampler, "CHUNK", 5)
    torch.manual_seed(7)
    config = make_config(unit=unit, hidden=21, output="nade", nade_hidden=width, end=end)
    model = build_model(config, FRAMES)
    with torch.no_grad():
        model.output.linear.weight.mul_(4)
        model.output.linear.bias[:88] = -3
        model.output.V.normal_()
        model.output.U.normal_(0, 0.5)
        if end:
            model.output.linear.bias[-1] = -6
    before = copy.deepcopy(model.state_dict())
    for temperature in (0.8, 0.0):
        drawn = []
        for backend in ("cpu", "reference"):
            model.unit.backend = backend
            of_backend = Sampler(model, temperature=temperature)
            assert of_backend.is_compiled == (backend == "cpu")
            chunks = of_backend.draw(Uniforms(3, 1))
            drawn.append(list(islice(chunks, 2)))
        for (ours, ends), (plain, plain_ends) in zip(*drawn, strict=True):
            np.testing.assert_array_equal(ours, plain)
            assert ends == plain_ends
            assert temperature == 0 or 0.005 < ours.mean() < 0.7
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_uniform_of_zero_sounds_every_possible_note(make_config, monkeypatch):
    """One in 2^53 uniforms is 0, which has no logarithm; sigmoid(-700) is above it."""
    model = build_model(make_config(output="nade"), FRAMES)
    with torch.no_grad():
        model.output.linear.weight.zero_()
        model.output.linear.bias[:2] = -700
    # The first number of this stream is a hash of 0, which is 0.
    monkeypatch.setattr(Uniforms, "skip", lambda self, count: -GAMMA % 2**64)
    for backend in ("cpu", "reference"):
        model.unit.backend = backend
        frames, _ = next(Sampler(model).draw(Uniforms(1)))
        assert frames[0, :2].tolist() == [1, 0]


# ---- within a model -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(make_config, train, tmp_path_factory):
    """A run whose output has learned the chords of the tiny dataset."""
    folder = tmp_path_factory.mktemp("nade") / "run"
    config = make_config(output="nade", nade_hidden=12, end=True, hidden=7, learning_rate=0.05)
    train(config, folder)
    return load_run(folder)


@pytest.fixture(scope="module")
def recomputed(trained, rolls):
    """The figures of valid in NumPy, piece by piece, from the unit's h."""
    nats, ends, hits = [], [], np.zeros(3)
    model = copy.deepcopy(trained.model).double()
    for roll in rolls["valid"]:
        with torch.no_grad():
            frames = torch.from_numpy(roll)[:, None]
            h = model.read(frames, model.start(1)).h[:, 0]
            logit = model.output(h)[:, -1].numpy()
        p = np.array([by_hand(model.output, *row) for row in zip(h, roll, strict=True)])
        nats.append(-np.log(np.where(roll > 0, p, 1 - p)).sum(1))
        last = np.arange(len(roll)) == len(roll) - 1
        ends.append(np.log1p(np.exp(np.where(last, -logit, logit))).sum())
        on, said = roll > 0, p > 0.5
        hits += (on & said).sum(), (~on & said).sum(), (on & ~said).sum()
    true, false, missed = hits
    return {
        "nats_per_frame": np.concatenate(nats).mean(),
        "nats_per_frame_skip_first": np.concatenate([n[1:] for n in nats]).mean(),
        "piece_mean_nats_per_frame": np.mean([n.mean() for n in nats]),
        "accuracy": true / (true + false + missed),
        "precision": true / (true + false),
        "recall": true / (true + missed),
        "end_nats_per_piece": np.mean(ends),
    }


@pytest.mark.parametrize(("batch_size", "window"), [(1, 1024), (3, 1), (32, 7), (32, 1024)])
def test_the_figures_are_the_recomputed_ones(
    trained, dataset, recomputed, monkeypatch, batch_size, window
):
    """For any batch size and window, given the true lower notes; padding never counts."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window)
    ours = likelihood(trained.model, dataset["valid"], batch_size=batch_size).to_json()
    for name, value in recomputed.items():
        assert ours[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


def test_a_note_is_predicted_from_the_true_notes_below_it():
    """Where notes depend strongly on each other; padding of any kind does not count."""
    output, h = make(9, 4), torch.randn(6, 3, H, dtype=torch.float64)
    frames, inside = some_frames(6, 3, 9), torch.rand(6, 3) < 0.7
    figures = output.figures()
    sums = figures.sums(Window(h, frames, frames, torch.full((3,), 6), inside & False, inside))
    on = frames[inside].numpy() > 0
    said = [by_hand(output, *row) > 0.5 for row in zip(h[inside], frames[inside], strict=True)]
    true, false = (on & said).sum(), (~on & said).sum()
    assert figures.values(sums, nats=1.0, frames=1, pieces=1) == {
        "accuracy": true / (on.sum() + false),
        "precision": true / (true + false),
        "recall": true / on.sum(),
    }


def test_it_predicts_chords_better_than_independent_notes(
    trained, make_config, dataset, train, tmp_path
):
    """Which chord of the tiny dataset comes next is uncertain: its notes depend on each other."""
    config = make_config(end=True, hidden=7, learning_rate=0.05)
    independent = train(config, tmp_path / "run").folder
    theirs = likelihood(load_run(independent).model, dataset["valid"]).nats_per_frame
    assert likelihood(trained.model, dataset["valid"]).nats_per_frame < theirs


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_trains_with_it(make_config, train, dataset, tmp_path, unit):
    options = {"output": "nade", "nade_hidden": 3, "unit": unit, "learning_rate": 0.05}
    config = make_config(**options, epochs=2, end=True)
    untrained = likelihood(build_model(config, FRAMES), dataset["train"]).nats_per_frame
    train(config, tmp_path / "run")
    assert read_metrics(tmp_path / "run")[-1]["train_nats_per_frame"] < untrained / 2
    assert load_run(tmp_path / "run").config == config
