"""The model: a unit that reads the past, and an output over the next frame."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqmodel import units
from seqmodel.config import Config
from seqmodel.errors import UsageError
from seqmodel.kernels.device import one_thread
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs import (
    BernoulliOutput,
    DiscretisedLogisticOutput,
    GaussianMixtureOutput,
    Output,
)
from seqmodel.units.dropout import Dropout
from seqmodel.units.module import AnyState, CellState, Stack, State, Unit, UnitState


class Carry(NamedTuple):
    """What the model knows of the past: the unit's state and the last `context` numbers (B, C)."""

    state: AnyState
    past: Tensor

    def tensors(self) -> list[Tensor]:
        """All its tensors: the states from the lowest layer up, then the past."""
        return [tensor for layer in self.layers() for tensor in layer] + [self.past]

    def like(self, tensors: Sequence[Tensor]) -> "Carry":
        """A carry of the same build from other tensors, in the order of `tensors()`."""
        rest = iter(tensors)
        layers = [type(layer)(*(next(rest) for _ in layer)) for layer in self.layers()]
        state = layers[0] if isinstance(self.state, State | CellState) else tuple(layers)
        return Carry(state, next(rest))

    def layers(self) -> Sequence[UnitState]:
        """The states of the unit's layers, the lowest first."""
        return (self.state,) if isinstance(self.state, State | CellState) else self.state


class Reading(NamedTuple):
    """What the output needs for each of the frames (T, B, F) that the model has read."""

    h: Tensor
    """(T, B, H)"""
    frames: Tensor
    """(T, B, F), in the model's type."""
    past: Tensor
    """(T, B, C), the numbers before each frame."""
    after: Carry
    """What the model knows behind the last frame."""


class SequenceModel(nn.Module):
    """p(x_1, ..., x_T) = prod_t p(x_t | x_<t), with the past in a unit's state.

    A sequence is a line of numbers, and a frame the next `frame_size` (F) of it. At step t the unit
    reads the last `context` (C) numbers before frame t, standardised by `mean` and `deviation`, and
    the output gives the frame's distribution. For music C = F = 88: the unit reads frame t - 1. A
    line begins after zeros.
    """

    def __init__(
        self,
        unit: Unit | Stack,
        output: Output,
        dropout: float = 0.0,
        *,
        mean: float = 0.0,
        deviation: float = 1.0,
    ) -> None:
        super().__init__()
        self.unit, self.output = unit, output
        self.dropout = Dropout(dropout)
        self.mean, self.deviation = mean, deviation

    def layers(self) -> list[Unit]:
        """The layers of the unit, the lowest first."""
        return self.unit.units() if isinstance(self.unit, Stack) else [self.unit]

    def start(self, batch_size: int) -> Carry:
        """The carry before the first frame: zero state, zeros heard."""
        past = self.output.linear.weight.new_zeros(batch_size, self.unit.input_size)
        return Carry(self.unit.zero_state(batch_size), past)

    def forward(self, frames: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """The output's parameters for each of `frames` (T, B, F), each given those before it."""
        reading = self.read(frames, carry)
        return self.output(reading.h), reading.after

    def read(self, frames: Tensor, carry: Carry) -> Reading:
        """Read `frames` (T, B, F), of any type of number."""
        with one_thread():
            frames, past, last = _in_line(frames, carry.past)
        h, state = self.unit(self._standardised(past), carry.state)
        return Reading(self.dropout(h), frames, past, Carry(state, last))

    def step(self, carry: Carry) -> tuple[Tensor, AnyState]:
        """The output's parameters (B, ...) for the frame after `carry`; the unit's new state."""
        h, state = self.unit(self._standardised(carry.past).unsqueeze(0), carry.state)
        return self.output(h[0]), state

    def _standardised(self, numbers: Tensor) -> Tensor:
        if self.mean == 0 and self.deviation == 1:
            return numbers
        return (numbers - self.mean) / self.deviation


def _in_line(frames: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Frames (T, B, F) in line behind what came before them (B, C), of whose type they become.

    Returns the frames, and as views of the line the C numbers before each (T, B, C) and the last
    C of all (B, C).
    """
    (T, B, F), C = frames.shape, before.shape[1]
    if C == F:
        steps = before.new_empty(T + 1, B, F)
        steps[0], steps[1:] = before, frames
        return steps[1:], steps[:-1], steps[-1]
    frames = frames.to(before)
    line = torch.cat([before, frames.transpose(0, 1).reshape(B, T * F)], 1)
    return frames, line.unfold(1, C, F)[:, :T].transpose(0, 1), line[:, T * F :]


def with_hidden_size(config: Config, frame: FrameDefinition) -> Config:
    """The config with its hidden size solved for such frames, if it has none."""
    if config.hidden is not None:
        return config
    papers = frame.medium.paper_hidden
    if config.params is None and config.preset == "paper" and config.unit in papers:
        return replace(config, hidden=papers[config.unit])
    hidden = units.hidden_size_for(
        config.unit,
        frame.context,
        config.params or frame.medium.paper_params,
        layers=config.layers,
        bias=config.bias,
    )
    return replace(config, hidden=hidden, params=None)


def build_model(config: Config, frame: FrameDefinition) -> SequenceModel:
    """The model that a resolved `config` describes for such frames, freshly initialised.

    Raises:
        UsageError: when the config asks for what frames of this medium do not have.
    """
    assert config.hidden is not None
    unit = units.make(
        config.unit,
        frame.context,
        config.hidden,
        config.backend,
        layers=config.layers,
        dropout=config.dropout,
        gate_activation=config.gate_activation,
        activation=config.activation,
        bias=config.bias,
    )
    standard = {"mean": frame.mean, "deviation": frame.deviation}
    return SequenceModel(unit, _build_output(config, frame), config.dropout, **standard)


def _build_output(config: Config, frame: FrameDefinition) -> Output:
    assert config.hidden is not None
    if frame.values == "binary":
        if config.output not in ("auto", "bernoulli"):
            raise UsageError(f"--output {config.output} is for audio; notes have bernoulli")
        return BernoulliOutput(config.hidden, frame.frame_size, end=config.end)
    if config.end or config.augment_keys:
        option = "--end" if config.end else "--augment-keys"
        raise UsageError(f"{option} is for music, not for audio")
    if config.output == "bernoulli":
        raise UsageError("--output bernoulli is for music; audio has gaussian and logistic")
    kind = DiscretisedLogisticOutput if config.output == "logistic" else GaussianMixtureOutput
    return kind(
        config.hidden,
        frame.frame_size,
        config.components,
        mean=frame.mean,
        deviation=frame.deviation,
        context=frame.context,
    )
