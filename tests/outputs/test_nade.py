"""The NADE output: a distribution over frames, which compiled scores and draws follow."""

import itertools

import numpy as np
import pytest
import torch
from made import nade as make
from made import some_frames
from onsets import HELD, OFF, STRUCK, as_frames
from scores import assert_close, plain

from seqmodel.outputs.nade import NadeOutput

H = 5


def all_frames(numbers):
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=numbers)), dtype=torch.float64)


def by_hand(output, h, frame):
    """The conditional probabilities of one frame's numbers in NumPy, by a loop over them."""
    weights = {name: value.double().numpy() for name, value in output.state_dict().items()}
    outputs = weights["linear.weight"] @ h.double().numpy() + weights["linear.bias"]
    F, K = weights["U"].shape
    chances = []
    for k in range(F):
        a = outputs[F : F + K] + sum(float(frame[e]) * weights["V"][e] for e in range(k))
        chances.append(1 / (1 + np.exp(-outputs[k] - sum(weights["U"][k] / (1 + np.exp(-a))))))
    return np.array(chances)


def nats_by_hand(output, h, frame, before):
    """-log p of one frame, by the rule of which numbers are free."""
    p = by_hand(output, h, frame)
    nats = -np.log(np.where(frame > 0, p, 1 - p))
    for note in range(len(frame) // 2 if before is not None else 0):
        if not (before[note] and frame[note]):
            strike = len(frame) // 2 + note
            nats[strike] = 0.0 if frame[strike] == frame[note] else np.inf
    return nats.sum()


# ---- the specification --------------------------------------------------------------------------


@pytest.mark.parametrize("end", [False, True])
def test_each_note_is_given_those_below_it(end):
    """Guards against a note that sees itself or those above, and against mixed-up columns."""
    output = make(6, 3, end=end)
    h, (frames, _) = torch.randn(4, 2, H, dtype=torch.float64), some_frames(4, 2, 6)
    logits, nats = output.note_logits(h, frames), plain(output, h, frames)
    for t, b in itertools.product(range(4), range(2)):
        frame = frames[t, b].numpy()
        p = by_hand(output, h[t, b], frame)
        np.testing.assert_allclose(torch.sigmoid(logits[t, b]), p, rtol=1e-12)
        exact = nats_by_hand(output, h[t, b], frame, None)
        assert nats[t, b].item() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("before", list(itertools.product([OFF, STRUCK, HELD], repeat=3))[::4])
def test_with_onsets_the_likelihood_sums_to_one(before):
    """Each note is off, struck or held; all other patterns of six bits have probability 0."""
    output, frames = make(3, 4, onsets=True), all_frames(6)
    h = torch.randn(H, dtype=torch.float64).expand(64, 1, H)
    past = torch.from_numpy(as_frames(np.array(before))).double()
    expected = [nats_by_hand(output, h[0, 0], x.numpy(), past.numpy()) for x in frames]
    given = h, frames[:, None], past.expand(64, 1, 6)
    for nats in (plain(output, *given), output.score(*given)):
        np.testing.assert_allclose(nats.detach().flatten(), expected, rtol=1e-12)
        assert torch.exp(-nats.detach()).sum() == pytest.approx(1, abs=1e-13)


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
    for nats in (plain(output, h, frame), output.score(h, frame)):
        assert nats.item() == pytest.approx(exact, rel=2 * torch.finfo(dtype).eps)


def test_it_starts_at_the_independent_marginals():
    """Whatever the hidden units do initially, and for any lower notes."""
    output = NadeOutput(H, 5, 7, end=True)
    output.start_at_marginals(np.array([0, 1, 30, 99, 100]), frames=100, pieces=4)
    h, frames = torch.zeros(32, 1, H), all_frames(5).float()[:, None]
    p = torch.sigmoid(output.note_logits(h, frames)).squeeze(1)
    expected = [(n + 0.5) / 101 for n in [0, 1, 30, 99, 100]]
    np.testing.assert_allclose(p, np.tile(expected, (32, 1)), rtol=1e-5)
    ends = output.end_score(h[0, 0], torch.ones(()))
    assert float(torch.exp(-ends).detach()) == pytest.approx(4.5 / 101, rel=1e-5)


def test_its_hidden_units_do_not_stay_alike():
    """Units that start alike learn alike: K of them would be worth one."""
    output = NadeOutput(H, 6, 4)
    optimizer = torch.optim.Adam(output.parameters(), 0.01)
    h, (frames, _) = torch.randn(50, 1, H), some_frames(50, 1, 6, dtype=torch.float32)
    for _ in range(3):
        optimizer.zero_grad()
        output.score(h, frames).sum().backward()
        optimizer.step()
    for matrix in (output.V, output.U):
        assert torch.linalg.matrix_rank(matrix) == 4


# ---- compiled -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_logits_are_the_plain_ones(dtype):
    output = make(89, 5, onsets=True, dtype=dtype)
    h, (frames, _) = torch.randn(11, 3, H, dtype=dtype), some_frames(11, 3, 89, onsets=True)
    logits = output.conditional_logits(output(h), frames.to(dtype))
    bound = 1e-12 if dtype == torch.float64 else 5e-6
    assert_close([output.note_logits(h, frames.to(dtype))], [logits], bound)


# ---- the draw -----------------------------------------------------------------------------------


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_the_temperature_divides_each_conditional_logit(temperature, onsets):
    """Each uniform is compared with a chance given the numbers drawn, where a number is free."""
    output = make(9, 4, end=True, onsets=onsets)
    F = output.frame_size
    h, uniforms = torch.randn(100, H, dtype=torch.float64), torch.rand(100, F + 1).double()
    past = torch.cat([(torch.rand(100, 9) < 0.5).double(), torch.ones(100, F - 9)], 1)
    with torch.no_grad():
        drawn = output.draw_frame(h, past, uniforms, temperature)
    for row, frame in enumerate(drawn.frame.numpy()):
        p = by_hand(output, h[row], frame)
        if temperature:
            p = 1 / (1 + np.exp(-np.log(p / (1 - p)) / temperature))
        expected = (uniforms[row, :F].numpy() if temperature else 0.5) < p
        if onsets:
            expected[9:] = expected[:9] & (expected[9:] | (past[row, :9].numpy() == 0))
        np.testing.assert_array_equal(frame, expected)
        logit = output(h[row])[-1]
        assert bool(drawn.ended[row]) == bool(uniforms[row, -1] < torch.sigmoid(logit))
