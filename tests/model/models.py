"""Models with random weights, and what they read."""

import numpy as np
import torch

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.media.registry import medium_of
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.clock import Clock


def model_of(options, frame=FRAMES):
    """As `train` builds it from these options."""
    config = resolve(options, presets=medium_of(frame).presets)
    return build_model(with_sizes(config, frame), frame).eval()


def random_model(options, frame=FRAMES, *, std=0.3, seed=0):
    """The same, all of whose weights matter."""
    torch.manual_seed(seed)
    model = model_of({"unit": "gru", "hidden": 4, **options}, frame)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std)
    return model


def clock_of(lengths, **options):
    """A clock that has seen training pieces of these lengths."""
    made = Clock(**options)
    made.start_at(np.array(lengths))
    return made


def read_however_cut(encoder, frames, start):
    """Frames (T, B, F) encoded; the same in windows and frame by frame, as sampling reads them."""
    whole = encoder.encode(frames, start)
    assert torch.equal(whole.inputs[..., -encoder.skip_size :], whole.skip)
    windows, past = [], start
    for window in frames.tensor_split([1, 11, 13]):
        part = encoder.encode(window, past)
        windows.append(part.inputs)
        past = part.last
    assert torch.equal(torch.cat(windows), whole.inputs)
    assert all(map(torch.equal, past, whole.last))
    past = start
    for t, frame in enumerate(frames):
        assert torch.equal(encoder.encode_next(past).inputs[0], whole.inputs[t])
        past = encoder.append(past, frame)
    assert all(map(torch.equal, past, whole.last))
    return whole
