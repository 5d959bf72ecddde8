"""The NADE with onsets: one chain, in which determined strikes cost nothing."""

import copy
import itertools
from itertools import islice

import numpy as np
import pytest
import torch
from onsets import HELD, OFF, STRUCK, as_frames, random_states
from scipy import stats

from seqmodel.evaluation.likelihood import likelihood
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.build import build_model
from seqmodel.outputs.nade import NadeOutput
from seqmodel.runs.folder import load_run
from seqmodel.sampling import sampler
from seqmodel.sampling.sampler import Sampler

H = 5


def make(notes, width, *, hidden=H, end=False, dtype=torch.float64):
    """An output with no parameter at zero, whose numbers depend strongly on each other."""
    torch.manual_seed(0)
    output = NadeOutput(hidden, notes, width, end=end, onsets=True).to(dtype)
    with torch.no_grad():
        output.V.normal_(0, 2)
        output.U.normal_()
    return output


def by_hand(output, h, frame, before):
    """-log p of one frame in NumPy, by a loop over its numbers and the rule of which are free."""
    weights = {name: value.double().numpy() for name, value in output.state_dict().items()}
    outputs = weights["linear.weight"] @ h.double().numpy() + weights["linear.bias"]
    F, K = weights["U"].shape
    nats = 0.0
    for k in range(F):
        a = outputs[F : F + K] + sum(frame[e] * weights["V"][e] for e in range(k))
        logit = outputs[k] + sum(weights["U"][k] / (1 + np.exp(-a)))
        note = k - F // 2
        if note >= 0 and not (before[note] and frame[note]):
            nats += 0.0 if frame[k] == frame[note] else np.inf
        else:
            nats += np.log1p(np.exp(-logit if frame[k] else logit))
    return nats


def tensors(states, dtype=torch.float64):
    """Frames and the previous frames, from states (T, ..., N)."""
    frames = torch.from_numpy(as_frames(states)).to(dtype)
    return frames, torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])


def plain_nats(output, h, frames, past):
    return output.nats(output(h), frames, past)


@pytest.mark.parametrize("before", list(itertools.product([OFF, STRUCK, HELD], repeat=3)))
def test_all_frames_of_a_small_keyboard_sum_to_one(before):
    """Each note is off, struck or held; all other patterns of six bits have probability 0."""
    output = make(3, 4)
    h = torch.randn(H, dtype=torch.float64).expand(64, 1, H)
    frames = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    past = torch.from_numpy(as_frames(np.array(before))).double()
    expected = [by_hand(output, h[0, 0], x.numpy(), past.numpy()) for x in frames]
    past = past.expand(64, 1, 6)
    for nats in (
        plain_nats(output, h, frames[:, None], past),
        output.score(h, frames[:, None], past),
    ):
        np.testing.assert_allclose(nats.detach().flatten(), expected, rtol=1e-12)
        assert torch.exp(-nats.detach()).sum() == pytest.approx(1, abs=1e-13)


def test_strikes_depend_on_each_other():
    """Guards against independent strikes: a chord would never be struck again as a whole."""
    output = make(2, 4)
    h, past = torch.ones(1, 1, H).double(), torch.tensor([[[1.0, 1.0, 1.0, 1.0]]]).double()

    def share_of_second(first):
        frames = torch.tensor([[[1, 1, first, second]] for second in (0, 1)]).double()
        nats = output.score(h.expand(2, 1, H), frames, past.expand(2, 1, 4))
        return float(torch.exp(-nats.detach())[1] / torch.exp(-nats.detach()).sum())

    assert abs(share_of_second(1) - share_of_second(0)) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(1, 1, 1), (11, 3, 7), (11, 3, 88), (40, 2, 89)])
