"""The Bernoulli output: exact nats, a start at the marginals, and draws that follow the nats.

With onsets also normalised, and without impossible frames.
"""

import itertools

import numpy as np
import pytest
import torch
from onsets import HELD, OFF, STRUCK, as_frames, random_states
from scipy import stats
from scores import assert_compiled_is_plain
from torch.distributions import Bernoulli

from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.outputs.notes import free
from seqmodel.outputs.protocol import Window


def tensors(states, dtype=torch.float64):
    """Frames and the previous frames, from states (T, ..., N)."""
    frames = torch.from_numpy(as_frames(states)).to(dtype)
    return frames, torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])


def logits_and_frames(notes=6, scale=3.0, more=0):
    draw = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(9, 4, notes + more, generator=draw, dtype=torch.float64)
    frames = (torch.rand(9, 4, notes, generator=draw, dtype=torch.float64) < 0.4).double()
    return logits, frames


@pytest.mark.parametrize("end", [False, True])
def test_nats_are_those_of_independent_bernoullis(end):
    """With `end` the extra logit must not leak into the frame's score."""
    logits, frames = logits_and_frames(more=int(end))
    ours = BernoulliOutput(3, 6, end=end).nats(logits, frames)
    theirs = -Bernoulli(logits=logits[..., :6]).log_prob(frames).sum(-1)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nats_of_a_confident_model_are_finite_and_exact(dtype):
    """log(sigmoid(-1e4)) is -inf, and log(1 - sigmoid(40)) is log(0) in float32."""
    logits = torch.tensor([[1e4, -1e4, 1e4, -1e4, 40.0, -40.0]], dtype=dtype, requires_grad=True)
    frames = torch.tensor([[1, 0, 0, 1, 0, 1]], dtype=dtype)
    nats = BernoulliOutput(3, 6).nats(logits, frames)
    assert nats.item() == 20_080.0
    nats.backward()
    assert logits.grad.tolist() == [[0, 0, 1, -1, 1, -1]]
    sure = torch.full((1, 6), -12.0, dtype=dtype)  # each note off: log1p(exp(-12)) nats
    nats = BernoulliOutput(3, 6).nats(sure, torch.zeros(1, 6, dtype=dtype))
    error = 6 * 12 * torch.finfo(dtype).eps
    assert nats.item() == pytest.approx(6 * np.log1p(np.exp(-12.0)), rel=0, abs=error)


def identity(notes):
    """An output with `end` whose h are its logits."""
    output = BernoulliOutput(notes + 1, notes, end=True)
    with torch.no_grad():
        output.linear.weight.copy_(torch.eye(notes + 1))
        output.linear.bias.zero_()
    return output


def test_the_end_is_scored_by_the_last_logit_alone():
    logits, _ = logits_and_frames(more=1)
    last = torch.zeros(9, 4, dtype=torch.float64)
    last[-1] = 1
    ours = identity(6).double().end_score(logits, last)
    torch.testing.assert_close(ours, -Bernoulli(logits=logits[..., 6]).log_prob(last))


