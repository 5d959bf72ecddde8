"""The Bernoulli output with onsets: exact, normalised, and without impossible frames."""

import itertools

import numpy as np
import pytest
import torch
from onsets import HELD, OFF, STRUCK, as_frames, random_states
from scipy import stats
from torch.distributions import Bernoulli

from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.outputs.notes import free


def tensors(states, dtype=torch.float64):
    """Frames and the previous frames, from states (T, ..., N)."""
    frames = torch.from_numpy(as_frames(states)).to(dtype)
    return frames, torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])


@pytest.mark.parametrize("before", list(itertools.product([OFF, STRUCK, HELD], repeat=3)))
def test_all_frames_of_a_small_keyboard_sum_to_one(before):
    """Each note is off, struck or held; all other patterns of six bits have probability 0."""
    torch.manual_seed(0)
    output = BernoulliOutput(4, 3, onsets=True).double()
    h = torch.randn(4, dtype=torch.float64).expand(64, 1, 4)
    frames = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    past = torch.from_numpy(as_frames(np.array(before))).double().expand(64, 1, 6)
    for nats in (
        output.nats(output(h), frames[:, None], past),
        output.score(h, frames[:, None], past),
    ):
        p = torch.exp(-nats.detach()).flatten()
        assert p.sum() == pytest.approx(1, abs=1e-14)
        ways = np.prod([2 if state == OFF else 3 for state in before])  # held only if it sounded
        assert (p > 0).sum() == ways


def test_the_roll_costs_the_same_and_each_free_strike_one_bernoulli():
    """Keeps figures comparable: the score minus onset_nats is that of the roll alone."""
    frames, past = tensors(random_states(1, 40, 3, 7))
    logits = 2 * torch.randn(40, 3, 14, dtype=torch.float64)
    output = BernoulliOutput(2, 7, onsets=True).double()
    roll = BernoulliOutput(2, 7).double().nats(logits[..., :7], frames[..., :7])
    nats = output.nats(logits, frames, past)
    again = (frames[..., :7] * past[..., :7]).bool()
    coins = -Bernoulli(logits=logits[..., 7:]).log_prob(frames[..., 7:])
    assert again.float().mean() > 0.1
    torch.testing.assert_close(nats, roll + coins.where(again, torch.zeros(())).sum(-1))
    torch.testing.assert_close(output.onset_nats(logits, frames, past), nats - roll)
    assert torch.equal(free(frames, past), again)


def test_determined_strikes_have_no_cost_and_no_gradient():
    """However confident and wrong their logits are; the first frame of a piece follows silence."""
    frames, past = tensors(np.array([[STRUCK, OFF], [OFF, STRUCK], [OFF, OFF]])[:, None])
    output = BernoulliOutput(2, 2, onsets=True).double()
    with torch.no_grad():
        output.linear.bias[2:] = torch.tensor([-500.0, 500.0])
    h = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)
    roll = BernoulliOutput(2, 2).double()
    roll.linear.load_state_dict({k: v[:2] for k, v in output.linear.state_dict().items()})
    for nats in (output.nats(output(h), frames, past), output.score(h, frames, past)):
        torch.testing.assert_close(nats, roll.nats(roll(h), frames[..., :2]))
        (slope,) = torch.autograd.grad(nats.sum(), output.linear.weight)
        assert (slope[:2] != 0).all()
        assert (slope[2:] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 1, 1), (7, 5, 33, 88), (200, 1, 195, 17), (33, 4, 3, 31)])
def test_compiled_score_is_the_plain_one(size, end, dtype):
    """In value and every gradient, weighted or not, across the border between a frame's halves."""
    T, B, H, N = size
    torch.manual_seed(0)
    output = BernoulliOutput(H, N, end=end, onsets=True).to(dtype)
    with torch.no_grad():
        output.linear.weight.mul_(20)
        output.linear.bias[[0, N]] = 200
    h = torch.randn(T, B, H, dtype=dtype, requires_grad=True)
    frames, past = tensors(random_states(2, T, B, N, density=0.7), dtype)
    weights, leaves = torch.rand(T, B, dtype=dtype), [h, *output.parameters()]
    ours, plain = output.score(h, frames, past), output.nats(output(h), frames, past)
    total = output.weighted_score(h, frames, weights, past)
    assert "LinearNats" in ours.grad_fn.name()
    assert "WeightedNats" in total.grad_fn.name()
    gradients = torch.autograd.grad(plain, leaves, weights, retain_graph=True)
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    of_score, of_total = (
        torch.autograd.grad(ours, leaves, weights),
        torch.autograd.grad(total, leaves),
    )
    for a, b in zip(
        [ours, total, *of_score, *of_total],
        [plain, (plain * weights).sum(), *gradients, *gradients],
        strict=True,
    ):
        scale = b.detach().abs().max().clamp(min=0.1)
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=bound)