@pytest.mark.parametrize("width", [1, 5, 64])
def test_compiled_score_is_the_plain_one(size, width, dtype):
    """In nats, logits and every gradient, weighted or not."""
    *shape, notes = size
    output = make(notes, width, hidden=13, end=width == 5, dtype=dtype)
    h = torch.randn(*shape, 13, dtype=dtype, requires_grad=True)
    frames, past = tensors(random_states(2, *size, density=0.4), dtype)
    weights, leaves = torch.rand(*shape, dtype=dtype), [h, *output.parameters()]
    theirs = plain_nats(output, h, frames, past)
    ours, total = (
        output.score(h, frames, past),
        output.weighted_score(h, frames, weights, past),
    )
    assert "NadeNats" in ours.grad_fn.name()
    assert "WeightedNadeNats" in total.grad_fn.name()
    slopes = torch.autograd.grad(theirs, leaves, weights, retain_graph=True)
    bound = 1e-12 if dtype == torch.float64 else 5e-6
    for a, b in zip(
        [
            *(ours, total, output.note_logits(h, frames)),
            *torch.autograd.grad(ours, leaves, weights),
            *torch.autograd.grad(total, leaves),
        ],
        [
            *(theirs, (theirs * weights).sum(), output.conditional_logits(output(h), frames)),
            *(*slopes, *slopes),
        ],
        strict=True,
    ):
        scale = b.detach().abs().max().clamp(min=0.1)
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=bound)


class Plain(torch.nn.Module):
    """The plain score as a module, so that its weights can be replaced."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, h, frames, past):
        return plain_nats(self.output, h, frames, past)


def test_gradients_are_those_of_the_score():
    model = Plain(make(3, 4))
    names, values = zip(*model.named_parameters(), strict=True)
    frames, past = tensors(random_states(3, 4, 2, 3))
    h = torch.randn(4, 2, H, dtype=torch.float64, requires_grad=True)

    def score(h, *values):
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, named, (h, frames, past))

    assert torch.autograd.gradcheck(score, (h, *values))


def test_frames_are_drawn_as_often_as_they_are_likely():
    """All possible frames of three notes, two sounding before: chi-square against exp(-nats)."""
    output, draws = make(3, 4), 20_000
    h = torch.randn(1, 1, H, dtype=torch.float64)
    past = torch.from_numpy(as_frames(np.array([STRUCK, OFF, HELD]))).double()
    frames = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    nats = output.score(h.expand(64, 1, H), frames[:, None], past.expand(64, 1, 6))
    expected = draws * (-nats.detach()).exp().flatten().numpy()
    uniforms = torch.from_numpy(np.random.default_rng(3).random((draws, 7)))
    with torch.no_grad():
        drawn = output.draw_frame(h[0].expand(draws, H), past.expand(draws, 6), uniforms, 1.0).frame
    counts = np.bincount((drawn.numpy() @ 2 ** np.arange(6)[::-1]).astype(int), minlength=64)
    possible = expected > 0
    assert possible.sum() == 18
    assert counts[~possible].sum() == 0
    assert expected[possible].min() > 5  # as the chi-square test requires
    assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-3


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("width", [1, 13])
def test_compiled_and_plain_sampling_draw_the_same(
    make_config, struck_dataset, monkeypatch, width, end
):
    """Not one number may differ, across a chunk boundary; no impossible frame is drawn."""
    monkeypatch.setattr(sampler, "CHUNK", 12)
    torch.manual_seed(7)
    config = make_config(hidden=21, output="nade", nade_hidden=width, end=end)
    model = build_model(config, struck_dataset.frame)
    with torch.no_grad():
        model.output.linear.weight.mul_(4)
        model.output.linear.bias[:88] = -1
        model.output.V.normal_()
        model.output.U.normal_(0, 0.5)
        if end:
            model.output.linear.bias[-1] = -6
    before = copy.deepcopy(model.state_dict())
    for temperature in (1.0, 0.8, 0.0):
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
        frames = np.concatenate([chunk for chunk, _ in drawn[0]]).astype(bool)
        sounding, struck = frames[:, :88], frames[:, 88:]
        sounded = np.concatenate([np.zeros((1, 88), bool), sounding[:-1]])
        assert not (struck & ~sounding).any()
        assert struck[sounding & ~sounded].all()
        again = struck[sounding & sounded]
        assert temperature == 0 or 0.05 < again.mean() < 0.95
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_it_learns_strikes(make_config, struck_dataset, train, tmp_path):
    """Their cost, reported alongside the nats, falls in training."""
    options = {"data": str(struck_dataset.folder), "output": "nade", "nade_hidden": 3}
    config = make_config(**options, hidden=7, learning_rate=0.05, epochs=10)
    untrained = build_model(config, struck_dataset.frame)
    train(config, tmp_path / "run", data=struck_dataset)
    trained = load_run(tmp_path / "run").model
    cost = [
        likelihood(model, struck_dataset["train"]).figures["onset_nats_per_frame"]
        for model in (untrained, trained)
    ]
    assert 0 < cost[1] < 0.9 * cost[0]