@pytest.mark.parametrize("end", [False, True])
def test_it_starts_at_the_marginals(end):
    """A note that never or always sounds may still change: half a count for either outcome."""
    counts = np.array([0, 1, 30, 99, 100])
    output = BernoulliOutput(3, 5, end=end)
    output.start_at_marginals(counts, frames=100, pieces=4)
    p = torch.sigmoid(output(torch.zeros(3))).detach().numpy()
    expected = [(n + 0.5) / 101 for n in [0, 1, 30, 99, 100] + [4] * end]
    np.testing.assert_allclose(p, expected, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_notes_are_drawn_as_often_as_their_probability_says(temperature):
    logits = torch.tensor([-30.0, -3.0, -1.0, 0.0, 0.7, 2.0, 30.0, -1.0])  # the last: the end
    draws, random = 20_000, np.random.default_rng(5)
    uniforms = torch.from_numpy(random.random((draws, 8), np.float32))
    output = identity(7)
    frames = output.draw(logits.expand(draws, 8), None, uniforms, temperature)
    ends = output.ends(logits.expand(draws, 8), uniforms)
    assert set(frames.unique().tolist()) == {0.0, 1.0}
    drawn = torch.cat([frames, ends.float()[:, None]], 1).sum(0).numpy()
    scaled = np.append(logits[:7].numpy() / temperature, -1.0)  # the end ignores temperature
    p = 1 / (1 + np.exp(-scaled.astype(float)))
    assert (stats.binom.cdf(drawn, draws, p) > 1e-4).all()
    assert (stats.binom.sf(drawn - 1, draws, p) > 1e-4).all()
    pairs = np.corrcoef(frames[:, 1:6].numpy().T) - np.eye(5)
    assert abs(pairs).max() < 5 / np.sqrt(draws)  # independent of each other


def test_a_uniform_below_the_probability_is_a_note():
    """The documented rule that makes draws reproducible; [0, 1), so that p = 0 never sounds."""
    p = torch.tensor([0.25, 0.25, 0.25, 0.75])
    uniforms = torch.tensor([0.2499, 0.2501, 0.0, 0.0, 0.0])
    output = BernoulliOutput(3, 4)
    assert output.draw(torch.logit(p), None, uniforms, 1.0).tolist() == [1, 0, 1, 1]
    assert not output.ends(torch.zeros(1, 3), uniforms[None])  # without `end` no piece ever ends
    never = torch.full((5,), -200.0)
    assert output.draw(never, None, torch.zeros(5), 1.0).sum() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("size", "end", "onsets"),
    [
        *(((1, 1, 1, 1), True, True), ((7, 5, 33, 88), False, True)),
        *(((200, 1, 195, 17), True, False), ((33, 4, 3, 31), False, False)),
    ],
)
def test_compiled_score_is_the_plain_one(size, end, onsets, dtype):
    """With large and saturated logits."""
    T, B, H, D = size
    torch.manual_seed(0)
    output = BernoulliOutput(H, D, end=end, onsets=onsets).to(dtype)
    with torch.no_grad():
        output.linear.weight.mul_(20)
        output.linear.bias[[0, -1]] = 200
    h = torch.randn(T, B, H, dtype=dtype)
    frames, past = (torch.rand(T, B, D) < 0.3).to(dtype), None
    if onsets:
        frames, past = tensors(random_states(2, T, B, D, density=0.7), dtype)
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    assert_compiled_is_plain(output, h, frames, past, bound=bound)


def test_compiled_score_keeps_the_digits_of_a_confident_model():
    """log1p(exp(-30)) is rounded away next to 30 if the logit is subtracted afterwards."""
    output = BernoulliOutput(1, 1).double()
    with torch.no_grad():
        output.linear.weight.fill_(1)
        output.linear.bias.fill_(0)
    h = torch.tensor([[[30.0]], [[-30.0]]], dtype=torch.float64, requires_grad=True)
    nats = output.score(h, torch.tensor([[[1.0]], [[0.0]]], dtype=torch.float64))
    nats.sum().backward()
    exact = np.log1p(np.exp(-30.0))
    np.testing.assert_allclose(nats.detach().flatten(), [exact, exact], rtol=1e-14)
    slope = 1 / (1 + np.exp(30.0))
    np.testing.assert_allclose(h.grad.flatten(), [-slope, slope], rtol=1e-14)


def test_compiled_score_propagates_nan():
    """Guards against scoring a diverged model as a sound one."""
    output = BernoulliOutput(2, 3)
    h = torch.zeros(2, 1, 2)
    h[1, 0, 0] = float("nan")
    nats = output.score(h, torch.zeros(2, 1, 3))
    assert nats.isnan().tolist() == [[False], [True]]


# ---- onsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", list(itertools.product([OFF, STRUCK, HELD], repeat=3))[::4])
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


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_notes_are_struck_after_silence_and_otherwise_at_their_probability(temperature):
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
    frames, past = tensors(random_states(6, 30, 2, 5))
    output = BernoulliOutput(4, 5, onsets=True).double()
    h = torch.randn(30, 2, 4, dtype=torch.float64)
    inside = torch.arange(30)[:, None] < torch.tensor([30, 17])
    window = Window(h, frames, past, inside, inside)
    with torch.no_grad():
        sums = output.figure_sums(window)
        nats = output.nats(output(h), frames, past)[inside].sum()
        logits = output(h)[inside]
    values = output.figures(sums, nats=float(nats), frames=47, pieces=2)
    assert list(values) == ["accuracy", "precision", "recall", "onset_nats_per_frame"]
    sounding = frames[inside][:, :5]
    roll = -Bernoulli(logits=logits[:, :5]).log_prob(sounding).sum()
    assert values["onset_nats_per_frame"] == pytest.approx(float(nats - roll) / 47, rel=1e-12)
    right = ((logits[:, :5] > 0) & (sounding > 0)).sum().item()
    assert values["recall"] == right / (sounding > 0).sum().item()
    assert output.describe(values)[0].startswith("  of it, struck or held ")
