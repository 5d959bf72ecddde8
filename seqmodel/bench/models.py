"""Whole models of music: a training step, and drawing a piece, beside torch.nn.

The models are the paper's, a unit over whole frames, and the tied model without its echo. Their
outputs start at the frequency of notes in real music, so that they draw about as many.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmodel.bench import peers
from seqmodel.bench.clock import compare
from seqmodel.config import Config, resolve
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import NOTES, Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.sequence import SequenceModel
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.update import window_loss
from seqmodel.unit_setting import unit_name
from seqmodel.units import unit_spec

ROLLS = PianoRollFrames(Grid.of_beats(4))
NOTES_ON = 4
"""Notes per frame."""
START = math.log(NOTES_ON / (NOTES - NOTES_ON))
"""The logit of a note at that density."""
UNITS = {"frame-wise": tuple(MUSIC.paper_hidden), "tied": ("gru",)}
"""The units measured by default in each model."""
TIED = {"hidden": 96, "note_hidden": 48}
"""The tied model's sizes along time and along pitch."""
BATCH = {"frame-wise": (200, 16), "tied": (160, 2)}
"""Frames and rows of a training step."""
DRAWN = {"frame-wise": 256, "tied": 16}
"""Frames drawn at a time with torch.nn, which is slow."""

Measure = Callable[[str, str, float], dict[str, Any]]


def rows(measure: Measure, units: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """`measure_step` or `measure_sampling` of each model, with its default units or with these."""
    for model, default in UNITS.items():
        for unit in units or default:
            yield measure(model, unit, seconds)


def measure_step(model: str, unit: str, seconds: float) -> dict[str, Any]:
    """Time forward, loss and backward to all weights; the frames are data and get no gradient."""
    config, (T, B) = config_of(model, unit), BATCH[model]
    ours, theirs = our_model(config), their_model(config)
    frames, lengths = piano_rolls(T, B), np.full(B, T)
    stored = frames.to(torch.uint8)  # as in training batches

    def our_step() -> None:
        ours.zero_grad()
        window_loss(ours, stored, lengths, ours.start(B)).total.backward()  # type: ignore[no-untyped-call]

    def their_step() -> None:
        theirs.zero_grad()
        theirs(frames).backward()

    return {**_about(config), "batch": B, "frames": T, **compare(our_step, their_step, seconds)}


def measure_sampling(model: str, unit: str, seconds: float) -> dict[str, Any]:
    """Time drawing one piece; building the sampler, which all pieces share, does not count."""
    config = config_of(model, unit)
    sampler, theirs = Sampler(our_model(config).eval()), their_model(config)
    frames = {"ours": len(draw(sampler)), "torch_nn": DRAWN[model]}
    taken = compare(lambda: draw(sampler), lambda: theirs.draw(DRAWN[model]), seconds)
    speed = {name: 1e3 * count / taken[name]["ms"] for name, count in frames.items()}
    ratio = speed["ours"] / speed["torch_nn"]
    return {**_about(config), **taken, "frames_per_second": speed, "over_torch_nn": ratio}


def draw(sampler: Sampler) -> Any:
    """The first chunk (n, D) of a piece."""
    return next(sampler.draw(Uniforms(1)))[0]


def config_of(model: str, unit: str) -> Config:
    """The model of this name, at the paper's size or, for other units, at the paper's budget."""
    given: dict[str, Any] = {"model": model, "unit": unit, "preset": "paper"}
    if model == "tied":
        given |= TIED | {"output": "note-unit"} | dict.fromkeys(("echo", "clock", "metre"), False)
    return with_sizes(resolve(given), ROLLS)


def our_model(config: Config) -> SequenceModel:
    """The model in our code."""
    model = build_model(config, ROLLS)
    nn.init.constant_(model.output.get_parameter("linear.bias"), START)
    return model


def their_model(config: Config) -> peers.FrameWise | peers.Tied:
    """The same from torch.nn's layers."""
    spec, hidden, note_hidden = unit_spec(config.unit), config.hidden, config.note_hidden
    assert hidden is not None
    if note_hidden is None:
        model: peers.FrameWise | peers.Tied = peers.FrameWise(spec, NOTES, hidden)
    else:
        model = peers.Tied(spec, NOTES, hidden, note_hidden)
    nn.init.constant_(model.linear.bias, START)
    return model


def piano_rolls(frames: int, batch: int) -> Tensor:
    """Frames (T, B, D), each with `NOTES_ON` random notes sounding."""
    places = torch.rand(frames, batch, NOTES).topk(NOTES_ON).indices
    return torch.zeros(frames, batch, NOTES).scatter(2, places, 1.0)


def _about(config: Config) -> dict[str, Any]:
    sizes = {"hidden": config.hidden, "note_hidden": config.note_hidden}
    return {"model": config.model, "unit": unit_name(config.unit), **sizes}
