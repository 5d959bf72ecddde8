"""The model: a unit that reads the past frames, and an output over the next one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqmodel import units
from seqmodel.config import Config
from seqmodel.outputs import BernoulliOutput
from seqmodel.units.dropout import Dropout
from seqmodel.units.module import AnyState, CellState, Stack, State, Unit, UnitState


class Carry(NamedTuple):
    """What the model knows of the past: the unit's state and the last frame (B, D)."""

    state: AnyState
    frame: Tensor

    def tensors(self) -> list[Tensor]:
        """All its tensors: the states from the lowest layer up, then the frame."""
        return [tensor for layer in self.layers() for tensor in layer] + [self.frame]

    def like(self, tensors: Sequence[Tensor]) -> "Carry":
        """A carry of the same build from other tensors, in the order of `tensors()`."""
        rest = iter(tensors)
        layers = [type(layer)(*(next(rest) for _ in layer)) for layer in self.layers()]
        state = layers[0] if isinstance(self.state, State | CellState) else tuple(layers)
        return Carry(state, next(rest))

    def layers(self) -> Sequence[UnitState]:
        """The states of the unit's layers, the lowest first."""
        return (self.state,) if isinstance(self.state, State | CellState) else self.state


class SequenceModel(nn.Module):
    """p(x_1, ..., x_T) = prod_t p(x_t | x_<t), with the past in a unit's state.

    At step t the unit reads frame t - 1, a zero frame at first, and the output gives the
    distribution of frame t.
    """

    def __init__(self, unit: Unit | Stack, output: BernoulliOutput, dropout: float = 0.0) -> None:
        super().__init__()
        self.unit, self.output = unit, output
        self.dropout = Dropout(dropout)

    def layers(self) -> list[Unit]:
        """The layers of the unit, the lowest first."""
        return self.unit.units() if isinstance(self.unit, Stack) else [self.unit]

    def start(self, batch_size: int) -> Carry:
        """The carry before the first frame: zero state, zero frame."""
        frame = self.output.linear.weight.new_zeros(batch_size, self.unit.input_size)
        return Carry(self.unit.zero_state(batch_size), frame)

    def forward(self, frames: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """The output's parameters for each of `frames` (T, B, D), each given those before it."""
        h, after = self.read(frames, carry)
        return self.output(h), after

    def read(self, frames: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """What the output sees at each of `frames` (T, B, D): h (T, B, H) of the frames before."""
        past = torch.cat([carry.frame.unsqueeze(0), frames[:-1]])
        h, state = self.unit(past, carry.state)
        return self.dropout(h), Carry(state, frames[-1])

    def step(self, carry: Carry) -> tuple[Tensor, AnyState]:
        """The output's parameters (B, ...) for the frame after `carry`; the unit's new state."""
        h, state = self.unit(carry.frame.unsqueeze(0), carry.state)
        return self.output(h[0]), state


# The paper's sizes for music, about 20 thousand parameters; other units get as many.
PAPER_HIDDEN = {"lstm": 36, "gru": 46, "tanh": 100}
PAPER_PARAMS = 18_500


def with_hidden_size(config: Config, frame_size: int) -> Config:
    """The config with its hidden size solved for frames of `frame_size` notes, if it has none."""
    if config.hidden is not None:
        return config
    if config.params is None and config.preset == "paper" and config.unit in PAPER_HIDDEN:
        return replace(config, hidden=PAPER_HIDDEN[config.unit])
    hidden = units.hidden_size_for(
        config.unit,
        frame_size,
        config.params or PAPER_PARAMS,
        layers=config.layers,
        bias=config.bias,
    )
    return replace(config, hidden=hidden, params=None)


def build_model(config: Config, frame_size: int) -> SequenceModel:
    """The model that a resolved `config` describes, freshly initialised from torch's generator."""
    assert config.hidden is not None
    unit = units.make(
        config.unit,
        frame_size,
        config.hidden,
        config.backend,
        layers=config.layers,
        dropout=config.dropout,
        gate_activation=config.gate_activation,
        activation=config.activation,
        bias=config.bias,
    )
    output = BernoulliOutput(config.hidden, frame_size, end=config.end)
    return SequenceModel(unit, output, config.dropout)
