"""Outputs with random weights, none of which is 0, and random frames for them to score."""

from functools import partial

import numpy as np
import torch
from onsets import as_frames, random_states
from scores import DEVIATION, MEAN, C, random_blocks

from seqmodel.media.audio import mu_law
from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.outputs.categorical import CategoricalOutput
from seqmodel.outputs.gaussian import GaussianMixtureOutput
from seqmodel.outputs.logistic import SampleLogisticOutput
from seqmodel.outputs.nade import NadeOutput

STEP = 1 / 32768


def some_frames(*shape, onsets=False, dtype=torch.float64):
    """Frames (T, ..., F) and those before them, None without onsets."""
    if not onsets:
        return (torch.rand(*shape) < 0.3).to(dtype), None
    frames = torch.from_numpy(as_frames(random_states(2, *shape, density=0.4))).to(dtype)
    return frames, torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])


def nade(notes, width, *, hidden=5, end=False, onsets=False, dtype=torch.float64):
    """Its numbers depend strongly on each other."""
    torch.manual_seed(0)
    output = NadeOutput(hidden, notes, width, end=end, onsets=onsets).to(dtype)
    with torch.no_grad():
        output.V.normal_(0, 2)
        output.U.normal_()
    return output


def drawn(make, weights, biases):
    """An output in float64 whose linear layer is drawn with these deviations."""
    torch.manual_seed(0)
    output = make().double()
    with torch.no_grad():
        output.linear.weight.normal_(0, weights)
        output.linear.bias.normal_(0, biases)
    return output


def categorical(*, frame_size=3, hidden=9):
    return drawn(partial(CategoricalOutput, hidden, frame_size, 256), 1, 2)


def mu_law_rows(rows, pieces=2, *, frame_size=3, hidden=9):
    """Rows of h (T S, B, H), and frames (T, B, S) of any levels."""
    h = torch.randn(rows * frame_size, pieces, hidden, dtype=torch.float64)
    levels = torch.randint(0, 256, (rows, pieces, frame_size))
    return h, torch.from_numpy(mu_law.SAMPLES)[levels].double()


def gaussian(*, frame_size=4, components=5, hidden=7, spread=1.0):
    """Parameters differ from row to row and component to component."""
    data = {"mean": MEAN, "deviation": DEVIATION, "context": C}
    make = partial(GaussianMixtureOutput, hidden, frame_size, components, **data)
    return drawn(make, 0.5 * spread, spread)


def sample_logistic(*, frame_size=3, components=4, hidden=9, end=False):
    """Components are unlike each other."""
    return drawn(partial(SampleLogisticOutput, hidden, frame_size, components, end=end), 0.3, 1)


def anchored_rows(rows, pieces=2, *, frame_size=3, hidden=9, level=None):
    """Rows of h (T S, B, H), and frames (T, B, S) about their anchors.

    A third of the rows keep to a grid of 16 steps for certain, or nearly so; for another third it
    is uncertain, and their samples are off it.
    """
    h = torch.randn(rows * frame_size, pieces, hidden, dtype=torch.float64)
    h[..., -4], h[..., -3] = 0, STEP
    h[::3, :, -4], h[::3, :, -3] = torch.tensor([0.99, 1 - 2**-22])[:pieces], 16 * STEP
    h[1::3, :, -4], h[1::3, :, -3] = 0.3, 16 * STEP
    h[..., -2] *= 0.1
    h[..., -1] = h[..., -1].exp() / 200 if level is None else level
    raw = h[..., -2] + h[..., -1] * torch.randn(h.shape[:2], dtype=torch.float64)
    raw = (raw / STEP).round().clamp(-32768, 32767) * STEP
    raw[::3] = (raw[::3] / STEP / 16).round().clamp(-2048, 2047) * STEP * 16
    return h, torch.stack([raw[s::frame_size] for s in range(frame_size)], -1)


def case_of_bernoulli(T, B, hidden, notes, **options):
    """With large and saturated logits."""
    output = BernoulliOutput(hidden, notes, **options).double()
    with torch.no_grad():
        output.linear.weight.mul_(20)
        output.linear.bias[[0, -1]] = 200
    h = torch.randn(T, B, hidden, dtype=torch.float64)
    return output, h, *some_frames(T, B, notes, onsets=output.onsets)


def case_of_nade(T, B, notes, width, **options):
    """Empty, full and single-note frames are among the rows."""
    output = nade(notes, width, hidden=13, **options)
    frames, past = some_frames(T, B, notes, onsets=output.onsets)
    if past is None:
        frames[2:3], frames[3:4] = 0, 1
        frames[4:5] = torch.eye(notes, dtype=torch.float64)[-1]
    return output, torch.randn(T, B, 13, dtype=torch.float64), frames, past


def case_of_gaussian(rows, pieces, hidden, frame_size, components):
    """With scales at the floor and components of no weight: exponents of 10^6."""
    output = gaussian(frame_size=frame_size, components=components, hidden=hidden, spread=0.5)
    with torch.no_grad():
        bias = output.linear.bias.view(-1, components)
        bias[1 + frame_size, ::3] -= 12
        bias[0, 1::4] = -1e4
    h = torch.rand(rows, pieces, hidden, dtype=torch.float64)
    return output, h, random_blocks(rows, pieces, frame_size)[0], None


def case_of_sample_logistic(rows, pieces, hidden, frame_size, components):
    """At both ends of the range too, with components of no weight."""
    output = sample_logistic(frame_size=frame_size, components=components, hidden=hidden)
    with torch.no_grad():
        output.linear.weight.mul_(3 / hidden**0.5)
        output.linear.bias[1:components:4] = -1e4
    h, frames = anchored_rows(rows, pieces, frame_size=frame_size, hidden=hidden)
    frames[::7], frames[3::7] = -1.0, 32767 / 32768
    return output, h, frames, None


def resonance(count, noise, seed=0):
    """A stream of an autoregression of order 2 on 16-bit levels."""
    random = np.random.default_rng(seed)
    error = random.logistic(0, 1, count) if noise == "logistic" else random.standard_t(2, count)
    x = np.zeros(count)
    for t in range(2, count):
        x[t] = 1.7 * x[t - 1] - 0.8 * x[t - 2] + 0.002 * error[t]
    return np.round(np.clip(x, -1, 32767 / 32768) * 32768) / 32768
