"""The model: an encoder reads the past, a unit remembers it, an output predicts the next frame."""

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.data.dataset import Split
from seqmodel.kernels.dropout import Dropout
from seqmodel.media.labels import KnownLabels
from seqmodel.media.marks import MARK_FIGURES
from seqmodel.model.encoder import Encoded, Encoder, Past
from seqmodel.model.marks import Marks
from seqmodel.outputs.protocol import Output, figure_lines
from seqmodel.units.module import AnyState, Layer, Stack, UnitState, is_stack

FRAMES_AT_ONCE = 8192
"""The most frames of all pieces read at a time outside training; bounds the memory."""
ROWS_AT_ONCE = 1 << 16
"""The same in unit rows, for models with many rows per frame."""
LABEL_DROPOUT = 1 / 20
"""The share of training pieces without any label; each label alone is left out of as many more."""


class Carry(NamedTuple):
    """The unit's state and the encoder's past: all that the next frame depends on."""

    state: AnyState
    past: Past
    levels: Tensor | None = None
    """(B, M), the memory of the levels of marks, if the model has any: see `Marks`."""
    labels: Tensor | None = None
    """(B, N), 1 for each value of each label that the piece has, if the model knows any."""

    def tensors(self) -> list[Tensor]:
        """All its tensors: the states from the lowest layer up, the past, levels, and labels."""
        rest = (*self.past, self.levels, self.labels)
        states = [tensor for layer in self.layers() for tensor in layer]
        return states + [tensor for tensor in rest if tensor is not None]

    def like(self, tensors: Sequence[Tensor]) -> "Carry":
        """A carry of the same structure from other tensors, in the order of `tensors()`."""
        rest = iter(tensors)
        layers = [type(layer)(*(next(rest) for _ in layer)) for layer in self.layers()]
        state = tuple(layers) if is_stack(self.state) else layers[0]
        others = (self.past.memory, self.levels, self.labels)
        numbers = next(rest)
        memory, levels, labels = (None if each is None else next(rest) for each in others)
        return Carry(state, Past(numbers, memory), levels, labels)

    def layers(self) -> Sequence[UnitState]:
        """The states of the unit's layers, the lowest first."""
        return self.state if is_stack(self.state) else (cast(UnitState, self.state),)


class Reading(NamedTuple):
    """What the output needs for each of the frames (T, B, F) that the model has read."""

    h: Tensor
    """(T S, B R, H), the encoder making S steps of R rows; H + E if it has skip inputs."""
    frames: Tensor
    """(T, B, F), in the model's type."""
    past: Tensor
    """(T, B, C), the numbers before each frame."""
    after: Carry
    """The carry after the last frame."""


class ParameterCounts(NamedTuple):
    """How many parameters a model has."""

    units: int
    """In all units, along time and along pitch: what `--params` sets."""
    with_output: int
    """In the whole model."""


