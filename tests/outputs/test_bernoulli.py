"""The Bernoulli output: exact nats, what strikes cost, and draws by their rule."""

import numpy as np
import pytest
import torch
from onsets import HELD, OFF, STRUCK, as_frames, random_states
from scores import both, compiled
from torch.distributions import Bernoulli

from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.outputs.protocol import Window


def tensors(states, dtype=torch.float64):
    """Frames and the previous frames, from states (T, ..., N)."""
    frames = torch.from_numpy(as_frames(states)).to(dtype)
    return frames, torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])


def identity(notes, *, onsets=False):
    """An output with `end` whose h are its logits."""
    numbers = notes * (1 + onsets)
    output = BernoulliOutput(numbers + 1, notes, end=True, onsets=onsets)
    with torch.no_grad():
        output.linear.weight.copy_(torch.eye(numbers + 1))
        output.linear.bias.zero_()
    return output


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nats_and_slopes_of_a_confident_model_are_exact(score, dtype):
    """log(sigmoid(-1e4)) is -inf, log1p(exp(-30)) is rounded away next to 30."""
    output = identity(6).to(dtype)
    for logits, frame, nats, slopes in (
        ([1e4, -1e4, 1e4, -1e4, 40, -40], [1, 0, 0, 1, 0, 1], 20_080, [0, 0, 1, -1, 1, -1]),
        ([-12] * 6, [0] * 6, 6 * np.log1p(np.exp(-12.0)), [1 / (1 + np.exp(12))] * 6),
        ([30, -30] * 3, [1, 0] * 3, 6 * np.log1p(np.exp(-30.0)), [-1, 1] / (1 + np.exp(30.0))),
    ):
        h = torch.tensor([[[*logits, 0]]], dtype=dtype, requires_grad=True)
        found = score(output, h, torch.tensor([[frame]], dtype=dtype))
        found.sum().backward()
        eps = torch.finfo(dtype).eps
        close = {"rtol": 60 * eps, "atol": 1e-30 if score is compiled else 72 * eps}
        np.testing.assert_allclose(found.item(), nats, **close)
        np.testing.assert_allclose(h.grad.flatten()[:6], np.resize(slopes, 6), **close)


def test_nothing_is_scored_or_drawn_without_the_frames_before():
    """Guards against treating all bits as free: a wrong figure that nobody would notice."""
    output = BernoulliOutput(4, 3, onsets=True)
    h, frames, weights = torch.zeros(2, 1, 4), torch.zeros(2, 1, 6), torch.ones(2, 1)
    for attempt in (
        lambda: output.score(h, frames),
        lambda: output.weighted(h, frames, weights),
        lambda: output.nats(output(h), frames),
        lambda: output.draw_frame(h[:, 0], None, torch.zeros(2, 7), 1.0),
    ):
        with pytest.raises(ValueError, match="given the frames before"):
            attempt()


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_a_uniform_below_the_probability_is_a_note(temperature, onsets):
    """The documented rule that makes draws reproducible; [0, 1), so that p = 0 never sounds.

    Never held after silence, never struck without sounding.
    """
    logits = torch.tensor(
        [-200.0, 0.5, 0.7, 40.0, 40.0, -1.0, 0.3, -3.0, -1.0]
    )  # the last: the end
    uniforms = torch.from_numpy(np.random.default_rng(5).random((500, 9)))
    uniforms[0] = 0
    p = torch.sigmoid(logits / temperature) if temperature else (logits > 0).float()
    expected, past = (uniforms < p)[:, :8], None
    if onsets:
        states = np.array([STRUCK, OFF, HELD, STRUCK])
        past = torch.from_numpy(as_frames(states)).float().expand(500, 8)
        sounds, again = expected.chunk(2, 1)
        expected = torch.cat([sounds, sounds & (again | (past[:, :4] == 0))], 1)
    output, h = identity(8 // (1 + onsets), onsets=onsets), logits.expand(500, 9)
    assert torch.equal(output.draw_frame(h, past, uniforms, temperature).frame > 0, expected)
    ends = output.ends(h, uniforms)  # ignores temperature
    assert torch.equal(ends, uniforms[:, 8] < torch.sigmoid(torch.tensor(-1.0)))


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
