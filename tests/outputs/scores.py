"""Scores and draws of outputs over samples: compiled against plain, values and gradients."""

import copy
import ctypes

import mpmath
import numpy as np
import pytest
import torch

from seqmodel.kernels.run.calls import Arena, CallFields
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.outputs.protocol import DrawSetting

C, MEAN, DEVIATION = 6, 0.01, 0.08
LEVELS = torch.arange(-32768, 32768, dtype=torch.float64) / 32768


def random_blocks(*shape):
    """Blocks (..., F) of 16-bit samples, and the C before each."""
    lines = MEAN + DEVIATION * torch.randn(*shape[:-1], shape[-1] + C, dtype=torch.float64)
    lines = (lines * 32768).round() / 32768
    return lines[..., C:], lines[..., :C]


def plain(output, h, frames, past=None):
    return output.nats(output(h), frames, past)


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
    total = output.weighted_score(h, frames, weights, past)
    assert_close([ours, total], [theirs, (theirs * weights).sum()], bound)
    assert_close(torch.autograd.grad(ours, leaves, weights), slopes, bound)
    assert_close(torch.autograd.grad(total, leaves, retain_graph=True), slopes, bound)
    assert_close(torch.autograd.grad(-2.5 * total, leaves), [-2.5 * s for s in slopes], bound)


def assert_compiled_draws_are_plain(output, chunks, temperature, uniforms_per_step):
    """Sample for sample, each left raw for the encoder; returns how often the piece ended."""
    double, arena = copy.deepcopy(output).double(), Arena()
    chunk, H = chunks[0].shape
    h, x = arena.take(1, H), arena.take(1)
    draw = output.compiled_draw(DrawSetting(h, x, arena, chunk, temperature))
    memory = arena.memory()
    x.of(memory)[:] = 0
    fields = CallFields([draw.call]).for_user(memory)
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(draw.call.function)
    ours, theirs, ends = Uniforms(1, 2), Uniforms(1, 2), 0
    for rows in chunks:
        draw.refill(memory, ours)
        uniforms = torch.from_numpy(theirs.take(chunk, uniforms_per_step))
        with torch.no_grad():
            expected, ended = double.draw_frame(rows, None, uniforms, temperature)
        for n, row in enumerate(rows):
            h.of(memory)[:] = row.numpy()
            assert run(fields.ctypes.data, n) == ended[n]
            assert x.of(memory)[0] == expected[n, 0]
        drawn, ends = draw.drawn(memory, chunk), ends + int(ended.sum())
        assert drawn.dtype == np.float32
        np.testing.assert_array_equal(drawn, expected)
    return ends


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
