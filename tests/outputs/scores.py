"""Scores and draws of outputs over samples: compiled against plain, values and gradients."""

import copy
import ctypes

import numpy as np
import pytest
import torch

from seqmodel.kernels.run.calls import Arena, CallFields
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.outputs.protocol import DrawSetting


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
    """In nats and every gradient, weighted or not; padding has weight 0.

    The gradient that arrives at the weighted sum must not be lost.
    """
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


def assert_any_dimensions(output, frames, past):
    """The score of blocks (3, 2, F) is the nats of `forward`, for any leading dimensions."""
    h = torch.randn(3, 2, output.linear.in_features, dtype=torch.float64)
    together = output.score(h, frames, past)
    assert together.shape == (3, 2)
    one_by_one = [
        [output.nats(output(h[t, b]), frames[t, b], past[t, b]).item() for b in range(2)]
        for t in range(3)
    ]
    np.testing.assert_allclose(together.detach(), one_by_one, rtol=1e-12)


def assert_compiled_draws_are_plain(output, chunks, temperature, uniforms_per_step):
    """Sample for sample, over chunks of rows; the sample drawn is left for the encoder, raw.

    Returns how often the piece ended.
    """
    double, arena = copy.deepcopy(output).double(), Arena()
    chunk, H = chunks[0].shape
    h, x = arena.take(1, H), arena.take(1)
    draw = output.compiled_draw(DrawSetting(h, x, arena, chunk, temperature))
    memory = arena.memory()
    x.of(memory)[:] = 0
    fields = CallFields([draw.call]).over(memory)
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
