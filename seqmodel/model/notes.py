"""The inputs of the tied model's unit: the past as seen from each note."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seqmodel.data.dataset import Split
from seqmodel.kernels.device import for_kernels, one_thread
from seqmodel.model.clock import ODDS_SCALE, Clock
from seqmodel.model.echo import echo_size, memory_size
from seqmodel.model.encoder import CompiledInputs, Encoded, Encoder, Inputs, Past, in_line
from seqmodel.model.note_inputs import compiled_inputs, heard_size, inputs_call

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena


class NoteEncoder(nn.Module, Encoder):
    """One unit row per note, with the same weights for all: R = D notes, C = F.

    The inputs of note n, after Johnson (2017), "Generating polyphonic music using tied parallel
    networks": which of the notes n - 12 to n + 12 sounded in the previous frame; how many notes of
    each pitch class did, counted from n; how many in total, divided by 12; and its absolute pitch,
    as smooth functions of n and as one of 12 classes. With `onsets` (see `outputs.notes.onsets`)
    also which of the notes n - 12 to n + 12 were struck. Apart from absolute pitch, transposed
    music thus gives the same inputs in shifted rows.

    With `echo` the unit and the output also read what followed the last time the piece was as it is
    now, see `model.echo`: `memory` holds all frames but the last, which is in `numbers`. With
    `clock` they read how soon a piece of as many frames may end, and where in the metre it is, see
    `model.clock`: `memory` then begins with that number, and holds nothing else without `echo`.
    """

    def __init__(
        self, notes: int, *, onsets: bool = False, echo: bool = False, clock: Clock | None = None
    ) -> None:
        super().__init__()
        self.rows, self.onsets, self.echo = notes, onsets, echo
        self.clock = clock
        self.end_odds = ODDS_SCALE if clock and clock.end else 0.0
        self.beside_size = (echo_size(onsets=onsets) if echo else 0) + (clock.size if clock else 0)
        self.input_size = heard_size(onsets=onsets) + self.beside_size
        self._frame_size = 2 * notes if onsets else notes

    def start_at(self, train: Split) -> None:
        """See `Encoder`."""
        if self.clock is not None:
            self.clock.start_at(train.lengths)

    def start(self, like: Tensor, batch_size: int) -> Past:
        """See `Encoder`."""
        numbers = like.new_zeros(batch_size, self._frame_size)
        if not (self.echo or self.clock):
            return Past(numbers)
        size = memory_size(self._frame_size) if self.echo else 1
        return Past(numbers, numbers.new_zeros(batch_size, size, dtype=torch.int64))

    def encode(self, frames: Tensor, past: Past, lengths: Tensor | None = None) -> Encoded:
        """See `Encoder`."""
        with one_thread():
            frames, before, last = in_line(frames, past.numbers)
        x, memory = self._read(before, past.memory)
        beside = x[..., -self.beside_size :] if self.beside_size else None
        return Encoded(x, beside, frames, before, Past(last, memory))

    def inputs(self, past: Past) -> Inputs:
        """See `Encoder`."""
        x, _ = self._read(past.numbers.unsqueeze(0), past.memory)
        return Inputs(x[0], x[0, :, -self.beside_size :] if self.beside_size else None)

    def append(self, past: Past, frame: Tensor) -> Past:
        """See `Encoder`."""
        return Past(frame, self._read(past.numbers.unsqueeze(0), past.memory)[1])

    def compiled(self, arena: "Arena") -> CompiledInputs:
        """See `Encoder`."""
        return inputs_call(self.rows, arena, onsets=self.onsets, echo=self.echo, clock=self.clock)

    def _read(self, frames: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The unit inputs (T, B D, I) after each of `frames` (T, B, C), and the new memory.

        Computed on the CPU, and moved to where the frames are.
        """
        x, after = compiled_inputs(
            for_kernels(frames), None if memory is None else memory.cpu(), self.clock,
            onsets=self.onsets, echo=self.echo,
        )  # fmt: skip
        return x.to(frames), None if after is None else after.to(frames.device)
