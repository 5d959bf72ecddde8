"""Compiled sampling against plain sampling: every number must be the same."""

import copy
from itertools import islice
from unittest import mock

import numpy as np
import torch

from seqmodel.kernels.run.calls import Arena
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.sampling.sampler import Sampler


def both_samplers(model, **options):
    """One that draws by compiled code, and one that draws by PyTorch."""
    plain = Sampler(model, **options)
    plain.__dict__["_compiled"] = None  # as if the output had no compiled draw
    return Sampler(model, **options), plain


def _all_nan(arena, users):
    return np.full((users, arena.size), 255, np.uint8)


def same_draws(model, *, temperature=1.0, chunks=2, prime=None):
    """The frames (T, F) of the first chunks, or up to the end, which are the same both ways.

    Sampling must also leave the model's weights as they are. In compiled code, whatever is read
    before it is written shows as nan.
    """
    before, found = copy.deepcopy(model.state_dict()), []
    for sampler in both_samplers(model, temperature=temperature):
        drawn = []
        assert sampler.is_compiled == (not found)
        with mock.patch.object(Arena, "memories", _all_nan):
            for frames, ended in islice(sampler.draw(Uniforms(3, 1), prime=prime), chunks):
                drawn.append((frames, ended))
                if ended:
                    break
        found.append(drawn)
    for (ours, ended), (plain, plain_ended) in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, plain)
        assert ended == plain_ended
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    return np.concatenate([frames for frames, _ in found[0]])


def assert_strikes_are_possible(frames, before):
    """None without its note, every one after silence; returns those that were free (bool,)."""
    sounding, struck = np.split(frames.astype(bool), 2, axis=1)
    sounded = np.concatenate([before, sounding])[:-1].astype(bool)
    assert not (struck & ~sounding).any()
    assert struck[sounding & ~sounded].all()
    return struck[sounding & sounded]