class SequenceModel(nn.Module):
    """p(x_1, ..., x_T) = prod_t p(x_t | x_<t), with the past in a unit's state.

    At step t the unit reads what the encoder makes of the frames before t, and the output gives the
    distribution of frame t. Both also read the piece's labels, one column of zeros and ones for
    each value; the column's weights are the value's vector, which is added to the unit's input
    product and to the output's.
    """

    def __init__(
        self, encoder: Encoder, unit: Layer | Stack, output: Output, dropout: float = 0.0,
        marks: Marks | None = None, known_labels: KnownLabels = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder, self.unit, self.output = encoder, unit, output
        self.dropout = Dropout(dropout)
        self.marks, self.known_labels = marks, dict(known_labels)
        self.default_labels = [0] * len(known_labels)

    def conditioned(self, labels: Sequence[int]) -> Self:
        """The same model, with these labels (L,) instead of none for pieces without any."""
        other = copy.copy(self)
        other.default_labels = list(labels)
        return other

    def guided(self, factor: float | None) -> Self:
        """A copy whose samples follow their labels `factor` times as strongly, or as is usual.

        Its likelihoods are then no longer those of this model. UsageError if labels exert no such
        pull.
        """
        factor = self.encoder.usual_guidance if factor is None else factor
        if factor == 1:
            return self
        other = copy.deepcopy(self)
        other.encoder.guide(factor)
        return other

    def start_at(self, train: Split) -> None:
        """Set what the encoder needs from the training split, and the output's starting point."""
        self.encoder.start_at(train)
        # More music would hardly change the starting point, and would take many minutes.
        self.output.start_at(train.subsample())
        if self.encoder.end_odds:
            self.output.start_ends_at(self.encoder.end_odds)

    def layers(self) -> list[Layer]:
        return self.unit.units()

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """This model's `figures` as lines of text, as `seqmodel eval` prints them."""
        return [*self.output.describe(figures), *figure_lines(figures, self.mark_figures())]

    def mark_figures(self) -> dict[str, str]:
        """The figures of marks, and their labels: nats per note, and for the notes of each part."""
        labels = dict[str, str]()
        for name, mark in ({} if self.marks is None else self.marks.outputs()).items():
            labels[MARK_FIGURES[name]] = f"{name}, nats per note"
            labels |= {f"{MARK_FIGURES[name]}_{part}": f"  {part}" for part in mark.levels.names}
        return labels

    def parameter_counts(self) -> ParameterCounts:
        """The parameters of its units alone, and with the output layer."""
        units = (module for module in self.modules() if isinstance(module, Layer))
        total = sum(weight.numel() for weight in self.parameters())
        return ParameterCounts(sum(unit.parameter_count() for unit in units), total)

    def choose_device(self, option: str, batch_size: int) -> torch.device:
        """Where `--device` auto, cpu or cuda places this model, for batches of this size.

        Raises:
            UsageError: if the device is not available, or the unit's backend cannot run on it.
        """
        return self.unit.choose_device(option, batch_size * self.encoder.rows)

    def window(self, batch_size: int) -> int:
        """How many frames of each piece to read at once, so that memory stays bounded."""
        frames = min(FRAMES_AT_ONCE // self.encoder.steps, ROWS_AT_ONCE // self.encoder.rows)
        return max(1, frames // batch_size)

    def start(self, batch_size: int, metres: NDArray[np.int64] | None = None) -> Carry:
        """The carry before the first frame: zero state, zeros as the past.

        The encoder may read the `metres` of each piece, (B, G); without them, the usual one in
        train. Labels are those set by `conditioned`.
        """
        state = self.unit.zero_state(batch_size * self.encoder.rows)
        past = self.encoder.start(next(self.unit.parameters()), batch_size)
        levels = None
        if self.marks is not None:
            levels = self.marks.start(past.numbers, batch_size)
        past = past if metres is None else self.encoder.with_metres(past, metres)
        return self.with_labels(
            Carry(state, past, levels), np.array([self.default_labels] * batch_size)
        )

    def with_labels(
        self, carry: Carry, labels: NDArray[np.int64] | None, *, dropout: bool = False
    ) -> Carry:
        """The carry before pieces with these labels (B, L), see `Split.labels`; unchanged for None.

        With `dropout`, a tenth of each label is left out at random.
        """
        if labels is None or not self.known_labels:
            return carry
        chosen = torch.from_numpy(labels)
        if dropout:
            mask = torch.rand(len(labels), 1 + len(self.known_labels)) >= LABEL_DROPOUT
            chosen = chosen * (mask[:, :1] & mask[:, 1:])
        one_hot = [
            label.unsqueeze(1) == torch.arange(1, 1 + len(values))
            for label, values in zip(chosen.T, self.known_labels.values(), strict=True)
        ]
        columns = torch.cat(one_hot, 1).to(carry.past.numbers)
        return carry._replace(past=self.encoder.with_labels(carry.past, columns), labels=columns)

    def carried_over(self, carry: Carry) -> Carry:
        """The carry before the first frame of pieces that continue those read."""
        return carry._replace(past=self.encoder.carried_over(carry.past))

    def read(self, frames: Tensor, carry: Carry, lengths: Tensor | None = None) -> Reading:
        """Read `frames` (T, B, F), of any numeric type, that follow `carry`.

        With `lengths` (B,) from 0 to T, frames from a piece's length on are padding: the unit's
        output is zero there, and the carry holds the unit's state at the length.
        """
        encoded = self.encoder.encode(frames, carry.past, lengths)
        h, state = self._run(encoded, carry, lengths)
        after = carry._replace(state=state, past=encoded.last)
        return Reading(h, encoded.frames, encoded.past, after)

    def score_marks(
        self, reading: Reading, marks: Mapping[str, NDArray[np.uint8]]
    ) -> tuple[dict[str, Tensor], Carry]:
        """The cost of the `marks` (T, B, D) of the frames read, and the carry after them.

        For each mark that the model has, -log p of the strikes where it is known, (N,).
        """
        if self.marks is None or not marks:
            return {}, reading.after
        assert reading.after.levels is not None
        numbers = {name: torch.from_numpy(of_notes) for name, of_notes in marks.items()}
        levels = self.marks.levels_of(reading.frames, numbers)
        nats, after = self.marks.score(reading.h, levels, reading.after.levels)
        return nats, reading.after._replace(levels=after)

    def step(self, carry: Carry) -> tuple[Tensor, AnyState]:
        """h (B R, H or H + E) for the step that follows `carry`, and the unit's new state."""
        h, state = self._run(self.encoder.encode_next(carry.past), carry, None)
        return h[0], state

    def _run(
        self, encoded: Encoded, carry: Carry, lengths: Tensor | None
    ) -> tuple[Tensor, AnyState]:
        """What the output reads at all steps, and the unit's state after them."""
        x, skip = encoded.inputs, [encoded.skip]
        if carry.labels is not None:
            columns = carry.labels.repeat_interleave(self.encoder.rows, 0).expand(len(x), -1, -1)
            width = x.shape[2] - self.encoder.skip_size
            x, skip = torch.cat([x[..., :width], columns, x[..., width:]], 2), [columns, *skip]
        if encoded.changed is not None:
            h, state = self._run_changes(x, encoded.changed, carry, lengths)
        else:
            if lengths is not None:
                lengths = (lengths * self.encoder.steps).repeat_interleave(self.encoder.rows)
            h, state = self.unit(x, carry.state, lengths)
            h = self.dropout(h)
        parts = [h, *(part for part in skip if part is not None)]
        return torch.cat(parts, 2) if len(parts) > 1 else h, state

    def _run_changes(
        self, inputs: Tensor, changed: Tensor, carry: Carry, lengths: Tensor | None
    ) -> tuple[Tensor, AnyState]:
        """h (T, B R, H) of a unit that rests except where `changed` (T, B), and its state."""
        (T, B), R = changed.shape, self.encoder.rows
        if lengths is not None:
            changed = changed & (torch.arange(T).unsqueeze(1) < lengths.cpu())
        steps = changed.cumsum(0)  # the number in each piece up to each frame
        count, state = int(steps[-1].max()), carry.state
        h = carry.layers()[-1][0].unsqueeze(0)
        if count:
            t, b = torch.nonzero(changed, as_tuple=True)
            index = steps.new_zeros(count, B)
            index[steps[t, b] - 1, b] = t * B + b
            rows = index.flatten().to(inputs.device)
            x = inputs.reshape(T * B, -1).index_select(0, rows).view(count, B * R, -1)
            outputs, state = self.unit(x, state, steps[-1].repeat_interleave(R))
            h = torch.cat([h, outputs])
        h = self.dropout(h).view((1 + count) * B, -1)
        rows_of_frames = (steps * B + torch.arange(B)).flatten().to(h.device)
        return h.index_select(0, rows_of_frames).view(T, B * R, -1), state
