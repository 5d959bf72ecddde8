"""The tied model: a training step and sampling, against the same model built from torch.nn."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.bench import machine, music, peers
from seqmodel.bench.clock import Contender, ratio, take_turns
from seqmodel.bench.sampling import draw
from seqmodel.bench.steps import forget_gradients, model_gradient
from seqmodel.config import resolve
from seqmodel.media.music.grid import NOTES
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.heard import heard_inputs
from seqmodel.model.heard import heard_size as time_size
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.note_unit.specification import NoteUnitOutput, note_inputs
from seqmodel.outputs.shared.heard import heard, heard_size
from seqmodel.sampling.sampler import Sampler
from seqmodel.units import UnitSpec, unit_spec
from seqmodel.units.module import Unit

BATCH, FRAMES = 2, 160
SAMPLED = 16
"""Frames drawn with torch.nn's layers, which are slow."""


class Sizes(NamedTuple):
    """The sizes of the units along time and along pitch, and the layers of each."""

    hidden: int
    note_hidden: int
    layers: int


TRAINED = (Sizes(96, 48, 1),)
"""Sizes whose training step is measured too."""
SIZES = (*TRAINED, Sizes(200, 100, 2))


class PeerTied(nn.Module):
    """The same inputs, torch.nn's layers on both axes, a linear layer; returns the summed nats."""

    def __init__(self, spec: UnitSpec, sizes: Sizes) -> None:
        super().__init__()
        self.time = peers.layer(spec, time_size(onsets=False), sizes.hidden, sizes.layers)
        self.pitch = peers.layer(
            spec, sizes.hidden + heard_size(onsets=False), sizes.note_hidden, sizes.layers
        )
        self.linear = nn.Linear(sizes.note_hidden, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """-log p(x_1, ..., x_T) of frames (T, B, D), summed over the batch."""
        T, B, D = frames.shape
        past = torch.cat([torch.zeros_like(frames[:1]), frames[:-1]]).view(T * B, D)
        h = self.time(heard_inputs(past).view(T, B * D, -1))[0]
        of_notes = frames.view(T * B, D)
        read = self.pitch(note_inputs(h.reshape(T * B * D, -1), of_notes))[0]
        logits = self.linear(read).squeeze(2)
        return F.binary_cross_entropy_with_logits(logits, of_notes.t(), reduction="sum")

    @torch.inference_mode()
    def draw(self, count: int) -> Tensor:
        """Frames (count, D), drawn note by note."""
        frame, state, drawn = torch.zeros(1, NOTES), None, []
        for _ in range(count):
            h, state = self.time(heard_inputs(frame).unsqueeze(0), state)
            frame, of_frame = torch.zeros(1, NOTES), None
            for n in range(NOTES):
                x = torch.cat([h[0, n : n + 1], heard(frame)[n]], 1)
                read, of_frame = self.pitch(x.unsqueeze(0), of_frame)
                frame[:, n] = torch.bernoulli(torch.sigmoid(self.linear(read[0, 0])))
            drawn.append(frame)
        return torch.cat(drawn)


def measure_tied(unit: str, sizes: Sizes, seconds: float) -> dict[str, Any]:
    """Time a step to all weights over a window (`TRAINED` sizes only), then drawing one piece."""
    ours, theirs = _model(unit, sizes), PeerTied(unit_spec(unit), sizes)
    nn.init.constant_(theirs.linear.bias, music.START)
    return {
        "unit": unit,
        "device": machine.CPU.type,
        **sizes._asdict(),
        **(_step(ours, theirs, seconds) if sizes in TRAINED else {}),
        **_sampling(ours, theirs, seconds),
    }


def _step(ours: SequenceModel, theirs: PeerTied, seconds: float) -> dict[str, Any]:
    frames, lengths = music.piano_rolls(FRAMES, BATCH), np.full(BATCH, FRAMES)
    stored = frames.to(torch.uint8)  # as in training batches
    our_weights, their_weights = list(ours.parameters()), list(theirs.parameters())

    def their_step() -> None:
        forget_gradients(their_weights)
        theirs(frames).backward()

    taken = take_turns(
        {
            "ours": Contender(lambda: model_gradient(ours, our_weights, stored, lengths)),
            "torch_nn": Contender(their_step),
            "sgemm": machine.sgemm(machine.PEAK_SIZE),
        },
        seconds,
    )
    peak = taken.pop("sgemm").best
    return {
        "batch": BATCH,
        "frames": FRAMES,
        "step": {name: timing.to_json() for name, timing in taken.items()},
        "over_torch_nn": ratio(taken["torch_nn"], taken["ours"]),
        "gflops": _flops(ours) / taken["ours"].median / 1e9,
        "sgemm_gflops": machine.gflops(peak, machine.PEAK_SIZE),
    }


def _sampling(ours: SequenceModel, theirs: PeerTied, seconds: float) -> dict[str, Any]:
    sampler = Sampler(ours.eval())
    count = draw(sampler, 1)
    taken = take_turns(
        {
            "ours": Contender(lambda: draw(sampler, count)),
            "torch_nn": Contender(lambda: theirs.draw(SAMPLED), slow=True),
        },
        seconds,
    )
    return {
        "sampling": {name: timing.to_json() for name, timing in taken.items()},
        "frames_per_second": {
            "ours": count / taken["ours"].median,
            "torch_nn": SAMPLED / taken["torch_nn"].median,
        },
    }


def _model(unit: str, sizes: Sizes) -> SequenceModel:
    options = {"model": "tied", "unit": unit, **sizes._asdict(), "note_layers": sizes.layers}
    config = with_sizes(resolve({**options, "output": "note-unit", "echo": False}), music.ROLLS)
    model = build_model(config, music.ROLLS)
    nn.init.constant_(model.output.get_parameter("linear.bias"), music.START)
    return model


def _flops(model: SequenceModel) -> int:
    """FLOPs of a step's matrix products, in the units alone; see `Case.step_flops`."""
    assert isinstance(model.output, NoteUnitOutput)
    along_time = _step_flops(model.layers(), BATCH * NOTES) * FRAMES
    along_pitch = _step_flops(model.output.layers(), BATCH * FRAMES) * NOTES
    return along_time + along_pitch


def _step_flops(layers: Sequence[Unit], rows: int) -> int:
    return sum(layer.case(rows).step_flops for layer in layers)