def test_nothing_is_scored_or_drawn_without_the_frames_before():
    """Guards against treating all bits as free: a wrong figure that nobody would notice."""
    output = BernoulliOutput(4, 3, onsets=True)
    h, frames, weights = torch.zeros(2, 1, 4), torch.zeros(2, 1, 6), torch.ones(2, 1)
    for attempt in (
        lambda: output.score(h, frames),
        lambda: output.weighted_score(h, frames, weights),
        lambda: output.nats(output(h), frames),
        lambda: output.draw(output(h), None, torch.zeros(2, 1, 7), 1.0),
    ):
        with pytest.raises(ValueError, match="given the frames before"):
            attempt()


def test_gradients_are_those_of_the_score():
    frames, past = tensors(random_states(3, 4, 2, 5))
    output = BernoulliOutput(3, 5, onsets=True).double()
    logits = torch.randn(4, 2, 10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: output.nats(x, frames, past), logits)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_notes_are_struck_after_silence_and_otherwise_at_their_probability(
    temperature,
):
    """Never held after silence, never struck without sounding; a stated uniform decides each."""
    logits = torch.tensor([0.5, 0.5, 40.0, -40.0, -1.0, -1.0, 0.3, 40.0])
    past = torch.from_numpy(as_frames(np.array([OFF, HELD, STRUCK, STRUCK]))).float()
    draws, random = 20_000, np.random.default_rng(5)
    uniforms = torch.from_numpy(random.random((draws, 9)))
    output = BernoulliOutput(3, 4, onsets=True)
    frames = output.draw(logits.expand(draws, 8), past.expand(draws, 8), uniforms, temperature)
    sounding, struck = frames.chunk(2, -1)
    assert (struck[:, 0] == sounding[:, 0]).all()
    assert (struck <= sounding).all()
    assert (sounding[:, 2:].mean(0) == torch.tensor([1.0, 0.0])).all()
    if temperature == 0:
        assert frames[0].tolist() == [1, 1, 1, 0, 1, 0, 1, 0]
        assert (frames == frames[0]).all()
        return
    for note, logit in ((1, -1.0), (2, 0.3)):
        p = 1 / (1 + np.exp(-logit / temperature))
        on = sounding[:, note] == 1
        drawn, of = int(struck[on, note].sum()), int(on.sum())
        assert 1e-4 < stats.binom.cdf(drawn, of, p) < 1 - 1e-4
        below = uniforms[on, 4 + note] < p
        assert torch.equal(struck[on, note] == 1, below)


def test_figures_count_notes_and_report_the_cost_of_strikes():
    """Guards against strikes counted as notes in the accuracy, and changes in the roll's nats."""
    from seqmodel.outputs.protocol import Window

    frames, past = tensors(random_states(6, 30, 2, 5))
    output = BernoulliOutput(4, 5, onsets=True).double()
    h = torch.randn(30, 2, 4, dtype=torch.float64)
    inside = torch.arange(30)[:, None] < torch.tensor([30, 17])
    window = Window(h, frames, past, torch.tensor([30, 17]), inside, inside)
    figures = output.figures()
    with torch.no_grad():
        sums = figures.sums(window)
        nats = output.nats(output(h), frames, past)[inside].sum()
        logits = output(h)[inside]
    values = figures.values(sums, nats=float(nats), frames=47, pieces=2)
    assert list(values) == ["accuracy", "precision", "recall", "onset_nats_per_frame"]
    sounding = frames[inside][:, :5]
    roll = -Bernoulli(logits=logits[:, :5]).log_prob(sounding).sum()
    assert values["onset_nats_per_frame"] == pytest.approx(float(nats - roll) / 47, rel=1e-12)
    right = ((logits[:, :5] > 0) & (sounding > 0)).sum().item()
    assert values["recall"] == right / (sounding > 0).sum().item()
    assert output.describe(values)[0].startswith("  of it, struck or held ")
