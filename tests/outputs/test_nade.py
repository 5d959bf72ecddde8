"""The NADE output: a distribution over frames, which compiled scores and draws follow."""

import itertools

import numpy as np
import pytest
import torch
from made import nade as make
from made import some_frames
from scores import plain

from seqmodel.outputs.nade import NadeOutput

H = 5


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


@pytest.mark.parametrize(("notes", "onsets", "end"), [(6, False, True), (89, True, False)])
def test_each_note_is_given_those_below_it(notes, onsets, end):
    """Guards against a note that sees itself or those above, and against mixed-up columns."""
    output = make(notes, 3, end=end, onsets=onsets)
    h = torch.randn(4, 2, H, dtype=torch.float64)
    frames, past = some_frames(4, 2, notes, onsets=onsets)
    logits, nats = output.note_logits(h, frames), plain(output, h, frames, past)
    for t, b in itertools.product(range(4), range(2)):
        frame = frames[t, b].numpy()
        p = by_hand(output, h[t, b], frame)
        np.testing.assert_allclose(torch.sigmoid(logits[t, b]), p, rtol=1e-12)
        exact = -np.log(np.where(frame > 0, p, 1 - p))
        if onsets:
            exact[notes:] *= frame[:notes] * past[t, b, :notes].numpy()  # where strikes are free
        assert nats[t, b].item() == pytest.approx(exact.sum(), rel=1e-12)


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


class Train:
    """A training split, as far as an output without onsets reads it."""

    frames = 100

    def totals(self):
        return np.array([0, 1, 30, 99, 100])

    def __len__(self):
        return 4


def test_it_starts_at_the_independent_marginals():
    """Whatever the hidden units do initially, and for any lower notes."""
    output = NadeOutput(H, 5, 7, end=True)
    output.start_at(Train())
    h, frames = torch.zeros(32, 1, H), (torch.rand(32, 1, 5) < 0.5).float()
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
