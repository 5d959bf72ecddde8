"""Scores and draws of outputs over samples: compiled against plain, and by their equations."""

import itertools

import mpmath
import numpy as np
import pytest
import torch
from scipy import special

C, MEAN, DEVIATION = 6, 0.01, 0.08
LEVELS = torch.arange(-32768, 32768, dtype=torch.float64) / 32768


def random_blocks(*shape):
    """Blocks (..., F) of 16-bit samples, and the C before each."""
    lines = MEAN + DEVIATION * torch.randn(*shape[:-1], shape[-1] + C, dtype=torch.float64)
    lines = (lines * 32768).round() / 32768
    return lines[..., C:], lines[..., :C]


def plain(output, h, frames, past=None):
    return output.plain_nats(h, frames, past)


def compiled(output, h, frames, past=None):
    nats = output.score(h, frames, past)
    node = nats.grad_fn
    while nats.numel() and "Nats" not in node.name():  # before the sum over samples
        node = node.next_functions[0][0]
    return nats


both = pytest.mark.parametrize("score", [plain, compiled])


def assert_close(ours, theirs, bound):
    """Each relative to the largest of theirs, or to 0.1."""
    for a, b in zip(ours, theirs, strict=True):
        scale = max([0.1, *b.detach().abs().flatten().tolist()])
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=bound)


def assert_compiled_is_plain(output, h, frames, past=None, *, bound):
    """In nats and every gradient, weighted or not; padding has weight 0."""
    leaves = [h.requires_grad_(), *output.parameters()]
    theirs = plain(output, h, frames, past)
    weights = torch.rand(theirs.shape, dtype=h.dtype)
    weights[-2:, 1:] = 0
    slopes = torch.autograd.grad(theirs, leaves, weights, retain_graph=True)
    ours = compiled(output, h, frames, past)
    total = output.weighted(h, frames, weights, past)[0]
    assert_close([ours, total], [theirs, (theirs * weights).sum()], bound)
    assert_close(torch.autograd.grad(ours, leaves, weights), slopes, bound)
    assert_close(torch.autograd.grad(total, leaves, retain_graph=True), slopes, bound)
    assert_close(torch.autograd.grad(-2.5 * total, leaves), [-2.5 * s for s in slopes], bound)


def assert_nats_are(expected, score, output, *, rows, rel):
    """Of frames (T, B, S): the sums of `expected(output, row, sample)` over the samples of each."""
    h, frames = rows
    ours, (T, B, S) = score(output, h, frames), frames.shape
    assert ours.shape == (T, B)
    for t, b in itertools.product(range(T), range(B)):
        samples = enumerate(frames[t, b].tolist(), t * S)
        by_hand = sum(expected(output, h[row, b], sample) for row, sample in samples)
        assert ours[t, b].item() == pytest.approx(by_hand, rel=rel)


def uniforms_of(output, count):
    """Uniforms for `count` draws, the first all 0."""
    uniforms = np.random.default_rng(5).random((count, output.uniforms_per_frame))
    uniforms[0] = 0.0
    return torch.from_numpy(uniforms)


def chosen(logits, uniform, temperature):
    """The component drawn by the stated rule: at temperature 0 the most likely one."""
    if temperature == 0:
        return int(np.argmax(logits))
    return int(np.sum(np.cumsum(special.softmax(logits / temperature)) <= uniform))


def exact_nats(sample, logits, means, scales, *, step=1 / 32768, uniform=2.0**-40):
    """-log P of a raw sample's level in 60 digits, straight from the distribution functions."""
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        normal = sum(mpmath.exp(logit) for logit in logits)
        for logit, mean, scale in zip(logits, means, scales, strict=True):
            lower = -mpmath.inf if sample <= -1 else mpmath.mpf(sample) - step / 2 - mean
            upper = mpmath.inf if sample >= 1 - step else mpmath.mpf(sample) + step / 2 - mean
            if sample > mean:  # mirrored: a difference of two ones has no digits left
                lower, upper = -upper, -lower
            within = 1 / (1 + mpmath.exp(-upper / scale)) - 1 / (1 + mpmath.exp(-lower / scale))
            total += mpmath.exp(logit) / normal * within
        return float(-mpmath.log((1 - uniform) * total + uniform / 65536))
