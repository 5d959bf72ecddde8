"""The Bernoulli output: exact nats, a start at the marginals, and draws that follow the nats."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Bernoulli

from seqmodel.outputs.bernoulli import BernoulliOutput


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


def test_gradients_are_those_of_the_score():
    logits, frames = (tensor[:2] for tensor in logits_and_frames(more=1))
    output = identity(6).double()
    last = frames[..., 0]
    assert torch.autograd.gradcheck(
        lambda x: output.nats(x, frames) + output.end_score(x, last), logits.requires_grad_()
    )


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


def test_temperature_zero_takes_the_likelier_value():
    output = identity(4)
    logits = torch.tensor([0.01, -0.01, 5.0, -5.0, -1.0])
    for uniform in (0.0, 0.5, 0.999):
        frame = output.draw(logits, None, torch.full((5,), uniform), 0.0)
        ends = output.ends(logits, torch.full((5,), uniform))
        assert frame.tolist() == [1, 0, 1, 0]
        assert bool(ends) == (uniform < 1 / (1 + np.e))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("size", "end"),
    [
        ((1, 1, 1, 1), True),
        ((7, 5, 33, 88), False),
        ((200, 1, 195, 17), True),
        ((33, 4, 3, 31), False),
    ],
)
def test_compiled_score_is_the_plain_one(size, end, dtype):
    """In value and every gradient, with large and saturated logits; the compiled path must run."""
    T, B, H, D = size
    torch.manual_seed(0)
    output = BernoulliOutput(H, D, end=end).to(dtype)
    with torch.no_grad():
        output.linear.weight.mul_(20)
        output.linear.bias[0] = 200
    h = torch.randn(T, B, H, dtype=dtype, requires_grad=True)
    frames = (torch.rand(T, B, D) < 0.3).to(dtype)
    given = torch.randn(T, B, dtype=dtype)
    leaves = [h, *output.parameters()]
    ours = output.score(h, frames)
    assert "LinearNats" in ours.grad_fn.name()
    plain = output.nats(output(h), frames)
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    for a, b in zip(
        [ours, *torch.autograd.grad(ours, leaves, given)],
        [plain, *torch.autograd.grad(plain, leaves, given)],
        strict=True,
    ):
        scale = b.detach().abs().max().clamp(min=0.1)
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("end", [False, True])
def test_weighted_score_is_the_weighted_sum(end, dtype):
    """In value and every gradient; the gradient that arrives at the sum must not be lost."""
    torch.manual_seed(0)
    output = BernoulliOutput(33, 17, end=end).to(dtype)
    h = torch.randn(40, 5, 33, dtype=dtype, requires_grad=True)
    frames, weights = (torch.rand(40, 5, 17) < 0.3).to(dtype), torch.rand(40, 5, dtype=dtype)
    leaves = [h, *output.parameters()]
    ours = output.weighted_score(h, frames, weights)
    assert "WeightedNats" in ours.grad_fn.name()
    plain = (output.nats(output(h), frames) * weights).sum()
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    for factor in (1.0, -2.5):
        for a, b in zip(
            [ours, *torch.autograd.grad(factor * ours, leaves, retain_graph=True)],
            [plain, *torch.autograd.grad(factor * plain, leaves, retain_graph=True)],
            strict=True,
        ):
            scale = b.detach().abs().max().clamp(min=0.1)
            torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=bound)


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


def test_score_rejects_h_and_frames_of_the_wrong_width():
    """It used to read beyond the buffers."""
    output = BernoulliOutput(33, 17)
    frames = torch.zeros(4, 3, 17)
    with pytest.raises(ValueError, match=r"bernoulli_forward: h must be float32 \(12, 33\)"):
        output.score(torch.zeros(4, 3, 32), frames)
    with pytest.raises(ValueError, match=r"frames must be float32 \(12, 17\)"):
        output.score(torch.zeros(4, 3, 33), frames[..., :16])
