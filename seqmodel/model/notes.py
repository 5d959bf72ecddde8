"""The inputs of the tied model's unit: the past as seen from each note."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqmodel.kernels import device
from seqmodel.kernels.device import one_thread
from seqmodel.model.echo import echo_size, remember, start_memory
from seqmodel.model.encoder import CompiledInputs, Encoded, Inputs, Past
from seqmodel.model.heard import heard_inputs, heard_size, plain_echoes

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena


class NoteEncoder:
    """One unit row per note, with the same weights for all: R = D notes, C = F.

    The inputs of note n, after Johnson (2017), "Generating polyphonic music using tied parallel
    networks": which of the notes n - 12 to n + 12 sounded in the previous frame; how many notes of
    each pitch class did, counted from n; how many in total, divided by 12; and its absolute pitch,
    as smooth functions of n and as one of 12 classes. With `onsets` (see `outputs.notes.onsets`)
    also which of the notes n - 12 to n + 12 were struck. Apart from absolute pitch, transposed
    music thus gives the same inputs in shifted rows.

    With `echo` the unit and the output also read what followed the last time the piece was as it is
    now, see `model.echo`: `memory` holds all frames but the last, which is in `numbers`.
    """

    binary = False

    def __init__(self, notes: int, *, onsets: bool = False, echo: bool = False) -> None:
        self.rows, self.onsets, self.echo = notes, onsets, echo
        self.beside_size = echo_size(onsets=onsets) if echo else 0
        self.input_size = heard_size(onsets=onsets) + self.beside_size
        self._frame_size = 2 * notes if onsets else notes

    def start(self, like: Tensor, batch_size: int) -> Past:
        """See `Encoder`."""
        numbers = like.new_zeros(batch_size, self._frame_size)
        if not self.echo:
            return Past(numbers)
        return Past(numbers, start_memory(batch_size, self._frame_size, like.device))

    def encode(self, frames: Tensor, past: Past) -> Encoded:
        """See `Encoder`."""
        T, B, C = frames.shape
        with one_thread():
            steps = past.numbers.new_empty(T + 1, B, C)
            steps[0], steps[1:] = past.numbers, frames
        before = steps[:-1]
        x, memory = self._read(before, past.memory)
        beside = x[..., -self.beside_size :] if self.echo else None
        return Encoded(x, beside, steps[1:], before, Past(steps[-1], memory))

    def inputs(self, past: Past) -> Inputs:
        """See `Encoder`."""
        x, _ = self._read(past.numbers.unsqueeze(0), past.memory)
        return Inputs(x[0], x[0, :, -self.beside_size :] if self.echo else None)

    def append(self, past: Past, frame: Tensor) -> Past:
        """See `Encoder`."""
        return Past(frame, None if past.memory is None else remember(past.memory, past.numbers))

    def kept(self, numbers: Tensor) -> Tensor:
        """See `Encoder`."""
        return numbers

    def compiled(self, arena: "Arena") -> CompiledInputs:
        """See `Encoder`."""
        from seqmodel.model.note_inputs import inputs_call  # the compiler loads at first use

        return inputs_call(self.rows, arena, onsets=self.onsets, echo=self.echo)

    def _read(self, heard: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The unit inputs (T, B D, I) after each frame of `heard` (T, B, C), and the new memory."""
        T, B, C = heard.shape
        if device.why_not([heard]) is not None:
            x = heard_inputs(heard.reshape(T * B, C), onsets=self.onsets)
            if memory is not None:
                told, memory = plain_echoes(heard, memory, onsets=self.onsets)
                x = torch.cat([x, told.to(x)], 1)
        else:
            from seqmodel.model.note_inputs import compiled_inputs  # as above

            x, memory = compiled_inputs(heard, memory, onsets=self.onsets)
        return x.view(T, B * self.rows, self.input_size), memory
