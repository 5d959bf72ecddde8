"""The trivial models shown next to every figure: the medium's own and, for sound, a lattice.

`lattice` is what adaptive prediction reaches without a unit: the sample-wise model's output, with
one logistic around the anchor of `model.sound`, whose scale is the anchor's level times a factor
fitted to the training split. It is for 16-bit levels only.

All are fitted once per training split: the figures are stored in the user's cache of kernels. Their
key contains everything they depend on, including this program's code, so none is ever stale.
"""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import soundfile
import torch
from llvmlite import binding
from torch import Tensor

from seqmodel.data import batches
from seqmodel.data.dataset import Split
from seqmodel.files import program_hash
from seqmodel.kernels.code.cache import cached, digest
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.registry import medium_of
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.outputs.logistic import SampleLogisticOutput

FEATURES = 4
"""The last features of the encoder: the grid's certainty and spacing, the anchor and its level."""
BATCH, WINDOW = 16, 2**10
"""Pieces at a time, and samples of each."""
FITTED_PIECES, FITTED_SAMPLES = 64, 2**17
"""Pieces spaced evenly in train, and about how many of their first samples in total."""

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


def baselines(
    train: Split, split: Split, frame: FrameDefinition, *, discrete: bool
) -> dict[str, float]:
    """Nats per frame of every trivial model, as in `Medium.baselines`; cached, see above."""
    fitted = partial(_fitted, train, split, frame, discrete=discrete)
    if train.fingerprint is None or split.fingerprint is None:
        return fitted()
    name = digest(
        *(train.fingerprint, split.fingerprint, json.dumps(frame.to_json()), str(discrete)),
        *(program_hash(), str(torch.get_num_threads()), binding.get_host_cpu_name()),
        *(np.__version__, torch.__version__, soundfile.__libsndfile_version__),
    )
    return json.loads(cached(name, lambda: json.dumps(fitted()).encode(), "figures"))


def _fitted(
    train: Split, split: Split, frame: FrameDefinition, *, discrete: bool
) -> dict[str, float]:
    found = medium_of(frame).baselines(train, split, frame, discrete=discrete)
    if discrete and frame.rate and frame.values == "samples":
        found["lattice"] = lattice_nats_per_frame(train, split, frame)
    return found


def lattice_nats_per_frame(train: Split, split: Split, frame: FrameDefinition) -> float:
    """Nats per frame of `lattice`, fitted to `train`, on every frame of `split`."""
    encoder = SoundEncoder(frame.rate, frame.frame_size)
    encoder.start_at(train)
    output = SampleLogisticOutput(FEATURES, frame.frame_size, 1)
    fitted = train.beginnings(FITTED_PIECES, -(-FITTED_SAMPLES // frame.frame_size))
    with torch.inference_mode():
        output.linear.weight.zero_()
        rows = list(_windows(encoder, fitted))
        log_scale = _minimise(lambda log_scale: _nats(output, rows, log_scale), -3.0, 3.0)
        return _nats(output, _windows(encoder, split), log_scale) / split.frames


_Windows = tuple[Tensor, Tensor, Tensor]
"""Features (T F, B, FEATURES), frames (T, B, F), and whether these are pieces, not padding."""


def _windows(encoder: SoundEncoder, split: Split) -> Iterator[_Windows]:
    window = max(1, WINDOW // encoder.steps)
    for batch in batches.by_length(split.lengths, BATCH):
        past, lengths = encoder.start(torch.zeros(()), len(batch)), split.lengths[batch]
        longest = int(lengths.max())
        for begin in range(0, longest, window):
            end = min(longest, begin + window)
            loaded = batches.load(split, batch, begin=begin, window=end - begin)
            encoded = encoder.encode(torch.from_numpy(loaded.frames), past)
            past = encoded.last
            inside = np.arange(begin, end)[:, np.newaxis] < lengths
            features = encoded.inputs[..., -FEATURES:].contiguous()
            yield features, encoded.frames, torch.from_numpy(inside)


def _nats(
    output: SampleLogisticOutput, windows: Iterator[_Windows] | list[_Windows], scale: float
) -> float:
    output.linear.bias.copy_(torch.tensor([0.0, 0.0, scale]))
    return sum(
        float(output.score(features, frames, frames)[inside].sum(dtype=torch.float64))
        for features, frames, inside in windows
    )


def _minimise(cost: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a unimodal function, to 0.005, by golden section (Kiefer 1953)."""
    left, right = high - GOLDEN_RATIO * (high - low), low + GOLDEN_RATIO * (high - low)
    at_left, at_right = cost(left), cost(right)
    while high - low > 0.01:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN_RATIO * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN_RATIO * (high - low)
            at_right = cost(right)
    return (low + high) / 2
