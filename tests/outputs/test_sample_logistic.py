"""Discretised logistics around an anchor: probabilities of 16-bit levels, one row per sample."""

import math

import numpy as np
import pytest
import torch
from made import STEP
from made import anchored_rows as random_rows
from made import sample_logistic as make
from scipy import special
from scores import (
    LEVELS,
    assert_compiled_is_plain,
    assert_nats_are,
    both,
    chosen,
    compiled,
    exact_nats,
    uniforms_of,
)

from seqmodel.outputs.protocol import Window

H, S, K = 9, 3, 4


def mixture(output, row):
    """Logits, raw means and raw scales (K,) of one row, by the equations."""
    row = row.numpy()
    outputs = output.linear.weight.detach().numpy() @ row + output.linear.bias.detach().numpy()
    logits, offsets, log_scales = np.split(outputs, 3)
    return logits, row[-2] + row[-1] * offsets, STEP / 10 + row[-1] * np.exp(log_scales)


def nats_of(output, row, sample):
    """-log P of a raw sample, by the equations."""
    parts, fine = mixture(output, row), max(1 - row[-4].item(), 2.0**-20)
    spacing = row[-3].item()
    if spacing <= STEP:
        return exact_nats(sample, *parts)
    p = fine * math.exp(-exact_nats(sample, *parts, uniform=0))
    if sample % spacing == 0:
        p += (1 - fine) * math.exp(-exact_nats(sample, *parts, step=spacing, uniform=0))
    return -math.log((1 - 2**-40) * p + 2**-56)


@both
def test_nats_are_those_of_the_equations(score):
    """Recomputed by loops: which row is which sample's, units, tails, floor, uniform share."""
    h, frames = random_rows(4)
    frames[0, 0, 0], frames[1, 1, 2], frames[2, 0, 0] = -1.0, 32767 / 32768, 1 - 16 * STEP
    h[0, 0, -2], h[5, 1, -2], h[6, 0, -2] = -1.0, 1.0, 1.0  # their anchors
    frames[2, 1, 0], frames[3, 1, 0] = 1 - STEP, 0.9
    h[3 * S, 0, -1] = STEP / 100
    assert_nats_are(nats_of, score, make(), rows=(h, frames), rel=1e-10)


@pytest.mark.parametrize("level", [STEP / 1000, 0.01, 1e6])
@pytest.mark.parametrize("anchor", [-1.0, 0.7, 30.0])
@pytest.mark.parametrize(("certainty", "spacing"), [(0.0, 1), (0.4, 256), (1.0, 32768)])
def test_probabilities_of_all_levels_sum_to_one(anchor, level, certainty, spacing):
    """Scales far below a step and far above the range, anchors outside it: tails included."""
    output = make(frame_size=1)
    h = torch.randn(H, dtype=torch.float64)
    h[-4:] = torch.tensor([certainty, spacing * STEP, anchor, level])
    output.linear.weight.requires_grad_(False)[:, -2:] = 0
    nats = compiled(output, h.expand(1, 65536, H), LEVELS.view(1, -1, 1))
    assert nats.isfinite().all()
    assert (nats > -1e-12).all()
    assert torch.exp(-nats).sum().item() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [1e-30, STEP / 2, 2.0])
@pytest.mark.parametrize("log_scale", [-1000.0, 0.0, 20.0, 1000.0])
def test_compiled_score_is_the_plain_one_at_any_level(level, log_scale, dtype):
    """The compiled exp and log take normal numbers only; nothing may become infinite."""
    output = make(components=2).to(dtype)
    h, frames = random_rows(3, level=level)
    with torch.no_grad():
        output.linear.weight[:, -2:] = 0
        output.linear.bias[4:] = log_scale
    bound = 1e-12 if dtype == torch.float64 else 1e-3
    assert_compiled_is_plain(output, h.to(dtype), frames.to(dtype), bound=bound)


def log_cosh(x):
    """log(2 + 2 cosh(x)): the mean size of a logistic of scale 1 and mean x."""
    return np.logaddexp(math.log(2), np.logaddexp(x, -x))


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_a_seeds_draw_can_be_recomputed_from_the_stated_rule(temperature):
    output, B = make(), 200
    h = random_rows(B)[0][:B, 0]
    uniforms = uniforms_of(output, B)
    with torch.no_grad():
        ours = output.draw_frame(h, None, uniforms, temperature).frame
    uniforms = uniforms.numpy()
    for n in range(B):
        logits, means, scales = mixture(output, h[n])
        k = chosen(logits, uniforms[n, 0], temperature)
        u, anchor = max(uniforms[n, 1], 2.0**-54), h[n, -2].item()
        deviation = means[k] - anchor + temperature * scales[k] * (np.log(u) - np.log1p(-u))
        if temperature:
            usual, tempered = (
                special.softmax(logits / t) @ (t * scales * log_cosh((means - anchor) / t / scales))
                for t in (1.0, temperature)
            )
            deviation *= usual / tempered
        sample = anchor + deviation
        certainty, spacing = h[n, -4:-2].tolist()
        if temperature == 0 or uniforms[n, 2] < max(1 - certainty, 2.0**-20):
            spacing = STEP
        expected = np.clip(round(sample / spacing) * spacing, -1, 1 - spacing)
        assert ours[n].item() == expected


def test_ends_are_scored_at_the_last_sample_of_each_frame():
    """By the row's own layer; the frames' nats are reported without them."""
    output = make(end=True)
    h, frames = random_rows(4)
    weights, lengths = torch.tensor([[1.0, 1]] * 2 + [[1, 0]] * 2).double(), np.array([4, 2])
    loss = output.loss(h, frames, None, weights, lengths)
    nats = (output.score(h, frames, None) * weights).sum()
    assert loss.nats.item() == pytest.approx(nats.item(), rel=1e-12)
    weight, bias = (part.detach().numpy() for part in output.ending.parameters())
    p = special.expit(h.numpy() @ weight[0] + bias[0])
    rows = [(2, 0), (5, 0), (8, 0), (2, 1)]  # of frames that do not end their piece
    ends = -sum(np.log1p(-p[row]) for row in rows) - np.log(p[11, 0]) - np.log(p[5, 1])
    assert (loss.total - loss.nats).item() == pytest.approx(ends, rel=1e-10)

    inside = weights > 0
    last = torch.arange(4)[:, None] == torch.from_numpy(lengths) - 1
    with torch.no_grad():
        sums = output.figure_sums(Window(h, frames, frames, last, inside))
    values = output.figures(sums, nats=nats.item(), frames=6, pieces=2)
    assert values["end_nats_per_piece"] == pytest.approx(ends / 2, rel=1e-10)
    assert values["nats_per_sample"] == pytest.approx(nats.item() / 18)
    assert output.describe(values)[-1] == f"end, nats per piece      {ends / 2:9.4f}"
