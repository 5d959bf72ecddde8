"""The sample-wise model of sound: a training step beside torch.nn's, and sampling beside real time.

Both steps read the same features of our encoder. torch.nn's has its own layer, and our output's
plain specification instead of the compiled score.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodel.bench import peers
from seqmodel.bench.clock import compare
from seqmodel.config import resolve
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.logistic import SampleLogisticOutput
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.update import window_loss
from seqmodel.unit_setting import unit_name
from seqmodel.units import unit_spec

RATES = (8000, 16_000)
UNITS = ("gru",)
"""Measured by default."""
CHUNKS = 40
"""Of some 256 samples each, drawn at a time."""


def rows(units: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """`measure` at each rate, with the default units or with these."""
    for rate in RATES:
        for unit in units or UNITS:
            yield measure(unit, rate, seconds)


def measure(unit: str, rate: int, seconds: float) -> dict[str, Any]:
    """Time a training step, its features alone, and drawing one piece; all at default sizes."""
    frame = AudioFrames(rate)
    config = with_sizes(resolve({"unit": unit}, presets=AUDIO.presets), frame)
    assert config.hidden is not None
    ours = build_model(config, frame)
    samples, B = config.truncate, config.batch_size
    frames = noise(samples // frame.frame_size, B, frame.frame_size)
    lengths = np.full(B, len(frames))
    layer = peers.layer(unit_spec(unit), ours.encoder.input_size, config.hidden)
    weights = [*layer.parameters(), *ours.output.parameters()]

    def our_step() -> None:
        ours.zero_grad()
        window_loss(ours, frames, lengths, ours.start(B)).total.backward()  # type: ignore[no-untyped-call]

    def their_step() -> None:
        for weight in weights:
            weight.grad = None
        their_loss(ours, layer, frames).backward()  # type: ignore[no-untyped-call]

    def features() -> None:
        ours.encoder.encode(frames, ours.start(B).past)

    step = compare(our_step, their_step, seconds)
    read = compare(features, features, 0.0)["ours"]["ms"]
    return {
        **{"model": config.model, "unit": unit_name(config.unit), "hidden": config.hidden},
        **{"rate": rate, "batch": B, "samples": samples},
        **step,
        "features_percent": 100 * read / step["ours"]["ms"],
        "real_time": real_time(ours, rate),
    }


def their_loss(ours: SequenceModel, layer: torch.nn.RNNBase, frames: Tensor) -> Tensor:
    """The nats of frames (T, B, F), summed: our features, `layer`, our output's specification."""
    x, beside, frames, past, _ = ours.encoder.encode(frames, ours.start(frames.shape[1]).past)
    assert beside is not None
    rows = torch.cat([layer(x)[0], beside], 2)
    output = ours.output
    assert isinstance(output, SampleLogisticOutput)
    return output.nats(output(rows), frames, past).sum()


def real_time(model: SequenceModel, rate: int) -> float:
    """How many seconds of sound are drawn in a second; building the sampler does not count."""
    chunks = Sampler(model.eval()).draw(Uniforms(1))
    next(chunks)
    begin = time.perf_counter()
    drawn = sum(chunk.size for chunk, _ in islice(chunks, CHUNKS))
    return drawn / (time.perf_counter() - begin) / rate


def noise(T: int, B: int, F: int) -> Tensor:
    """Frames (T, B, F) of 16-bit noise."""
    return (torch.randn(T, B, F) * 1000).round() / 32768
